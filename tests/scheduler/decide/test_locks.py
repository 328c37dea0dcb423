"""Node locks as a bind takes them: what is taken is released, and nothing else."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from structlog.testing import capture_logs

from hami.domain.kubernetes.objects import Pod
from hami.domain.units import VendorKey
from hami.kube.errors import ApiError
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.scheduler.decide import locks
from hami.scheduler.decide.locks import LockSettings, NodeLocks
from hami.vendors.registry import Vendors

from ...kube.fake_api import connected, serving, until
from ..builders import PROFILE, Cluster, a_node, a_pod

MUTEX, OWN = "hami.io/mutex.lock", "bolt.io/own.lock"
BOLT = """
- key: BOLT
  resources: {count: bolt.io/npu}
  lock: private
  node_annotations: {register: bolt.io/register, lock: bolt.io/own.lock}
  pod_annotations: {allocated: bolt.io/allocated}
"""
BOTH = frozenset({VendorKey("ACME"), VendorKey("BOLT")})
ACME = frozenset({VendorKey("ACME")})
POD = a_pod("p", namespace="ns")
YOUNG = "2999-01-01T00:00:00Z"


class World:
    """A node that needs the locks of two vendors, and the API server that has it."""

    def __init__(self, api, client) -> None:
        self.api = api
        vendors = Vendors.of({"both": ProfileVendor(PROFILE + BOLT)})
        self.cluster = Cluster(a_node(), vendors=vendors)
        self.client = client
        self.settings = LockSettings()
        self.locks = NodeLocks(self.cluster.state, client, lambda: self.settings)
        self.put()

    def put(self, **held: str) -> None:
        keys = {"mutex": MUTEX, "own": OWN}
        self.api.put("nodes", "n1", metadata={"annotations": {keys[k]: v for k, v in held.items()}})

    def a_stored_pod(self) -> Pod:
        stored = self.api.put("pods", "p", "ns")
        return a_pod("p", namespace="ns", uid=stored["metadata"]["uid"])

    @property
    def held(self) -> dict[str, str]:
        return dict(self.api.objects["nodes"]["", "n1"]["metadata"]["annotations"])


@pytest.fixture
def logged():
    """The log's entries."""
    structlog.reset_defaults()
    with capture_logs() as entries:
        yield entries


@pytest.fixture
async def world(tmp_path):
    async with serving() as api, connected(tmp_path, api) as client:
        api.put("pods", "holder", "ns")
        world = World(api, client)
        yield world
        await world.locks.close()


async def test_every_lock_of_the_pods_vendors_is_taken_and_released(world):
    assert await world.locks.take(POD, "n1", BOTH) == ""
    assert world.held.keys() == {MUTEX, OWN}
    assert world.held[MUTEX].endswith(",ns,p")
    await world.locks.release(POD, "n1")
    assert world.held == {}


async def test_a_node_whose_agents_need_none_is_not_even_read(world):
    identity = {"hami.io/node-identity": "ACME=simulated,BOLT=simulated"}
    world.cluster.state.node_changed(a_node(**identity))
    assert await world.locks.take(POD, "n1", BOTH) == ""
    await world.locks.release(POD, "n1")
    await world.locks.bound(POD, "n1")
    await world.locks.close()
    assert world.api.asked == []


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        ({"mutex": f"{YOUNG},ns,holder"}, "node lock contention"),
        ({"own": YOUNG}, "locked within 2 minutes"),
        ({"own": "x"}, "cannot be read"),
    ],
)
async def test_who_cannot_have_all_locks_keeps_none(world, held, problem):
    world.put(**held)
    before = world.held
    assert problem in await world.locks.take(POD, "n1", BOTH)
    assert world.held == before


@pytest.mark.parametrize("status", ["500 Internal Server Error: no", "403 Forbidden: no"])
@pytest.mark.parametrize("vendor", sorted(BOTH))
async def test_a_lock_whose_write_may_have_happened_is_released(world, monkeypatch, vendor, status):
    patch = world.client.patch

    async def lost(*arguments, **options):
        monkeypatch.setattr(world.client, "patch", patch)
        await patch(*arguments, **options)
        world.api.refuse("nodes/n1", int(status[:3]), method="GET")
        raise ApiError("reset")

    monkeypatch.setattr(world.client, "patch", lost)
    problem = await world.locks.take(POD, "n1", frozenset({vendor}))
    assert problem == f"cannot lock node n1: get nodes n1: {status}"
    assert world.held == {}


async def test_what_was_taken_is_released_whatever_the_node_says_by_now(world):
    assert await world.locks.take(POD, "n1", BOTH) == ""
    world.cluster.state.node_gone(a_node())
    await world.locks.release(POD, "n1")
    assert world.held == {}


async def test_nothing_is_released_that_was_not_taken(world):
    world.put(mutex=f"{YOUNG},ns,p", own=YOUNG)
    before = world.held
    await world.locks.release(POD, "n1")
    assert (world.held, world.api.asked) == (before, [])


async def test_a_lock_taken_by_another_after_it_expired_stays_with_that_one(world):
    assert await world.locks.take(POD, "n1", BOTH) == ""
    world.put(mutex=f"{YOUNG},ns,holder", own=YOUNG)
    before = world.held
    await world.locks.release(POD, "n1")
    assert world.held == before


async def test_a_second_bind_of_the_same_pod_has_its_locks_already(world):
    assert await world.locks.take(POD, "n1", BOTH) == ""
    before = world.held
    assert await world.locks.take(POD, "n1", BOTH) == ""
    assert world.held == before
    assert await world.locks.take(a_pod("q", namespace="ns"), "n1", frozenset({"BOLT"}))
    await world.locks.release(POD, "n1")
    assert world.held == {}


async def test_a_release_that_fails_is_said_and_stops_nothing(world, logged):
    assert await world.locks.take(POD, "n1", BOTH) == ""
    world.api.refuse("nodes/n1", 403, method="PATCH")
    await world.locks.release(POD, "n1")
    assert world.held.keys() == {MUTEX}
    assert [(line["annotation"], line["node"]) for line in logged] == [(MUTEX, "n1")]


async def test_what_nobody_speaks_of_any_more_is_forgotten(world, monkeypatch):
    monkeypatch.setattr(locks, "PRIVATE_EXPIRY", 0.0)
    world.settings = LockSettings(expiry=0.0)
    for name in "abc":
        await world.locks.take(a_pod(name, namespace="ns"), "n1", ACME)
        await asyncio.sleep(0.001)
    assert len(world.locks._taken) <= 1


# The label.


def label(world) -> dict[str, str]:
    return world.api.objects["pods"]["ns", "p"]["metadata"].get("labels", {})


async def test_a_bound_pod_of_a_locked_node_is_labelled_beside_the_answer(world):
    pod = world.a_stored_pod()
    assert await world.locks.take(pod, "n1", ACME) == ""
    world.api.asked.clear()
    await world.locks.bound(pod, "n1")
    assert world.api.asked == []
    await until(lambda: label(world) == {"hami.io/vgpu-node": "n1"})
    assert MUTEX in world.held


async def test_the_end_waits_for_labels_that_are_under_way_and_no_longer_than_it_may(world):
    pod = world.a_stored_pod()
    for _ in range(2):
        assert await world.locks.take(pod, "n1", ACME) == ""
        await world.locks.bound(pod, "n1")
        await world.locks.close(20)
        assert label(world) == {"hami.io/vgpu-node": "n1"}
        world.api.hang("pods/p", method="PATCH")
        assert await world.locks.take(pod, "n1", ACME) == ""
        await world.locks.bound(pod, "n1")
        await world.locks.close(0.01)
        assert not world.locks._tasks
        world.api.faults.clear()


async def test_a_label_that_cannot_be_written_is_said(world, logged):
    assert await world.locks.take(POD, "n1", ACME) == ""
    await world.locks.bound(POD, "n1")
    await world.locks.close(20)
    assert [line["event"] for line in logged] == ["cannot label a pod"]
