"""Signatures are judged some turns after their pods are seen: what may happen in between."""

from __future__ import annotations

import msgspec
import pytest

from hami.domain.kubernetes.objects import Pod
from hami.domain.units import VendorKey
from hami.policy.pods.accounting import account_of
from hami.scheduler.bookings.charges import Unjudged
from hami.signing import Signer, Verdict, new_private_pem
from hami.wire import keys

from ..builders import Cluster, a_node, a_pod, a_quota, acme, bound, granted

PEM, OTHER_PEM = new_private_pem(), new_private_pem()
SIGNER = Signer.from_pem(PEM)
OTHER_KEYS = Signer.from_pem(OTHER_PEM)
BOTH_KEYS = Signer.from_pem(OTHER_PEM + PEM)
LABEL = {"team": "x"}


def signed(pod: Pod, slot: str, generation: int = 1, by: Signer = SIGNER) -> Pod:
    seen = granted(pod, "n1", slot)
    account = account_of(seen, acme())
    assert account is not None
    text = by.sign(pod.uid, account.allocation, generation)
    return bound(seen, "n1", {keys.ALLOCATION_SIGNATURE: text})


def forged(pod: Pod, slot: str) -> Pod:
    return bound(granted(pod, "n1", slot), "n1", {keys.ALLOCATION_SIGNATURE: "x"})


def stripped(pod: Pod) -> Pod:
    """Without its signature."""
    left = {k: v for k, v in pod.annotations.items() if k != keys.ALLOCATION_SIGNATURE}
    metadata = msgspec.structs.replace(pod.metadata, annotations=left)
    return msgspec.structs.replace(pod, metadata=metadata)


def a_running_pod(name: str = "p", mem: int = 3000) -> Pod:
    return a_pod(name, mem=mem, phase="Running")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(a_node(devices=2), signer=SIGNER)


def verified(cluster: Cluster) -> list[tuple[Unjudged, Verdict]]:
    """What a thread finds, before the loop is told."""
    return [
        (about, cluster.signer.verify(about.uid, about.account.allocation, about.text))
        for about in cluster.state.bound.unjudged.values()
    ]


def told(cluster: Cluster, verdicts: list[tuple[Unjudged, Verdict]]) -> None:
    for about, verdict in verdicts:
        cluster.state.bound.judged(about, verdict)


def used(cluster: Cluster) -> list[int]:
    states = cluster.state.table.device_states("n1", VendorKey("ACME"))
    return [state.usage.memory_mib for state in states]


def doubts(cluster: Cluster) -> list[int]:
    """What may be in use beyond what is used, of each device."""
    states = cluster.state.table.devices("n1").states[VendorKey("ACME")]
    return [s.usage.memory_mib - u for s, u in zip(states, used(cluster), strict=True)]


class TestAnEditInBetween:
    def test_a_forged_signature_is_doubted_though_its_pod_was_edited(self, cluster: Cluster):
        pod = forged(a_running_pod(), "n1-d0:10")
        cluster.state.pod_changed(pod)
        cluster.sees(bound(pod, "n1", LABEL))
        assert (used(cluster), doubts(cluster)) == ([10, 0], [3000, 3000])

    def test_a_forged_signature_that_replaces_another_is_doubted(self, cluster: Cluster):
        cluster.state.pod_changed(forged(a_running_pod(), "n1-d0:8000"))
        cluster.sees(bound(forged(a_running_pod(), "n1-d1:8000"), "n1", LABEL))
        assert (used(cluster), doubts(cluster)) == ([3000, 0], [3000, 3000])

    def test_a_removed_signature_leaves_nothing_to_judge(self, cluster: Cluster):
        pod = forged(a_running_pod(), "n1-d0:3000")
        cluster.state.pod_changed(pod)
        cluster.state.pod_changed(stripped(pod))
        assert not cluster.state.bound.unjudged
        assert [p.reason for p in cluster.problems] == ["UnsignedAllocation"]

    def test_a_removed_signature_leaves_no_more_than_was_asked_for(self, cluster: Cluster):
        """Else whoever is quick keeps a device that no signature gave."""
        cluster.state.pod_changed(forged(a_running_pod(), "n1-d0:8000"))
        cluster.sees(stripped(granted(a_running_pod(), "n1", "n1-d1:8000")))
        assert used(cluster) == [3000, 0]

    def test_a_good_signature_put_back_needs_no_judgement_of_the_other(self, cluster: Cluster):
        good = signed(a_running_pod(), "n1-d0:3000")
        cluster.sees(good)
        cluster.state.pod_changed(bound(good, "n1", {keys.ALLOCATION_SIGNATURE: "x"}))
        late = verified(cluster)
        cluster.state.pod_changed(good)
        told(cluster, late)
        assert not cluster.state.bound.unjudged
        assert (used(cluster), doubts(cluster), cluster.problems) == ([3000, 0], [0, 0], [])

    def test_a_good_signature_is_taken_whenever_it_comes(self, cluster: Cluster):
        cluster.state.pod_changed(forged(a_running_pod(), "n1-d1:8000"))
        cluster.sees(signed(a_running_pod(), "n1-d0:3000"))
        assert (used(cluster), doubts(cluster)) == ([3000, 0], [0, 0])

    def test_an_edit_after_a_verdict_is_only_noted(self, cluster: Cluster):
        good = signed(a_running_pod(), "n1-d0:3000")
        cluster.sees(good)
        cluster.state.pod_changed(bound(good, "n1", {keys.ALLOCATION_SIGNATURE: "x"}))
        cluster.sees(bound(good, "n1", {keys.ALLOCATION_SIGNATURE: "y"}))
        assert (used(cluster), doubts(cluster)) == ([3000, 0], [0, 0])

    def test_what_was_verified_counts_again_after_a_bad_verdict(self, cluster: Cluster):
        """Else an author fills a node, or its namespace's quota, by what he writes on his pod."""
        cluster.state.quota_changed(a_quota(mem="9000"))
        good = signed(a_running_pod(), "n1-d0:3000")
        cluster.sees(good)
        for slot in ("n1-d0:8000", "n1-d1:8000", "n1-d1:3000"):
            cluster.state.pod_changed(granted(good, "n1", slot))
            assert sum(used(cluster)) > 3000, "until somebody has looked"
            cluster.room_in.clear()
            told(cluster, verified(cluster))
            assert (used(cluster), doubts(cluster)) == ([3000, 0], [0, 0])
            assert cluster.room_in == ["default"]
        assert cluster.state.ledger.used("default", "q") == {"acme.com/mem": 3000}
        cluster.sees(good)
        assert cluster.state.charges[good.uid].account.problems == ()

    def test_what_nobody_signed_is_judged_after_each_edit(self, cluster: Cluster):
        good = signed(a_running_pod(), "n1-d0:3000")
        cluster.sees(good)
        more = granted(good, "n1", "n1-d0:8000")
        cluster.sees(more)
        cluster.state.pod_changed(bound(more, "n1", LABEL))
        assert cluster.state.bound.unjudged

    def test_a_verdict_on_a_pod_that_is_gone_is_nothing(self, cluster: Cluster):
        pod = forged(a_running_pod(), "n1-d0:3000")
        cluster.state.pod_changed(pod)
        late = verified(cluster)
        cluster.state.pod_gone(pod)
        told(cluster, late)
        assert (used(cluster), doubts(cluster)) == ([0, 0], [0, 0])
        assert not cluster.state.charges


class TestAnEditAfterwards:
    def test_a_forgers_other_annotations_lift_no_doubt(self, cluster: Cluster):
        """Nor do they make more of it than what it asks for."""
        pod = forged(a_running_pod(), "n1-d0:8000")
        cluster.sees(pod)
        assert (used(cluster), doubts(cluster)) == ([3000, 0], [3000, 3000])
        cluster.sees(bound(pod, "n1", LABEL))
        assert (used(cluster), doubts(cluster)) == ([3000, 0], [3000, 3000])

    def test_a_forged_signature_that_comes_later_is_doubted_as_well(self, cluster: Cluster):
        cluster.sees(granted(a_running_pod(), "n1", "n1-d0:3000"))
        cluster.sees(forged(a_running_pod(), "n1-d1:8000"))
        assert (used(cluster), doubts(cluster)) == ([3000, 0], [3000, 3000])

    def test_many_edits_leave_as_much_to_remember_as_one(self, cluster: Cluster):
        cluster.sees(signed(a_running_pod("ours", 7000), "n1-d0:7000"))
        sizes = set()
        for number in range(3):
            pod = forged(a_running_pod(), "n1-d0:3000")
            cluster.sees(bound(pod, "n1", {"edit": str(number)}))
            sizes.add(len(cluster.state.charges[pod.uid].account.unknown))
        assert len(sizes) == 1


class TestOtherKeys:
    def test_a_verdict_by_former_keys_is_not_taken(self, cluster: Cluster):
        cluster.signer = OTHER_KEYS
        cluster.state.pod_changed(signed(a_running_pod(), "n1-d0:3000"))
        late = verified(cluster)
        cluster.signer = BOTH_KEYS
        cluster.state.bound.judge_anew()
        told(cluster, late)
        assert cluster.problems == []
        told(cluster, verified(cluster))
        assert (used(cluster), doubts(cluster), cluster.problems) == ([3000, 0], [0, 0], [])
        (charge,) = cluster.state.charges.values()
        assert charge.generation == 1

    def test_a_forged_signature_is_as_bad_by_other_keys(self, cluster: Cluster):
        cluster.state.pod_changed(forged(a_running_pod(), "n1-d0:10"))
        cluster.state.bound.judge_anew()
        told(cluster, verified(cluster))
        assert doubts(cluster) == [3000, 3000]


class TestAStrangerSetAside:
    """Two pods of one device, which has no room for both."""

    def test_what_a_forger_gives_back_of_its_quota_is_told(self, cluster: Cluster):
        cluster.state.quota_changed(a_quota(namespace="theirs", mem="4000"))
        cluster.sees(signed(a_running_pod("ours", 5000), "n1-d0:5000"))
        pod = a_pod("forged", mem=4000, phase="Running", namespace="theirs")
        cluster.state.pod_changed(forged(pod, "n1-d0:4000"))
        late, changes = verified(cluster), cluster.state.bookings.change
        cluster.room_in.clear()
        told(cluster, late)
        assert used(cluster) == [5000, 0]
        assert cluster.state.ledger.used("theirs", "q") == {"acme.com/mem": 0}
        assert cluster.room_in == ["theirs"]
        assert cluster.state.bookings.change > changes

    def test_what_others_leave_of_their_quota_is_told(self, cluster: Cluster):
        cluster.state.quota_changed(a_quota(namespace="theirs", mem="4000"))
        pod = a_pod("strange", mem=4000, phase="Running", namespace="theirs")
        cluster.sees(granted(pod, "n1", "n1-d0:4000"))
        cluster.room_in.clear()
        cluster.sees(signed(a_running_pod("ours", 5000), "n1-d0:5000"))
        assert cluster.state.ledger.used("theirs", "q") == {"acme.com/mem": 0}
        assert cluster.room_in == ["theirs"]

    def test_what_a_smaller_device_leaves_of_a_quota_is_told(self, cluster: Cluster):
        cluster.state.quota_changed(a_quota(namespace="theirs", mem="4000"))
        pod = a_pod("strange", mem=4000, phase="Running", namespace="theirs")
        cluster.sees(granted(pod, "n1", "n1-d0:4000"))
        cluster.room_in.clear()
        cluster.state.node_changed(a_node(devices=2, memory=3000))
        assert cluster.state.ledger.used("theirs", "q") == {"acme.com/mem": 0}
        assert cluster.room_in == ["theirs"]


class TestARemovedSignature:
    def test_a_verified_pod_is_no_stranger_without_it(self, cluster: Cluster):
        """Else it leaves its quota by naming a device that is full."""
        cluster.state.quota_changed(a_quota(mem="4000"))
        cluster.sees(signed(a_pod("full", mem=8000, namespace="x"), "n1-d1:8000"))
        cluster.sees(signed(a_running_pod(), "n1-d0:3000"))
        cluster.sees(stripped(granted(a_running_pod(), "n1", "n1-d1:3000")))
        assert used(cluster) == [3000, 11000]
        assert cluster.state.ledger.used("default", "q") == {"acme.com/mem": 6000}

    def test_a_verified_pod_without_it_counts_once_more_and_not_for_each_edit(
        self, cluster: Cluster
    ):
        cluster.sees(signed(a_running_pod(), "n1-d0:3000"))
        cluster.sees(stripped(granted(a_running_pod(), "n1", "n1-d1:3000")))
        cluster.sees(stripped(granted(a_running_pod(), "n1", "n1-d0:2000")))
        assert used(cluster) == [3000, 0]

    def test_an_allocation_without_one_grows_by_no_edit(self, cluster: Cluster):
        cluster.sees(granted(a_running_pod(), "n1", "n1-d0:3000"))
        cluster.sees(granted(a_running_pod(), "n1", "n1-d1:3000"))
        assert used(cluster) == [3000, 0]
