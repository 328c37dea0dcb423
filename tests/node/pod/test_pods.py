"""Whose UID is this? From the mirror, from a list, and from nobody's annotations."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from hami.domain.kubernetes.objects import Metadata
from hami.kube.errors import ApiError
from hami.node.pod import pods as pods_module
from hami.node.pod.pods import STATIC_POD, NodePods, NoPod


class Client:
    """Lists these pods, or fails."""

    def __init__(self) -> None:
        self.listed: list = []
        self.error: Exception | None = None
        self.asked = 0

    async def list(self, _resource, *, field_selector):
        assert field_selector == "spec.nodeName=n1"
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.listed


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def pods(client):
    pods = NodePods(client, "n1", on_problem=print, patience=0.02)
    pods.synced.set()
    return pods


def mirror_of(pod, uid):
    """As kubelet makes it of a static pod."""
    metadata = msgspec.structs.replace(pod.metadata, annotations={STATIC_POD: uid})
    assert isinstance(metadata, Metadata)
    return msgspec.structs.replace(pod, metadata=metadata)


async def test_the_mirror_is_asked_first(parts, pods, client):
    pod = parts.pod()
    pods.changed(pod, None)
    assert await pods.find(pod.uid) is pod
    assert client.asked == 0


async def test_one_that_arrives_meanwhile_is_waited_for(parts, client):
    pods = NodePods(client, "n1", on_problem=print, patience=10)
    pod = parts.pod()
    finding = [asyncio.create_task(pods.find(pod.uid)) for _ in range(2)]
    await asyncio.sleep(0)
    pods.changed(pod, None)
    assert await asyncio.gather(*finding) == [pod, pod]
    assert client.asked == 0


async def test_one_that_the_mirror_misses_is_listed_and_is_not_gone(parts, pods, client):
    pod = parts.pod()
    client.listed = [pod]
    assert await pods.find(pod.uid) is pod
    assert not pods.is_gone(pod.uid)
    pods.changed(pod, None)
    pods.gone(pod)
    assert pods.is_gone(pod.uid)


async def test_one_that_was_listed_and_never_arrives_is_gone_again(
    parts, pods, client, monkeypatch
):
    client.listed = [parts.pod()]
    await pods.find("uid-p")
    monkeypatch.setattr(pods_module, "MIRROR_LAG", -1.0)
    assert pods.is_gone("uid-p")


async def test_nobody_is_gone_before_the_mirror_is_whole(pods):
    pods.synced.clear()
    assert not pods.is_gone("uid-x")
    pods.synced.set()
    assert pods.is_gone("uid-x")


@pytest.mark.parametrize(
    ("error", "certain"), [(None, True), (ApiError("no"), False), (TimeoutError(), False)]
)
async def test_one_that_nobody_knows(pods, client, error, certain):
    client.error = error
    found = await pods.find("uid-x")
    assert isinstance(found, NoPod)
    assert (found.certain, found.ended) == (certain, certain)
    assert "uid-x" in found.problem


async def test_a_static_pod_is_refused_by_name_and_has_not_ended(parts, pods):
    pods.changed(mirror_of(parts.pod("static"), "hash"), None)
    found = await pods.find("hash")
    assert isinstance(found, NoPod)
    assert "team/static is a static pod" in found.problem
    assert (found.certain, found.ended) == (True, False)
    pods.gone(mirror_of(parts.pod("static"), "hash"))
    assert (await pods.find("hash")).ended


async def test_a_pod_that_calls_itself_the_mirror_of_another_one_changes_nothing(
    parts, pods, client
):
    """Whoever may create pods may write that annotation."""
    victim = parts.pod("victim")
    pods.changed(mirror_of(parts.pod("evil"), victim.uid), None)
    client.listed = [victim]
    assert await pods.find(victim.uid) is victim
    pods.changed(victim, None)
    assert await pods.find(victim.uid) is victim


async def test_a_pod_made_anew_under_its_name_is_another_one(parts, pods):
    old, new = parts.pod("web-0", uid="one"), parts.pod("web-0", uid="two")
    heard = []

    class Listener:
        def pod_changed(self, pod):
            heard.append(("changed", pod.uid))

        def pod_gone(self, pod):
            heard.append(("gone", pod.uid))

    pods.listen(Listener())
    pods.changed(old, None)
    pods.gone(old)
    pods.changed(new, None)
    assert heard == [("changed", "one"), ("gone", "one"), ("changed", "two")]
    assert pods.is_gone("one")
    assert not pods.is_gone("two")
