"""Which nodes a filter passes over: those that are locked, or promised to somebody else."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.units import DeviceId, MemoryMiB, PodUid, VendorKey
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.scheduler.bookings.lock_book import LockBook, needs_lock
from hami.vendors.registry import Vendors
from hami.wire.codecs import NodeLock

from ..builders import PROFILE, Clock, a_node, a_pod

LOCK, OWN = "hami.io/mutex.lock", "bolt.io/own.lock"
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
BOLT = """
- key: BOLT
  resources: {count: bolt.io/npu}
  lock: private
  node_annotations: {register: bolt.io/register, lock: bolt.io/own.lock}
  pod_annotations: {allocated: bolt.io/allocated}
"""
ACME = VendorKey("ACME")
PROFILES = Vendors.of({"both": ProfileVendor(PROFILE + BOLT)}).profiles
POD = a_pod("p", namespace="ns")


class Book(LockBook):
    def __init__(self) -> None:
        self.clock = Clock()
        self.there: dict[str, PodUid] = {}
        super().__init__(needs_lock, lambda: 300.0, self._on, clock=self.clock, now=lambda: NOW)

    def _on(self, node: str, lock: NodeLock) -> PodUid | None:
        return self.there.get(f"{node}: {lock.namespace}/{lock.pod}")

    def sees(self, version: str = "1", **annotations: str) -> bool:
        node = a_node(**annotations, **{"bolt.io/register": "x"})
        metadata = msgspec.structs.replace(node.metadata, resource_version=version)
        return self.node_seen(msgspec.structs.replace(node, metadata=metadata), PROFILES)

    def for_pod(self, pod=POD, vendors=(ACME,), promises=(), siblings=()) -> set[str]:
        return set(self.busy(pod, vendors, promises, siblings))


def promised(vendor: str = "ACME") -> PodAllocation:
    grant = Grant(device_id=DeviceId("d"), vendor=VendorKey(vendor), memory_mib=MemoryMiB(1))
    held = ContainerAllocation(name="main", kind=ContainerKind.APP, grants=(grant,))
    return PodAllocation(node="n1", containers=(held,))


@pytest.mark.parametrize(
    ("annotations", "busy"),
    [
        pytest.param({}, False, id="a free node"),
        pytest.param({LOCK: "2026-01-01T11:59:00Z,ns,other"}, True, id="another pod's lock"),
        pytest.param({LOCK: "2026-01-01T11:59:00Z,ns,p"}, False, id="the pod's own"),
        pytest.param({LOCK: "2026-01-01T11:54:00Z,ns,other"}, False, id="an expired one"),
        pytest.param({LOCK: "2026-01-01T11:59:00Z"}, True, id="one without an owner"),
        pytest.param({LOCK: "x"}, True, id="one that cannot be read"),
        pytest.param({LOCK: "x", "hami.io/node-identity": "ACME=simulated"}, False, id="one that nobody needs"),
        pytest.param({OWN: "2026-01-01T11:59:00Z"}, False, id="another vendor's"),
    ],
)  # fmt: skip
def test_a_lock(annotations, busy):
    book = Book()
    book.sees(**annotations)
    assert book.for_pod() == ({"n1"} if busy else set())


@pytest.mark.parametrize(("at", "busy"), [("11:58:30", True), ("11:57:59", False)])
def test_a_vendors_own_lock_ends_after_two_minutes(at, busy):
    book = Book()
    book.sees(**{OWN: f"2026-01-01T{at}Z"})
    assert bool(book.for_pod(vendors=[VendorKey("BOLT")])) is busy


def test_a_promise_is_worth_a_lock_but_for_the_pod_itself():
    book = Book()
    book.sees()
    assert book.for_pod(promises=[(PodUid("other"), promised())]) == {"n1"}
    assert book.for_pod(promises=[(PodUid("other"), promised("BOLT"))]) == set()
    assert book.for_pod(promises=[(POD.uid, promised())]) == set()


SIBLINGS = [POD.uid, PodUid("sibling")]


@pytest.mark.parametrize(
    ("lock", "busy"),
    [
        pytest.param("2026-01-01T11:59:00Z,ns,sibling", False, id="a sibling's"),
        pytest.param("2026-01-01T11:59:00Z,ns,p", False, id="its own"),
        pytest.param("2026-01-01T11:59:00Z,ns,other", True, id="another pod's"),
        pytest.param("2026-01-01T11:59:00Z,elsewhere,sibling", True, id="one of another namespace"),
        pytest.param("2026-01-01T11:59:00Z,ns,nobody", True, id="one of a pod without devices there"),
        pytest.param("2026-01-01T11:59:00Z", True, id="one without an owner"),
        pytest.param("x", True, id="one that cannot be read"),
    ],
)  # fmt: skip
def test_a_siblings_lock_is_no_others(lock, busy):
    book = Book()
    book.there = {"n1: ns/sibling": PodUid("sibling"), "n1: ns/other": PodUid("other")}
    book.there["n1: elsewhere/sibling"] = PodUid("namesake")
    book.sees(**{LOCK: lock})
    assert book.for_pod(siblings=SIBLINGS) == ({"n1"} if busy else set())


@pytest.mark.parametrize(("owner", "busy"), [("sibling", False), ("p", False), ("other", True)])
def test_nor_is_what_a_sibling_was_promised_or_took(owner, busy):
    uid = POD.uid if owner == "p" else PodUid(owner)
    book = Book()
    book.sees("5")
    assert bool(book.for_pod(promises=[(uid, promised())], siblings=SIBLINGS)) is busy
    book.taken("n1", LOCK, uid, "7")
    assert bool(book.for_pod(siblings=SIBLINGS)) is busy


def test_what_was_taken_counts_until_the_informer_shows_it():
    book = Book()
    book.sees("5")
    book.taken("n1", LOCK, PodUid("other"), "7")
    assert book.for_pod() == {"n1"}
    book.sees("6")  # It was on its way already.
    assert book.for_pod() == {"n1"}
    assert book.for_pod(a_pod("other", uid="other")) == set()
    book.sees("8")  # Taken, and released again.
    assert book.for_pod() == set()


def test_a_node_whose_agent_needs_none_any_more_is_free():
    book = Book()
    book.sees("5")
    book.taken("n1", LOCK, PodUid("other"), "7")
    both = "ACME=simulated,BOLT=simulated"
    book.sees("6", **{"hami.io/node-identity": both})
    assert book.for_pod() == set()
    book.sees("8")
    assert book.for_pod() == set()


def test_it_says_when_a_lock_is_gone():
    book = Book()
    held = {LOCK: "2026-01-01T11:59:00Z,ns,other"}
    assert book.sees(**held) is False
    assert book.sees(**held) is False
    assert book.sees() is True
    assert book.sees() is False


def test_a_lock_is_overdue_when_it_stood_unchanged():
    book = Book()
    book.sees(**{LOCK: "2026-01-01T11:59:00Z,ns,other"})
    book.clock.now += 3
    assert list(book.overdue(3)) == [("n1", "2026-01-01T11:59:00Z,ns,other")]
    book.sees(**{LOCK: "2026-01-01T11:59:01Z,ns,next"})
    assert list(book.overdue(3)) == []
