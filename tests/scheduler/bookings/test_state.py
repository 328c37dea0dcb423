"""What is charged and promised, event by event."""

from __future__ import annotations

import random

import msgspec
import pytest

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import ContainerStatus, Pod, PodStatus, Resources
from hami.domain.units import VendorKey
from hami.policy.filter.decision import Refused
from hami.policy.pods.accounting import account_of
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.cluster.endings import expire
from hami.signing import Signer
from hami.wire import keys

from ..builders import Cluster, a_node, a_pod, a_quota, bound, ended, granted


def test_a_reservation_takes_the_device_until_the_bound_pod_takes_it_over() -> None:
    cluster = Cluster(a_node())
    pod = a_pod(mem=3000)
    cluster.sees(pod)
    assert isinstance(cluster.reserve(pod), PodAllocation)
    assert cluster.used() == (1, 3000)
    cluster.sees(granted(pod, "n1", "n1-d0:3000"))
    assert cluster.used() == (1, 3000)
    assert cluster.state.reservations == {}
    cluster.state.pod_gone(pod)
    assert cluster.used() == (0, 0)


def test_filtering_again_replaces_the_reservation() -> None:
    cluster = Cluster(a_node(), a_node("n2"))
    pod = a_pod(mem=8000)
    cluster.sees(pod)
    cluster.reserve(pod, "n1")
    cluster.reserve(pod, "n2")
    assert cluster.used("n1") == (0, 0)
    assert cluster.used("n2") == (1, 8000)


def test_what_was_promised_is_told_free_also_where_the_next_decision_fails(monkeypatch) -> None:
    def fails(*_, **__):
        raise RuntimeError("a defect")

    cluster = Cluster(a_node())
    pod = a_pod(mem=3000)
    cluster.sees(pod)
    cluster.reserve(pod)
    cluster.state.pending.freed.clear()
    monkeypatch.setattr("hami.scheduler.bookings.bookings.decide", fails)
    with pytest.raises(RuntimeError):
        cluster.reserve(pod)
    assert cluster.used() == (0, 0)
    assert cluster.state.pending.freed.is_set()


def test_filtering_again_frees_the_device_that_was_promised_before() -> None:
    cluster = Cluster(a_node(devices=2))
    cluster.sees(granted(a_pod("other", mem=1000), "n1", "n1-d0:1000"))
    pod = a_pod(mem=3000)
    cluster.sees(pod)
    devices = set()
    for policy in ("spread", "binpack"):
        cluster.state.pending.freed.clear()
        annotations = {**pod.annotations, keys.DEVICE_POLICY: policy}
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
        cluster.sees(edited := msgspec.structs.replace(pod, metadata=metadata))
        devices |= {grant.device_id for grant in cluster.reserve(edited).grants}
    assert devices == {"n1-d0", "n1-d1"}
    assert cluster.state.pending.freed.is_set()


def test_a_bound_pod_is_charged_what_it_says_not_what_was_written_onto_it() -> None:
    """Its annotations may be edited before the informer shows it for the first time."""
    for slot, used in (("n1-d0:3000", 3000), ("n1-d0:4000", 4000)):
        cluster = Cluster(a_node())
        pod = a_pod(mem=3000)
        cluster.sees(pod)
        cluster.reserve(pod)
        written = granted(pod, "n1", "n1-d0:3000")
        account = account_of(written, cluster.state.vendors)
        assert account is not None
        cluster.state.reservations[pod.uid].written = written, account
        cluster.sees(granted(pod, "n1", slot))
        assert cluster.used() == (1, used)


def test_a_heartbeat_changes_nothing_of_a_node() -> None:
    cluster = Cluster(a_node())
    before = cluster.state.table.inventory("n1")
    cluster.state.node_changed(a_node(**{"example.com/heartbeat": "later"}))
    assert cluster.state.table.inventory("n1") is before
    cluster.state.node_changed(a_node(memory=9000))
    ((device, _),) = cluster.state.table.inventory("n1")
    assert device.memory_mib == 9000


def test_filtering_again_in_vain_gives_the_reservation_up() -> None:
    cluster = Cluster(a_node(), a_node("n2", memory=1000))
    pod = a_pod(mem=8000)
    cluster.sees(pod)
    cluster.reserve(pod, "n1")
    assert isinstance(cluster.reserve(pod, "n2"), Refused)
    assert cluster.used("n1") == (0, 0)


@pytest.mark.parametrize("end", ["gone", "Succeeded", "Failed"])
@pytest.mark.parametrize("bound_before", [True, False])
def test_a_pod_that_ends_frees_what_it_held(end: str, bound_before: bool) -> None:
    cluster = Cluster(a_node())
    cluster.state.quota_changed(a_quota(mem="5000"))
    pod = a_pod(mem=3000)
    cluster.sees(pod)
    cluster.reserve(pod)
    if bound_before:
        pod = granted(pod, "n1", "n1-d0:3000")
        cluster.sees(pod)
    if end == "gone":
        cluster.state.pod_gone(pod)
    else:
        cluster.sees(ended(pod, end))
    assert cluster.used() == (0, 0)
    assert cluster.state.ledger.used("default", "q") == {"acme.com/mem": 0}
    assert not cluster.state.charges
    assert not cluster.state.reservations


def test_a_terminating_pod_stays_charged_also_when_it_is_seen_first_that_way() -> None:
    cluster = Cluster(a_node())
    cluster.sees(granted(a_pod(phase="Running"), "n1", "n1-d0:3000"))
    assert cluster.used() == (1, 3000)


def test_a_reservation_expires_only_while_it_is_reserved() -> None:
    cluster = Cluster(a_node())
    first, second = a_pod("first"), a_pod("second")
    cluster.sees(first, second)
    cluster.reserve(first)
    cluster.reserve(second)
    cluster.state.reservations[second.uid].phase = Phase.BINDING
    cluster.clock.now += 301
    assert [r.pod.name for r in expire(cluster.state, 300)] == ["first"]
    assert cluster.used() == (1, 1000)


def test_the_charge_shrinks_when_the_init_containers_have_ended() -> None:
    cluster = Cluster(a_node())
    pod = granted(a_pod(mem=1000, init_mem=5000), "n1", "n1-d0:5000", "n1-d0:1000")
    cluster.sees(pod)
    assert cluster.used() == (1, 5000)
    cluster.sees(
        granted(a_pod(mem=1000, init_mem=5000, init_ended=True), "n1", "n1-d0:5000", "n1-d0:1000")
    )
    assert cluster.used() == (1, 1000)


def test_hami_bug_a_slot_left_out_does_not_free_what_an_app_has_when_init_has_ended() -> None:
    """HAMi 2.10 writes no slot for an init container without devices: what is there is main's."""
    cluster = Cluster(a_node())
    pod = a_pod(mem=6000, init_mem=1, init_ended=True)
    (init,) = pod.spec.init_containers
    inits = [msgspec.structs.replace(init, resources=None)]
    idle = msgspec.structs.replace(pod.spec, init_containers=inits)
    cluster.sees(granted(msgspec.structs.replace(pod, spec=idle), "n1", "n1-d0:6000"))
    assert cluster.used() == (1, 6000)
    assert cluster.known()
    assert isinstance(cluster.reserve(a_pod("next", mem=3000)), Refused)


def asking(pod: Pod, limits: dict[str, str]) -> Pod:
    (container,) = pod.spec.containers
    container = msgspec.structs.replace(container, resources=Resources(limits=limits))
    spec = msgspec.structs.replace(pod.spec, containers=[container])
    return msgspec.structs.replace(pod, spec=spec)


def seen_by_kubelet(pod: Pod, container_id: str) -> Pod:
    """Pending, with kubelet's word on its container."""
    status = ContainerStatus(name="main", container_id=container_id)
    shown = PodStatus(phase="Pending", start_time="2026-01-01T00:00:00Z", container_statuses=[status])  # fmt: skip
    return msgspec.structs.replace(pod, status=shown)


class TestEdits:
    """A later edit never lowers a charge, unless it is signed and newer."""

    def test_a_removed_annotation_lowers_nothing(self) -> None:
        cluster = Cluster(a_node())
        pod = a_pod(mem=3000)
        cluster.sees(granted(pod, "n1", "n1-d0:3000"))
        cluster.sees(bound(pod, "n1", {}))
        assert cluster.used() == (1, 3000)
        assert [p.reason for p in cluster.problems] == ["UnknownUsage", "UnknownUsage"]

    def test_nobody_blocks_a_node_by_editing_a_pod_that_was_seen_intact(self) -> None:
        cluster = Cluster(a_node())
        pod = a_pod(mem=3000)
        cluster.sees(granted(pod, "n1", "n1-d0:3000"))
        cluster.sees(bound(pod, "n1", {"acme.com/allocated": "nonsense"}))
        assert cluster.known()

    def test_a_pod_first_seen_without_its_allocation_blocks_what_it_may_use(self) -> None:
        cluster = Cluster(a_node())
        cluster.sees(bound(a_pod(mem=3000, phase="Running"), "n1", {}))
        assert not cluster.known()
        assert (cluster.used(), cluster.at_worst()) == ((0, 0), (1, 3000))

    def test_a_pod_without_an_allocation_holds_nothing_until_kubelet_starts_it(self) -> None:
        """One with spec.nodeName, say: whoever may create pods would shut every node."""
        cluster = Cluster(a_node())
        pod = bound(a_pod(mem=None), "n1", {})
        whole = {"acme.com/gpu": "1"}
        cluster.sees(pod := asking(pod, whole))
        assert (cluster.known(), cluster.at_worst()) == (True, (0, 0))
        (told,) = [p for p in cluster.problems if "has started" in p.text]
        assert told.about is pod
        assert "delete it" in told.text
        assert "spec.nodeName" in told.text
        cluster.sees(seen_by_kubelet(pod, ""))
        assert cluster.known()
        cluster.sees(seen_by_kubelet(pod, "containerd://1"))
        assert not cluster.known()
        assert cluster.at_worst() == (1, 8000)
        cluster.state.pod_gone(pod)
        assert (cluster.known(), cluster.at_worst()) == (True, (0, 0))

    def test_an_allocation_that_comes_later_is_charged(self) -> None:
        cluster = Cluster(a_node())
        pod = a_pod(mem=3000)
        cluster.sees(bound(pod, "n1", {}))
        cluster.sees(granted(pod, "n1", "n1-d0:3000"))
        assert (cluster.known(), cluster.used()) == (True, (1, 3000))

    def test_a_smaller_grant_lowers_nothing(self) -> None:
        cluster = Cluster(a_node())
        pod = a_pod(mem=3000)
        cluster.sees(granted(pod, "n1", "n1-d0:3000"))
        cluster.sees(granted(pod, "n1", "n1-d0:1"))
        assert cluster.used() == (1, 3000)

    def test_another_device_is_charged_as_well(self) -> None:
        cluster = Cluster(a_node(devices=2))
        pod = a_pod(mem=3000)
        cluster.sees(granted(pod, "n1", "n1-d0:3000"))
        cluster.sees(granted(pod, "n1", "n1-d1:2000"))
        assert cluster.used(index=0) == (1, 3000)
        assert cluster.used(index=1) == (1, 2000)

    def test_a_pod_without_devices_in_its_spec_is_never_charged(self) -> None:
        cluster = Cluster(a_node())
        cluster.sees(granted(a_pod(mem=None), "n1", "n1-d0:3000"))
        assert cluster.used() == (0, 0)
        assert cluster.known()


class TestSignatures:
    def signed(self, signer: Signer, cluster: Cluster, pod, mem: int, generation: int):
        from hami.policy.pods.accounting import account_of

        seen = granted(pod, "n1", f"n1-d0:{mem}")
        account = account_of(seen, cluster.state.vendors)
        text = signer.sign(pod.uid, account.allocation, generation)
        return bound(seen, "n1", {keys.ALLOCATION_SIGNATURE: text})

    def test_a_newer_signed_allocation_replaces_the_charge(self, signer: Signer) -> None:
        cluster, pod = Cluster(a_node(), signer=signer), a_pod(mem=3000)
        cluster.sees(self.signed(signer, cluster, pod, 3000, 1))
        cluster.sees(self.signed(signer, cluster, pod, 2000, 2))
        assert cluster.used() == (1, 2000)
        assert not cluster.problems

    def test_an_older_signed_allocation_lowers_nothing(self, signer: Signer) -> None:
        cluster, pod = Cluster(a_node(), signer=signer), a_pod(mem=3000)
        cluster.sees(self.signed(signer, cluster, pod, 3000, 2))
        cluster.sees(self.signed(signer, cluster, pod, 2000, 1))
        assert cluster.used() == (1, 3000)

    def test_a_wrong_signature_keeps_free_what_is_asked_for_and_says_so(
        self, signer: Signer
    ) -> None:
        """What was written may be less than it uses, or name other devices."""
        cluster, pod = Cluster(a_node(), signer=signer), a_pod(mem=3000, phase="Running")
        good = self.signed(signer, cluster, pod, 3000, 1)
        cluster.sees(bound(good, "n1", {"acme.com/allocated": "n1-d0,ACME,10,0:;"}))
        assert (cluster.used(), cluster.at_worst()) == ((1, 10), (2, 3010))
        assert not cluster.known()
        assert [p.reason for p in cluster.problems] == ["UnknownUsage"]

    def test_an_edited_signature_changes_nothing_for_others(self, signer: Signer) -> None:
        cluster, pod = Cluster(a_node(), signer=signer), a_pod(mem=3000)
        good = self.signed(signer, cluster, pod, 3000, 1)
        cluster.sees(good)
        cluster.sees(bound(good, "n1", {keys.ALLOCATION_SIGNATURE: "x"}))
        assert cluster.used() == (1, 3000)
        assert cluster.known()
        assert [p.reason for p in cluster.problems] == ["UnknownUsage"]

    def test_an_allocation_of_hami_is_charged_without_a_signature(self, signer: Signer) -> None:
        cluster = Cluster(a_node(), signer=signer)
        cluster.sees(granted(a_pod(mem=3000), "n1", "n1-d0:3000"))
        assert cluster.used() == (1, 3000)
        assert cluster.known()
        (told,) = cluster.problems
        assert told.reason == "UnsignedAllocation"
        assert "Pod default/p on n1: this scheduler did not make its allocation" in told.text
        assert "delete it" in told.text

    @pytest.mark.parametrize(
        ("slots", "counted"),
        [
            pytest.param("n1-d0,ACME,8000,90:;", [3000, 0], id="a whole device"),
            pytest.param("n1-d0,ACME,121920,90:;", [3000, 0], id="more than a device"),
            pytest.param("n1-d0,ACME,10,0:;", [10, 0], id="less than it asks for"),
            pytest.param("n1-d0,ACME,3000,0:n1-d1,ACME,3000,0:;", [3000, 0], id="two devices"),
        ],
    )
    def test_what_nobody_signed_counts_at_most_as_much_as_it_asks_for(
        self, signer: Signer, slots: str, counted: list[int]
    ) -> None:
        cluster = Cluster(a_node(devices=2), signer=signer)
        cluster.sees(bound(a_pod(mem=3000), "n1", {"acme.com/allocated": slots}))
        states = cluster.state.table.device_states("n1", VendorKey("ACME"))
        assert [state.usage.memory_mib for state in states] == counted
        assert {state.usage.cores for state in states} == {0}

    @pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 1, 0]])
    def test_what_nobody_signed_never_makes_more_of_a_device_than_it_has(
        self, signer: Signer, order: list[int]
    ) -> None:
        """Whatever comes first: the node, the strange pod, or ours."""
        cluster = Cluster(signer=signer)
        ours = self.signed(signer, cluster, a_pod("ours", mem=5000), 5000, 1)
        strange = granted(a_pod("strange", mem=4000), "n1", "n1-d0:4000")
        steps = [
            lambda: cluster.state.node_changed(a_node()),
            lambda: cluster.sees(strange),
            lambda: cluster.sees(ours),
        ]
        for step in order:
            steps[step]()
        assert cluster.used() == (1, 5000)
        assert not cluster.known()
        assert cluster.at_worst() == (2, 9000)
        texts = [p.text for p in cluster.problems if p.reason == "OverAllocated"]
        assert [t for t in texts if "default/strange" in t and "9000 of 8000 MiB" in t]
        cluster.state.pod_gone(strange)
        assert (cluster.known(), cluster.at_worst()) == (True, (1, 5000))


def test_without_keys_a_device_with_more_in_use_than_it_has_is_told() -> None:
    cluster = Cluster(a_node())
    cluster.sees(granted(a_pod("ours", mem=5000), "n1", "n1-d0:5000"))
    assert cluster.problems == []
    cluster.sees(granted(a_pod("another", mem=4000), "n1", "n1-d0:4000"))
    assert cluster.used() == (2, 9000)
    (told,) = cluster.problems
    assert (told.reason, told.about.name) == ("OverAllocated", "another")
    assert "device n1-d0 9000 of 8000 MiB" in told.text
    assert "delete it" in told.text


@pytest.fixture(scope="session")
def signer() -> Signer:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Signer.from_pem(pem)


def test_quota_holds_between_filter_and_bind() -> None:
    cluster = Cluster(a_node())
    cluster.state.quota_changed(a_quota(mem="2000"))
    pods = [a_pod(f"p{i}", mem=1000) for i in range(5)]
    cluster.sees(*pods)
    placed = [isinstance(cluster.reserve(pod), PodAllocation) for pod in pods]
    assert placed == [True, True, False, False, False]
    assert cluster.state.ledger.used("default", "q") == {"acme.com/mem": 2000}


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_events_leaves_what_the_pods_say(seed: int) -> None:
    """Creations, filters, binds, losses, ends and deletions at random, against a plain recount."""
    dice = random.Random(seed)
    cluster = Cluster(*(a_node(f"n{i}", devices=2) for i in range(3)))
    pods: dict[str, object] = {}
    for step in range(200):
        act = dice.choice(["create", "filter", "bind", "lost", "end", "delete", "node"])
        waiting = [p for p in pods.values() if not p.spec.node_name]
        running = [p for p in pods.values() if p.spec.node_name]
        if act == "create":
            pod = a_pod(f"p{step}", mem=dice.choice([500, 3000, 8000]), gpu=dice.choice([1, 2]))
            pods[pod.uid] = pod
            cluster.sees(pod)
        elif act == "filter" and waiting:
            cluster.reserve(dice.choice(waiting))
        elif act == "bind" and (held := list(cluster.state.reservations.values())):
            promise = dice.choice(held)
            slots = [
                "".join(f"{g.device_id},ACME,{g.memory_mib},{g.cores}:" for g in c.grants) + ";"
                for c in promise.allocation.containers
            ]
            pod = bound(
                promise.pod, promise.allocation.node, {"acme.com/allocated": "".join(slots)}
            )
            pods[pod.uid] = pod
            cluster.sees(pod)
        elif act == "lost" and (held := list(cluster.state.reservations)):
            cluster.state.bookings.release(dice.choice(held))
        elif act == "end" and running:
            pod = pods.pop(dice.choice(running).uid)
            cluster.sees(ended(pod))
        elif act == "delete" and pods:
            pod = pods.pop(dice.choice(list(pods)))
            cluster.state.pod_gone(pod)
        elif act == "node":
            name = f"n{dice.randrange(3)}"
            if dice.random() < 0.5:
                cluster.state.node_gone(a_node(name))
            cluster.state.node_changed(a_node(name, devices=2, turn=str(step)))
    expected: dict[str, list[int]] = {}
    for pod in pods.values():
        if pod.spec.node_name:
            for entry in pod.annotations["acme.com/allocated"].replace(";", "").split(":"):
                if entry:
                    device, _, memory, _ = entry.split(",")
                    used = expected.setdefault(device, [0, 0])
                    used[0] += 1
                    used[1] += int(memory)
    for promise in cluster.state.reservations.values():
        for grant in promise.allocation.grants:
            used = expected.setdefault(grant.device_id, [0, 0])
            used[0] += 1
            used[1] += grant.memory_mib
    for name in cluster.state.nodes:
        for state in cluster.state.table.device_states(name, VendorKey("ACME")):
            assert [state.usage.slots, state.usage.memory_mib] == expected.get(
                state.device.id, [0, 0]
            )
            assert state.usage.memory_mib <= 8000
