"""HAMi's node lock: its texts, its rules, and the races around it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from hami.domain.kubernetes.objects import Metadata, Pod
from hami.kube.compat.node_lock import (
    Contended,
    Locked,
    private_value,
    release_node_lock,
    release_private_lock,
    take_node_lock,
    take_private_lock,
)
from hami.kube.errors import ApiError

LOCK = "hami.io/mutex.lock"
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
OURS = "2026-01-01T12:00:00Z,ns,p"
CONTENDED = "node n1 has been locked within 5m0s: node lock contention"


def a_pod(name: str = "p", namespace: str = "ns") -> Pod:
    return Pod(metadata=Metadata(name=name, namespace=namespace))


def ago(seconds: float, owner: str = "") -> str:
    text = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{text},{owner}" if owner else text


@pytest.fixture
def node(api):
    """Give ``n1`` this lock; the pod ``ns/holder`` exists."""
    api.put("pods", "holder", "ns")

    def put(value: str | None = None) -> None:
        annotations = {"other": "kept"} | ({LOCK: value} if value else {})
        api.put("nodes", "n1", metadata={"annotations": annotations})

    put()
    return put


def on_node(api) -> str | None:
    annotations = api.objects["nodes"]["", "n1"]["metadata"]["annotations"]
    assert annotations["other"] == "kept"
    return annotations.get(LOCK)


async def take(client, pod=None, **options):
    return await take_node_lock(client, "n1", pod or a_pod(), now=lambda: NOW, **options)


@pytest.mark.parametrize(
    ("held", "left"),
    [
        pytest.param(None, OURS, id="a free node"),
        pytest.param(ago(301, "ns,holder"), OURS, id="an expired lock"),
        pytest.param(ago(301), OURS, id="an expired lock of old, without an owner"),
        pytest.param(ago(10, "ns,deleted"), OURS, id="a lock whose pod is gone"),
        pytest.param(ago(10, "ns,p"), ago(10, "ns,p"), id="our own lock keeps its time"),
        pytest.param("2026-01-01T19:59:00+08:00,ns,p", "2026-01-01T19:59:00+08:00,ns,p",
                     id="our own lock in another zone"),
    ],
)  # fmt: skip
async def test_taken(api, client, node, held, left):
    node(held)
    assert await take(client) == Locked(value=left)
    assert on_node(api) == left


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(ago(10, "ns,holder"), id="another pod's"),
        pytest.param(ago(300, "ns,holder"), id="not a moment too old"),
        pytest.param(ago(10), id="of old, without an owner"),
        pytest.param(ago(-3600, "ns,holder"), id="by a clock that is ahead"),
    ],
)
async def test_contended(api, client, node, held):
    node(held)
    assert await take(client) == Contended(text=CONTENDED)
    assert on_node(api) == held
    assert not api.calls("PATCH")


@pytest.mark.parametrize(
    ("expiry", "text"),
    [(120, "2m0s"), (28, "28s"), (3661, "1h1m1s"), (0.5, "0.5s")],
)
async def test_the_text_names_the_expiry_as_go_prints_it(client, node, expiry, text):
    node(ago(0, "ns,holder"))
    outcome = await take(client, expiry=expiry)
    assert outcome == Contended(text=f"node n1 has been locked within {text}: node lock contention")


@pytest.mark.parametrize("held", ["yesterday,ns,holder", "2026-01-01T12:00:00Z,ns", "x"])
async def test_a_lock_that_cannot_be_read_is_contention_with_a_remedy_and_not_forever_an_error(
    api, client, node, held
):
    node(held)
    outcome = await take(client, patience=60)
    assert isinstance(outcome, Contended)
    assert not outcome.waitable
    assert held.split(",")[0] in outcome.text or held in outcome.text
    assert outcome.text.endswith("remove it: kubectl annotate node n1 hami.io/mutex.lock-")


async def test_a_member_of_a_pod_group_waits_until_the_lock_is_free(api, client, node):
    node(ago(10, "ns,holder"))

    async def free():
        while len(api.calls("GET", "/nodes/")) < 3:
            await asyncio.sleep(0.01)
        node()

    outcome, _ = await asyncio.gather(take(client, patience=60), free())
    assert outcome == Locked(value=OURS)


async def test_it_waits_no_longer_than_its_patience(client, node):
    node(ago(10, "ns,holder"))
    assert await take(client, patience=0.25) == Contended(
        text="timed out after 0.25s waiting for node n1 to be unlocked: node lock contention"
    )


async def test_of_many_pods_one_gets_the_lock(api, client, node):
    pods = [a_pod(f"p{i}") for i in range(8)]
    for pod in pods:
        api.put("pods", pod.name, "ns")
    outcomes = await asyncio.gather(*(take(client, pod) for pod in pods))
    assert [isinstance(o, Locked) for o in outcomes].count(True) == 1
    assert {o for o in outcomes if isinstance(o, Contended)} == {Contended(text=CONTENDED)}


async def test_a_node_that_others_write_meanwhile_is_read_again(api, client, node):
    api.refuse("nodes/n1", 409, method="PATCH", reason="Conflict", times=4)
    assert await take(client) == Locked(value=OURS)


async def test_after_five_conflicts_the_error_is_the_answer(api, client, node):
    api.refuse("nodes/n1", 409, method="PATCH", reason="Conflict", times=5)
    with pytest.raises(ApiError) as caught:
        await take(client)
    assert caught.value.status == 409


async def test_a_write_whose_answer_was_lost_is_found(api, client, node):
    api.refuse("nodes/n1", 500, method="PATCH", after=True)
    assert await take(client) == Locked(value=OURS)
    assert len(api.calls("PATCH")) == 1


@pytest.mark.parametrize("status", [403, 404])
async def test_a_definite_refusal_is_not_tried_again(api, client, node, status):
    api.refuse("nodes/n1", status, method="PATCH")
    with pytest.raises(ApiError):
        await take(client, patience=60)
    assert len(api.calls("PATCH")) == 1


async def test_a_holder_that_cannot_be_read_is_not_taken_for_gone(api, client, node):
    node(ago(10, "ns,holder"))
    api.refuse("pods/holder", 500)
    with pytest.raises(ApiError):
        await take(client)
    assert on_node(api) == ago(10, "ns,holder")


async def test_a_node_that_is_not_there_is_an_error(client):
    with pytest.raises(ApiError) as caught:
        await take_node_lock(client, "none", a_pod())
    assert caught.value.status == 404


# Release.


@pytest.mark.parametrize(
    ("held", "released", "left"),
    [
        pytest.param(ago(10, "ns,p"), True, None, id="our own"),
        pytest.param(None, False, None, id="none"),
        pytest.param(ago(10, "ns,holder"), False, ago(10, "ns,holder"), id="another pod's"),
        pytest.param(
            ago(10, "other,p"), False, ago(10, "other,p"), id="a pod of our name elsewhere"
        ),
        pytest.param(ago(10), False, ago(10), id="of old, without an owner"),
        pytest.param("yesterday,ns,p", True, None, id="ours with a time nobody can read"),
    ],
)
async def test_released(api, client, node, held, released, left):
    node(held)
    assert await release_node_lock(client, "n1", a_pod()) is released
    assert on_node(api) == left


async def test_an_agent_releases_through_the_status(api, client, node):
    node(ago(10, "ns,p"))
    assert await release_node_lock(client, "n1", a_pod(), subresource="status") is True
    assert on_node(api) is None
    assert [call.path for call in api.calls("PATCH")] == ["/api/v1/nodes/n1/status"]


async def test_an_agents_release_is_guarded_by_the_resource_version_too(api, client, node):
    node(ago(10, "ns,p"))
    api.refuse("nodes/n1/status", 409, method="PATCH", reason="Conflict", times=4)
    assert await release_node_lock(client, "n1", a_pod(), subresource="status") is True
    body = api.calls("PATCH")[0].body
    assert body["metadata"]["resourceVersion"]


async def test_a_lock_that_another_took_meanwhile_stays(api, client, node, monkeypatch):
    node(ago(10, "ns,p"))
    patch = client.patch

    async def late(*arguments, **options):
        if on_node(api) == ago(10, "ns,p"):
            node(ago(1, "ns,holder"))
        return await patch(*arguments, **options)

    monkeypatch.setattr(client, "patch", late)
    assert await release_node_lock(client, "n1", a_pod()) is False
    assert on_node(api) == ago(1, "ns,holder")


async def test_a_release_whose_answer_was_lost_counts(api, client, node):
    node(ago(10, "ns,p"))
    api.refuse("nodes/n1", 500, method="PATCH", after=True)
    assert await release_node_lock(client, "n1", a_pod()) is True
    assert on_node(api) is None


async def test_a_node_that_is_gone_has_no_lock_to_release(client):
    assert await release_node_lock(client, "none", a_pod()) is False


# A vendor's own lock.


OWN = "acme.com/own.lock"


@pytest.fixture
def owned(api):
    """Give ``n1`` this value of the vendor's own lock."""

    def put(value: str | None = None) -> None:
        api.put(
            "nodes",
            "n1",
            metadata={"annotations": {"other": "kept"} | ({OWN: value} if value else {})},
        )

    put()
    return put


def own_lock(api) -> str | None:
    annotations = api.objects["nodes"]["", "n1"]["metadata"]["annotations"]
    assert annotations["other"] == "kept"
    return annotations.get(OWN)


async def take_own(client, **options):
    return await take_private_lock(client, "n1", OWN, NOW, **options)


WRITTEN = "2026-01-01T12:00:00.000000Z"


def test_an_own_locks_value_is_a_bare_time_with_a_fraction():
    at = NOW.replace(microsecond=1234)
    assert private_value(at) == "2026-01-01T12:00:00.001234Z"


@pytest.mark.parametrize(
    ("held", "left"),
    [
        pytest.param(None, WRITTEN, id="a free node"),
        pytest.param(ago(121), WRITTEN, id="an expired lock"),
        pytest.param("2026-01-01T19:57:00+08:00", WRITTEN, id="an expired lock in another zone"),
        pytest.param(WRITTEN, WRITTEN, id="what an earlier write of ours has left"),
    ],
)
async def test_an_own_lock_is_taken(api, client, owned, held, left):
    owned(held)
    assert await take_own(client) == Locked(value=left)
    assert own_lock(api) == left


async def test_an_own_lock_that_the_same_pod_took_before_is_kept_as_long_as_it_holds(
    api, client, owned
):
    owned(ago(120))
    assert await take_own(client, ours={"x", ago(120)}) == Locked(value=ago(120))
    owned(ago(121))
    assert await take_own(client, ours={ago(121)}) == Locked(value=WRITTEN)
    assert own_lock(api) == WRITTEN


@pytest.mark.parametrize("held", [ago(0), ago(120), ago(-3600)])
async def test_an_own_lock_of_another_is_contention(api, client, owned, held):
    owned(held)
    assert await take_own(client, ours={"x"}) == Contended(
        text=f"node n1 has been locked within 2 minutes ({OWN})", waitable=False
    )
    assert (own_lock(api), api.calls("PATCH")) == (held, [])


async def test_an_own_lock_that_cannot_be_read_is_contention_with_its_remedy(client, owned):
    owned("yesterday")
    outcome = await take_own(client)
    assert isinstance(outcome, Contended)
    assert f"annotation {OWN}" in outcome.text
    assert outcome.text.endswith(f"remove it: kubectl annotate node n1 {OWN}-")


@pytest.mark.parametrize("after", [False, True], ids=["not written", "answer lost"])
async def test_an_own_lock_is_written_once_whatever_becomes_of_the_answer(
    api, client, owned, after
):
    api.refuse("nodes/n1", 500, method="PATCH", after=after)
    assert await take_own(client) == Locked(value=WRITTEN)
    assert own_lock(api) == WRITTEN
    assert len(api.calls("PATCH")) == 2 - after


async def test_of_many_takers_one_gets_the_own_lock(client, owned):
    times = [NOW + timedelta(microseconds=i) for i in range(8)]
    outcomes = await asyncio.gather(*(take_private_lock(client, "n1", OWN, at) for at in times))
    assert [isinstance(o, Locked) for o in outcomes].count(True) == 1


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize(
    ("held", "released", "left"),
    [
        pytest.param(WRITTEN, True, None, id="ours"),
        pytest.param(None, False, None, id="none"),
        pytest.param(ago(1), False, ago(1), id="another's"),
    ],
)
async def test_an_own_lock_is_released_by_who_wrote_it(
    api, client, owned, held, released, left, subresource
):
    owned(held)
    outcome = await release_private_lock(client, "n1", OWN, {WRITTEN, "x"}, subresource=subresource)
    assert outcome is released
    assert own_lock(api) == left
