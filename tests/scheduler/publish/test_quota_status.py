"""What is used of a quota, published: in the status, in its author's units, no oftener than needed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from hami.domain.kubernetes.objects import (
    Metadata,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
)
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.scheduler.publish.quota_status import QuotaStatus, status_changes, used_texts
from hami.vendors.registry import Vendors

from ..builders import Cluster, a_node, a_pod, acme, granted
from ..writes import Patch, Patches, refused, settled

BOLT = """
profiles:
- key: BOLT
  resources: {count: bolt.io/npu, memory: bolt.io/mem, cores: bolt.io/cores}
  memory_factor: 256
  node_annotations: {register: bolt.io/register}
  pod_annotations: {allocated: bolt.io/allocated}
"""

MEM, GPU = "limits.acme.com/mem", "limits.acme.com/gpu"


def a_quota(name: str = "q", *, hard: dict[str, str] | None = None, used: dict[str, str] | None = None,
            annotations: dict[str, str] | None = None, version: str = "1") -> ResourceQuota:  # fmt: skip
    return ResourceQuota(
        metadata=Metadata(name=name, namespace="default", annotations=annotations, resource_version=version),
        spec=ResourceQuotaSpec(hard=hard or {MEM: "8k"}),
        status=ResourceQuotaStatus(used=used),
    )  # fmt: skip


def merged(quota: ResourceQuota, call: Patch) -> ResourceQuota:
    """What the API server makes of a merge patch: nulls are gone, 3000 is 3k."""
    used = dict((quota.status and quota.status.used) or {})
    annotations = dict(quota.metadata.annotations or {})
    for held, changes in (
        (used, call.patch.get("status", {}).get("used", {})),
        (annotations, call.patch.get("metadata", {}).get("annotations", {})),
    ):
        for key, value in changes.items():
            if value is None:
                held.pop(key, None)
            else:
                held[key] = value.replace("000", "k")
    about = msgspec.structs.replace(quota.metadata, annotations=annotations)
    return msgspec.structs.replace(quota, metadata=about, status=ResourceQuotaStatus(used=used))


class Published:
    """A cluster whose pod uses 3000 MiB, and what is written about its quotas."""

    def __init__(self, *quotas: ResourceQuota, answers: list[Any] | None = None, **times: float):
        self.cluster = Cluster(a_node())
        self.cluster.sees(granted(a_pod("p", mem=3000, node="n1"), "n1", "n1-d0:3000"))
        self.client = Patches(answers or [], self._merge)
        self.problems: list[str] = []
        self.leading = True
        self.status = QuotaStatus(
            self.cluster.state,
            self.client,
            leading=lambda: self.leading,
            on_problem=self.problems.append,
            **({"rest": 0.001} | times),
        )
        self.cluster.on_usage(self.status.touch)
        for quota in quotas:
            self.cluster.state.quota_changed(quota)

    def _merge(self, call: Patch) -> ResourceQuota:
        return merged(self.cluster.state.quotas[call.namespace, call.name], call)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[Patches]:
        running = asyncio.create_task(self.status.run())
        try:
            yield self.client
        finally:
            assert not running.done() or running.exception() is None
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def patches(client: Patches) -> list[Any]:
    return [call.patch for call in client.calls]


def used(**amounts: str | None) -> dict[str, Any]:
    return {"status": {"used": {f"limits.acme.com/{key}": value for key, value in amounts.items()}}}


async def test_usage_is_written_to_the_status():
    published = Published(a_quota(hard={MEM: "8k", GPU: "4"}))
    async with published.at_work() as client:
        await client.until(1)
        await settled()
    assert client.calls == [Patch("q", used(mem="3000", gpu="1"), "default", "status")]


async def test_nothing_is_written_twice_before_the_informer_has_seen_the_first():
    published = Published(a_quota())
    async with published.at_work() as client:
        await client.until(1)
        for _ in range(3):
            published.status.touch("default")
            await settled()
    assert patches(client) == [used(mem="3000")]


async def test_what_the_server_spells_its_own_way_is_not_written_again():
    published = Published(a_quota(used={MEM: "3k", "requests.cpu": "1"}))
    async with published.at_work() as client:
        await settled()
    assert client.calls == []


async def test_only_what_differs_is_written():
    published = Published(a_quota(hard={MEM: "8k", GPU: "4"}, used={MEM: "3k", GPU: "9"}))
    async with published.at_work() as client:
        await client.until(1)
    assert patches(client) == [used(gpu="1")]


async def test_somebody_elses_change_of_the_status_is_mended():
    published = Published(a_quota())
    async with published.at_work() as client:
        await client.until(1)
        published.cluster.state.quota_changed(a_quota(used={MEM: "77"}, version="2"))
        await client.until(2)
    assert patches(client) == [used(mem="3000"), used(mem="3000")]


async def test_a_key_that_left_the_quota_is_taken_back_and_a_strangers_is_left_alone():
    status = {MEM: "3k", GPU: "1", "limits.cpu": "1", "requests.acme.com/mem": "5"}
    published = Published(a_quota(hard={MEM: "8k"}, used=status))
    async with published.at_work() as client:
        await client.until(1)
    assert patches(client) == [used(gpu=None)]


async def test_changes_within_the_rest_become_one_write():
    published = Published(a_quota(), rest=1.0)
    async with published.at_work() as client:
        await client.until(1)
        for number in range(5):
            published.cluster.sees(
                granted(a_pod(f"p{number}", mem=100, node="n1"), "n1", "n1-d0:100")
            )
            await asyncio.sleep(0.001)
        await client.until(2)
        await settled()
    assert patches(client) == [used(mem="3000"), used(mem="3500")]


async def test_only_the_namespace_that_changed_is_looked_at():
    published = Published(a_quota())
    other = msgspec.structs.replace(a_quota("o"), metadata=Metadata(name="o", namespace="other"))
    published.leading = False
    async with published.at_work() as client:
        published.cluster.state.quota_changed(other)
        await settled()
        published.leading = True
        published.status.touch("other")
        await client.until(1)
        await settled()
    assert [(call.namespace, call.name) for call in client.calls] == [("other", "o")]


async def test_a_follower_writes_nothing_and_writes_everything_when_it_leads():
    published = Published(a_quota("q1"), a_quota("q2"))
    published.leading = False
    async with published.at_work() as client:
        await settled()
        assert client.calls == []
        published.leading = True
        published.status.touch_all()
        await client.until(2)
    assert {call.name for call in client.calls} == {"q1", "q2"}


# What goes wrong.


async def test_a_forbidden_status_becomes_an_annotation_and_is_said_once():
    published = Published(a_quota(hard={MEM: "8k", GPU: "4"}), answers=[refused(403)])
    async with published.at_work() as client:
        await client.until(2)
        published.cluster.sees(granted(a_pod("p2", mem=5, node="n1"), "n1", "n1-d0:5"))
        await client.until(3)
    assert [call.subresource for call in client.calls] == ["status", "", ""]
    texts = [call["metadata"]["annotations"]["hami.io/quota-used"] for call in patches(client)[1:]]
    assert [json.loads(text) for text in texts] == [
        {GPU: "1", MEM: "3000"},
        {GPU: "2", MEM: "3005"},
    ]
    assert len(published.problems) == 1
    assert "allow patch of resourcequotas/status" in published.problems[0]


async def test_the_status_is_tried_again_later_and_then_the_annotation_goes():
    annotated = a_quota(annotations={"hami.io/quota-used": "{}"})
    published = Published(annotated, answers=[refused(403)], forbidden_for=0.0)
    async with published.at_work() as client:
        await client.until(2)
        published.status.touch("default")
        await client.until(4)
    assert [call.subresource for call in client.calls] == ["status", "", "status", ""]
    assert patches(client)[-1] == {"metadata": {"annotations": {"hami.io/quota-used": None}}}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        pytest.param(refused(409), 0, id="a conflict"),
        pytest.param(refused(500), 0, id="an error of the server"),
        pytest.param(refused(0), 0, id="no answer"),
        pytest.param(refused(429, retry_after=0.01), 0, id="too many requests"),
        pytest.param(refused(422), 1, id="a status that the server does not accept"),
    ],
)
async def test_a_failed_write_is_tried_again(error, told, monkeypatch):
    monkeypatch.setattr("hami.kube.pace.Backoff.delay", lambda _: 0.001)
    published = Published(a_quota(), answers=[error, error])
    async with published.at_work() as client:
        await client.until(3)
        await settled()
    assert patches(client) == [used(mem="3000")] * 3
    assert len(published.problems) == 2 * told


async def test_a_quota_that_is_gone_is_forgotten():
    published = Published(a_quota(), answers=[refused(404)])
    async with published.at_work() as client:
        await client.until(1)
        await settled()
        published.cluster.state.quota_gone(a_quota())
        published.status.touch("default")
        await settled()
    assert len(client.calls) == 1
    assert published.problems == []


class Fleeting(Patches):
    """The quota is deleted while it is written."""

    cluster: Cluster

    async def patch(self, resource, name, patch, *, namespace="", subresource=""):
        await asyncio.sleep(0)
        if quota := self.cluster.state.quotas.get((namespace, name)):
            self.cluster.state.quota_gone(quota)
        return await super().patch(
            resource, name, patch, namespace=namespace, subresource=subresource
        )


@pytest.mark.parametrize("status", [403, 404, 409, 500])
async def test_a_quota_deleted_during_its_write_stops_nothing(status):
    published = Published(a_quota("q1"))
    fleeting = Fleeting([refused(status), refused(404)])
    fleeting.cluster = published.cluster
    async with published.at_work() as client:
        published.status._client = fleeting
        await fleeting.until(1)
        await settled()
        published.status._client = client
        published.cluster.state.quota_changed(a_quota("q2"))
        published.status.touch("default")
        await client.until(1)
    assert [call.name for call in client.calls] == ["q2"]


# Units.


@pytest.mark.parametrize(
    ("mib", "units"),
    [(0, "0"), (256, "1"), (257, "2"), (2560, "10")],
)
def test_memory_is_shown_in_the_quotas_unit_and_what_is_begun_counts(mib, units):
    vendors = Vendors.of({"bolt": ProfileVendor(BOLT)})
    shown = used_texts({"bolt.io/mem": mib, "bolt.io/cores": 30}, vendors)
    assert shown == {"limits.bolt.io/mem": units, "limits.bolt.io/cores": "30"}


def test_an_unreadable_amount_in_the_status_is_replaced():
    quota = a_quota(used={MEM: "much"})
    assert status_changes(quota, {MEM: "5"}, acme()) == {MEM: "5"}


def test_a_quota_without_a_status_gets_one():
    quota = msgspec.structs.replace(a_quota(), status=None)
    assert status_changes(quota, {MEM: "0"}, acme()) == {MEM: "0"}
