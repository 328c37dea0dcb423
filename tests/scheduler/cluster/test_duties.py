"""The leader's small duties and the shared key against an API server, over HTTP.

The embedded one, or the real one that ``HAMI_TEST_KUBECONFIG`` names.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hami_lab.api import ApiServer

from hami.kube.client import KubeClient
from hami.kube.identity.settings import KubeSettings
from hami.kube.informer import Informer
from hami.kube.resources import NAMESPACES, NODES, PODS, QUOTAS, SECRETS
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.scheduler.cluster.feeds import NodeFeed, QuotaFeed
from hami.scheduler.cluster.handshake import Handshakes
from hami.scheduler.publish.key_secret import KeySecret
from hami.scheduler.publish.quota_status import QuotaStatus
from hami.scheduler.publish.roles import RoleLabel
from hami.signing import Signer, SigningKeys
from hami.vendors.registry import Vendors
from hami.wire.codecs import Requesting, decode_handshake

from ..builders import PROFILE, Cluster, a_pod, granted


@dataclass
class Place:
    """A namespace of its own on some API server."""

    client: KubeClient
    namespace: str

    async def quota(self, name: str) -> Any:
        return await self.client.get(QUOTAS, name, namespace=self.namespace)

    async def until(self, holds: Any) -> Any:
        """The first true answer; fails when none comes."""
        async with asyncio.timeout(30):
            while not (answer := await holds()):
                await asyncio.sleep(0.01)
        return answer


@pytest.fixture
async def place(tmp_path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        config = os.environ.get("HAMI_TEST_KUBECONFIG", "")
        if not config:
            server = await stack.enter_async_context(ApiServer())
            config = str(tmp_path / "kubeconfig")
            Path(config).write_text(json.dumps(server.kubeconfig()))
        settings = KubeSettings(kubeconfig=Path(config))
        client = await stack.enter_async_context(await KubeClient.connect(settings))
        namespace = f"duties-{secrets.token_hex(4)}"
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        try:
            yield Place(client, namespace)
        finally:
            await client.delete(NAMESPACES, namespace)


@asynccontextmanager
async def at_work(*parts: Any) -> AsyncIterator[None]:
    running = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield
    finally:
        failed = [task.exception() for task in running if task.done()]
        for task in running:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        assert failed == []


def used_of(quota: Any) -> dict[str, str]:
    return dict((quota.status and quota.status.used) or {})


async def test_usage_is_published_as_the_server_spells_it_and_then_left_alone(place):
    problems: list[str] = []
    cluster = Cluster()
    pod = granted(a_pod("p", mem=3000, namespace=place.namespace), "n1", "n1-d0:3000")
    cluster.sees(pod)
    status = QuotaStatus(
        cluster.state, place.client, leading=lambda: True, on_problem=problems.append, rest=0.05
    )
    cluster.on_usage(status.touch)
    hard = {"limits.acme.com/mem": "8000", "limits.acme.com/gpu": "4", "requests.acme.com/gpu": "9"}
    body = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    await place.client.create(QUOTAS, body, namespace=place.namespace)
    feed = QuotaFeed(cluster.state)
    informer = Informer(place.client, QUOTAS, feed, on_problem=problems.append)
    async with at_work(informer, status):

        async def published(**amounts: str) -> bool:
            used = used_of(await place.quota("q"))
            wanted = {f"limits.acme.com/{key}": text for key, text in amounts.items()}
            return wanted.items() <= used.items()

        await place.until(lambda: published(mem="3k", gpu="1"))
        await place.until(lambda: _seen(cluster, place.namespace, "3k"))
        before = (await place.quota("q")).metadata.resource_version
        status.touch_all()
        await asyncio.sleep(0.3)
        after = (await place.quota("q")).metadata.resource_version
        cluster.state.pod_gone(pod)
        await place.until(lambda: published(mem="0", gpu="0"))
        patch = {"spec": {"hard": {"limits.acme.com/gpu": None}}}
        await place.client.patch(QUOTAS, "q", patch, namespace=place.namespace)
        await place.until(lambda: _without(place, "limits.acme.com/gpu"))
    assert problems == []
    if "HAMI_TEST_KUBECONFIG" not in os.environ:
        # A real server's own controller may write the object in between.
        assert before == after


async def _seen(cluster: Cluster, namespace: str, text: str) -> bool:
    return used_of(cluster.state.quotas[namespace, "q"]).get("limits.acme.com/mem") == text


async def _without(place: Place, key: str) -> bool:
    return key not in used_of(await place.quota("q"))


async def test_replicas_that_start_together_share_one_key(place):
    replicas = [SigningKeys(KeySecret(place.client, place.namespace, "keys")) for _ in range(8)]
    await asyncio.gather(*(replica.reload() for replica in replicas))
    assert len({replica.signer.key_ids for replica in replicas}) == 1
    assert replicas[0].signer.signs


async def test_an_empty_secret_is_filled_once(place):
    body = {"metadata": {"name": "keys"}}
    await place.client.create(SECRETS, body, namespace=place.namespace)
    replicas = [SigningKeys(KeySecret(place.client, place.namespace, "keys")) for _ in range(8)]
    await asyncio.gather(*(replica.reload() for replica in replicas))
    (ids,) = {replica.signer.key_ids for replica in replicas}
    again = SigningKeys(KeySecret(place.client, place.namespace, "keys"))
    await again.reload()
    assert again.signer.key_ids == ids != Signer.none().key_ids


async def test_a_node_that_answered_is_asked_and_one_without_the_devices_is_not(place):
    problems: list[str] = []
    cluster = Cluster(vendors=Vendors.of({"acme": ProfileVendor(_with_handshake())}))
    names = [f"{place.namespace}-{part}" for part in ("with", "without")]
    for name, texts in zip(
        names, ({"acme.com/register": "[]", "acme.com/handshake": "Reported now"}, {}), strict=True
    ):
        about = {"name": name, "annotations": texts, "labels": {"of": place.namespace}}
        await place.client.create(NODES, {"metadata": about})
    informer = Informer(
        place.client, NODES, NodeFeed(cluster.state), label_selector=f"of={place.namespace}",
        on_problem=problems.append,
    )  # fmt: skip
    asking = Handshakes(
        cluster.state, place.client, leading=lambda: True, now=datetime.now,
        on_problem=problems.append, every=0.05,
    )  # fmt: skip
    try:
        async with at_work(informer, asking):

            async def asked() -> bool:
                node = await place.client.get(NODES, names[0])
                text = node.annotations.get("acme.com/handshake", "")
                read = decode_handshake(text)
                return isinstance(read, Requesting) and read.at is not None

            await place.until(asked)
        other = await place.client.get(NODES, names[1])
        assert "acme.com/handshake" not in other.annotations
    finally:
        for name in names:
            await place.client.delete(NODES, name)
    assert problems == []


def _with_handshake() -> str:
    return PROFILE.replace(
        "{register: acme.com/register}",
        "{register: acme.com/register, handshake: acme.com/handshake}\n  liveness: handshake",
    )


async def test_our_pod_says_whether_it_leads(place):
    problems: list[str] = []
    spec = {"containers": [{"name": "c", "image": "i"}]}
    body = {"metadata": {"name": "scheduler-0"}, "spec": spec}
    await _accounts(place)
    await place.client.create(PODS, body, namespace=place.namespace)
    label = RoleLabel(place.client, place.namespace, "scheduler-0", on_problem=problems.append)
    async with at_work(label):
        for leading, word in ((False, "follower"), (True, "leader"), (False, "follower")):
            label.set(leading=leading)

            async def says(word: str = word) -> bool:
                pod = await place.client.get(PODS, "scheduler-0", namespace=place.namespace)
                return pod.labels.get("hami.io/scheduler-role") == word

            await place.until(says)
    assert problems == []


async def _accounts(place: Place) -> None:
    """A real server makes a namespace's service account a moment later, and no pod before it."""
    if "HAMI_TEST_KUBECONFIG" in os.environ:
        accounts = replace(PODS, plural="serviceaccounts", kind="ServiceAccount")

        async def there() -> bool:
            return bool(await place.client.list(accounts, namespace=place.namespace))

        await place.until(there)
