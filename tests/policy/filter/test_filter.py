"""Which node takes a pod, over whole sequences of pods and changes of nodes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.allocations import ContainerKind
from hami.domain.devices import Usage
from hami.domain.errors import Malformed
from hami.domain.reasons import MIG_INFEASIBLE
from hami.domain.requests import Invalid
from hami.hookspecs import hookimpl
from hami.policy.filter.decision import Refused
from hami.policy.pods.pod_request import parse_pod
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.policy.tables.cluster_table import ClusterTable
from hami.policy.usage import ChargeMeter
from hami.vendors.registry import Vendors

from ..builders import (
    ACME_YAML,
    Cluster,
    a_container,
    a_device,
    a_grant,
    a_node,
    a_pod,
    a_policy,
    a_quota,
    an_allocation,
    texts,
    the_vendors,
    where,
)


def the_worked_example(node: str, device: str) -> Cluster:
    """HAMi's example: node1 {device1, device2}, node2 {device3, device4}; 1 and 4 are in use."""
    cluster = Cluster(
        a_node("node1", a_device("device1"), a_device("device2")),
        a_node("node2", a_device("device3"), a_device("device4")),
        node=node,
        device=device,
    )
    cluster.table.charge("a", an_allocation("node1", a_grant("device1", memory=2000, cores=25)))
    cluster.table.charge("b", an_allocation("node2", a_grant("device4", memory=6000, cores=75)))
    return cluster


def test_a_locked_node_takes_nobody_and_a_free_one_is_as_good():
    """The fullest would be the first choice; where it does not fit, the lock is not the reason."""
    cluster = the_worked_example("binpack", "binpack")
    pod = a_pod("p", gpu=1, mem=1000)
    assert where(cluster.try_pod(pod, locked={"node2"}))[0] == "node1"
    assert where(cluster.try_pod(pod, locked={"node1", "unknown"}))[0] == "node2"
    both = cluster.try_pod(pod, locked={"node1", "node2"})
    assert texts(both) == {"node1": "NodeLocked", "node2": "NodeLocked"}
    large = cluster.try_pod(a_pod("p", gpu=1, mem=20000), locked={"node1"})
    assert texts(large) == dict.fromkeys(["node1", "node2"], "2/2 CardInsufficientMemory")


@pytest.mark.parametrize(
    ("node", "device", "expected"),
    [
        ("binpack", "binpack", ("node2", [["device4"]])),
        ("binpack", "spread", ("node2", [["device3"]])),
        ("spread", "binpack", ("node1", [["device1"]])),
        ("spread", "spread", ("node1", [["device2"]])),
    ],
)
def test_the_worked_example(node, device, expected):
    pod = a_pod(gpu=1, mem=1000, cores=20)
    assert where(the_worked_example(node, device).run(pod)) == expected


def test_the_worked_example_with_an_init_container():
    pod = a_pod(
        "p",
        a_container("a", gpu=1, mem=4000, cores=20),
        init=[a_container("i", gpu=1, mem=5000, cores=20)],
    )
    cluster = the_worked_example("binpack", "binpack")
    assert where(cluster.run(pod)) == ("node2", [["device3"], ["device3"]])
    assert cluster.usage("node2")["device3"] == Usage(1, 5000, 20)


def test_a_pods_policy_overrides_the_default():
    cluster = the_worked_example("binpack", "binpack")
    pod = a_pod(gpu=1, mem=1, annotations={"hami.io/node-scheduler-policy": "spread"})
    assert where(cluster.run(pod))[0] == "node1"


@pytest.mark.parametrize("policy", ["binpack", "spread"])
def test_fix_equal_nodes_are_taken_by_name_not_by_chance(policy):
    for names in (["c", "a", "b"], ["b", "c", "a"]):
        cluster = Cluster(*(a_node(n, a_device()) for n in names), node=policy)
        assert where(cluster.run(a_pod(gpu=1, mem=1)))[0] == "a"


def test_the_next_node_is_tried_when_the_best_does_not_fit_exactly():
    """Two apps of one pod: only the exact fit sees that they do not fit one device together."""
    cluster = Cluster(
        a_node("small", a_device("d0")), a_node("large", a_device("d0"), a_device("d1"))
    )
    cluster.table.charge("x", an_allocation("small", a_grant("d0", memory=2000)))
    pod = a_pod("p", a_container("a", gpu=1, mem=5000), a_container("b", gpu=1, mem=5000))
    assert where(cluster.run(pod)) == ("large", [["d1"], ["d0"]])


def test_only_candidates_are_considered():
    cluster = Cluster(a_node("a", a_device()), a_node("b", a_device()))
    assert where(cluster.run(a_pod(gpu=1), ["b"]))[0] == "b"


def test_every_refused_node_has_a_reason():
    cluster = Cluster(
        a_node("a", a_device(memory=1)), a_node("b", a_device(healthy=False)), a_node("c", a_device("x", vendor="BOLT"))
    )  # fmt: skip
    assert texts(cluster.try_pod(a_pod(gpu=1, mem=2))) == {
        "a": "1/1 CardInsufficientMemory",
        "b": "1/1 CardNotHealth",
        "c": "NodeInsufficientDevice",
    }


@pytest.mark.parametrize(
    ("asks", "text"),
    [
        pytest.param({"gpu": 1, "mem": "abc"}, "container c: acme.com/mem: 'abc' is not a quantity", id="no quantity"),
        pytest.param({"gpu": -1}, "container c: acme.com/gpu: '-1' is negative", id="negative"),
        pytest.param({"gpu": 1, "mem": "1.5"}, "container c: acme.com/mem: '1.5' is not a whole number", id="a fraction"),
        pytest.param({"gpu": 1, "mem": "500M"}, "container c: acme.com/mem: '500M' is 500000000 MiB, more than any device has (500M counts MiB; write 500Mi for bytes)", id="a slip of the unit"),
    ],
)  # fmt: skip
def test_fix_a_bad_quantity_is_refused_and_never_means_no_request(asks, text):
    answer = parse_pod(a_pod(**asks), the_vendors(), a_policy())
    assert isinstance(answer, Invalid)
    assert answer.text == text


@pytest.mark.parametrize(
    ("asks", "memory"),
    [
        pytest.param({"gpu": 1, "mem": "16Gi"}, 16384, id="fix: 16Gi are bytes, not an overflow"),
        pytest.param({"gpu": 1, "mem": "3k"}, 3000, id="3k is how the API server spells 3000"),
        pytest.param({"gpu": 1, "mem": "1e3"}, 1000, id="1e3 is 1000 units"),
        pytest.param({"npu": 1, "npumem": "8"}, 2048, id="eight units of 256 MiB"),
        pytest.param({"npu": 1, "npumem": "1Gi"}, 1024, id="bytes are not multiplied by the factor"),
    ],
)  # fmt: skip
def test_memory_is_read_in_the_vendors_unit(asks, memory):
    request = Cluster().parse(a_pod(**asks))
    assert [r.memory_mib for c in request.containers for r in c.requests] == [memory]


def test_a_pod_that_asks_nothing_has_no_request():
    assert Cluster().parse(a_pod()).vendors == ()
    assert Cluster().parse(a_pod(gpu=0)).vendors == ()


# Sequences.

steps = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(["run", "run", "delete", "node"]),
        st.fixed_dictionaries(
            {"gpu": st.integers(1, 2)},
            optional={
                "mem": st.sampled_from([1000, 3000, 8000]),
                "pct": st.sampled_from([25, 100]),
                "cores": st.sampled_from([0, 30, 100]),
            },
        ),
        st.booleans(),
    ),
    max_size=25,
)


@given(
    steps, st.sampled_from(["binpack", "spread"]), st.sampled_from(["binpack", "spread", "numa"])
)
def test_no_sequence_over_allocates_and_release_undoes_reserve(moves, node_policy, device_policy):
    nodes = {
        f"n{i}": a_node(f"n{i}", *(a_device(f"d{j}", slots=2, numa=j % 2) for j in range(2)))
        for i in range(2)
    }
    cluster = Cluster(*nodes.values(), node=node_policy, device=device_policy)
    running: dict[str, object] = {}
    for number, move, ask, with_init in moves:
        name = f"p{number}"
        init = [a_container("i", **ask)] if with_init else []
        pod = a_pod(name, a_container("a", **ask), init=init)
        if move == "run" and name not in running:
            outcome = cluster.run(pod)
            if not isinstance(outcome, Refused):
                running[name] = outcome
        elif move == "delete":
            cluster.delete(pod)
            running.pop(name, None)
        elif move == "node":
            node = nodes[f"n{number % 2}"]
            cluster.table.remove_node(node.name)
            cluster.table.set_node(node)
        for node in nodes:
            recount: Counter[str] = Counter()
            for allocation in running.values():
                if allocation.node == node:
                    for slot in allocation.containers[-1:]:
                        recount.update(g.device_id for g in slot.grants)
            for state in cluster.table.device_states(node, "ACME"):
                device, usage = state.device, state.usage
                assert 0 <= usage.slots <= device.slots
                assert 0 <= usage.memory_mib <= device.memory_mib
                assert 0 <= usage.cores <= device.cores
                assert usage.slots >= recount[device.id]
    for name in running:
        cluster.delete(a_pod(name))
    assert all(u == Usage() for n in nodes for u in cluster.usage(n).values())
    assert not cluster.table.scores().any()


@given(steps, st.randoms(use_true_random=False))
def test_results_do_not_depend_on_the_order_of_nodes_devices_or_plugins(moves, random):
    def build(shuffled: bool) -> Cluster:
        devices = [a_device(f"d{j}", index=j, numa=j % 2) for j in range(3)]
        names = ["n1", "n2", "n3"]
        zeta = ACME_YAML.replace("acme.com", "zeta.io").replace("ACME", "ZETA")
        plugins = [("acme", ProfileVendor(ACME_YAML)), ("zeta", ProfileVendor(zeta))]
        if shuffled:
            for items in (devices, names, plugins):
                random.shuffle(items)
        return Cluster(*(a_node(n, *devices) for n in names), vendors=Vendors.of(dict(plugins)))

    first, second = build(shuffled=False), build(shuffled=True)
    for number, _, ask, _ in moves:
        pod = a_pod(f"p{number}", **ask)
        for cluster in (first, second):
            cluster.delete(pod)
        a, b = first.run(pod), second.run(pod)
        assert (texts(a) == texts(b)) if isinstance(a, Refused) else a == b


# The table's life.


def test_charges_may_come_before_their_node():
    cluster = Cluster()
    cluster.table.charge("u", an_allocation("n1", a_grant("d0", memory=5000)))
    cluster.table.set_node(a_node("n1", a_device("d0")))
    assert cluster.usage("n1") == {"d0": Usage(1, 5000, 0)}


def test_a_charge_replaces_the_pods_former_one_wherever_it_was():
    cluster = Cluster(a_node("n1", a_device()), a_node("n2", a_device()))
    cluster.table.charge("u", an_allocation("n1", a_grant("d0", memory=5000)))
    cluster.table.charge("u", an_allocation("n2", a_grant("d0", memory=10)))
    assert cluster.usage("n1") == {"d0": Usage()}
    assert cluster.usage("n2") == {"d0": Usage(1, 10, 0)}


def test_a_node_that_changes_its_devices_keeps_their_charges():
    cluster = Cluster(a_node("n1", a_device("d0"), a_device("d1")))
    cluster.table.charge("u", an_allocation("n1", a_grant("d1", memory=5000)))
    cluster.table.set_node(a_node("n1", a_device("d1"), a_device("d2"), a_device("d3")))
    assert cluster.usage("n1") == {"d1": Usage(1, 5000, 0), "d2": Usage(), "d3": Usage()}
    assert where(cluster.run(a_pod(gpu=1, mem=8000)))[1] == [["d3"]]


def test_fix_a_cordon_is_read_from_the_live_node():
    cluster = Cluster(a_node("n1", a_device()))
    cluster.table.set_node(a_node("n1", a_device(), annotations={"hami.io/device-cordon": "d0"}))
    assert texts(cluster.try_pod(a_pod(gpu=1))) == {"n1": "1/1 CardCordoned"}


def test_dead_devices_stay_known_and_charged():
    cluster = Cluster()
    cluster.table = ClusterTable(
        cluster.vendors, alive=lambda profile, node: "dead" not in node.annotations
    )
    cluster.table.charge("u", an_allocation("n1", a_grant("d0", memory=5000)))
    cluster.table.set_node(a_node("n1", a_device(), annotations={"dead": ""}))
    assert texts(cluster.try_pod(a_pod(gpu=1))) == {"n1": "1/1 CardNotHealth"}
    assert cluster.usage("n1") == {"d0": Usage(1, 5000, 0)}


def test_unknown_usage_keeps_new_pods_away_until_the_pod_is_gone():
    cluster = Cluster(a_node("n1", a_device("d0"), a_device("d1")))
    cluster.table.charge("u", an_allocation("n1"), unknown=[("ACME", None)])
    assert texts(cluster.try_pod(a_pod(gpu=1))) == {"n1": "2/2 UnknownUsage"}
    cluster.table.charge("u", an_allocation("n1"), unknown=[("ACME", "d1")])
    assert where(cluster.try_pod(a_pod(gpu=1)))[1] == [["d0"]]
    cluster.table.release("u")
    assert where(cluster.try_pod(a_pod(gpu=1)))[1] == [["d1"]]


def test_fix_a_malformed_annotation_of_one_vendor_hides_no_other():
    cluster = Cluster()
    node = a_node("n1", a_device(), annotations={"bolt.io/register": "{"})
    (problem,) = cluster.table.set_node(node)
    assert isinstance(problem, Malformed)
    assert problem.annotation == "bolt.io/register"
    assert where(cluster.run(a_pod(gpu=1)))[0] == "n1"


def test_a_malformed_annotation_keeps_the_devices_that_were_known():
    cluster = Cluster(a_node("n1", a_device()))
    assert cluster.table.set_node(a_node("n1", annotations={"acme.com/register": "{"}))
    assert where(cluster.run(a_pod(gpu=1)))[0] == "n1"


def test_two_devices_of_one_id_are_malformed():
    class Twins(ProfileVendor):
        @hookimpl
        def hami_node_devices(self, profile, node):
            return (a_device("d0"), a_device("d0"))

    cluster = Cluster(vendors=Vendors.of({"acme": Twins(ACME_YAML)}))
    assert "two devices have the same id" in str(cluster.table.set_node(a_node("n1"))[0])


def test_thousands_of_node_changes_do_not_grow_the_table():
    cluster = Cluster()
    for number in range(600):
        devices = [a_device(f"d{j}") for j in range(1 + number % 7)]
        cluster.table.set_node(a_node(f"n{number % 3}", *devices))
    assert where(cluster.run(a_pod(gpu=5, mem=1)))[0] in {"n0", "n1", "n2"}
    scan_rows = cluster.table._tables["ACME"]._size
    assert scan_rows < 2500


# Vendors that score.


class Scoring(ProfileVendor):
    def __init__(self, answer):
        super().__init__(ACME_YAML)
        self.answer = answer

    @hookimpl
    def hami_score(self, placement, before):
        return self.answer(before)


def test_a_vendors_score_decides_between_nodes():
    vendors = Vendors.of({"acme": Scoring(lambda before: float(before[0].device.memory_mib))})
    nodes = [a_node("a", a_device(memory=100)), a_node("b", a_device(memory=300))]
    for policy in ("binpack", "spread"):
        cluster = Cluster(*nodes, vendors=vendors, node=policy)
        assert where(cluster.run(a_pod(gpu=1)))[0] == "b"


@pytest.mark.parametrize("answer", [lambda b: 1 / 0, lambda b: float("nan"), lambda b: "x"])
def test_a_score_that_fails_refuses_the_node(answer):
    failures: list[object] = []
    vendors = Vendors.of({"acme": Scoring(answer)}, on_failure=failures.append)
    cluster = Cluster(a_node("a", a_device()), vendors=vendors)
    assert texts(cluster.try_pod(a_pod(gpu=1))) == {"a": "1/1 VendorError"}
    assert len(failures) == 1


def test_hundreds_of_nodes_have_their_own_numbers():
    cluster = Cluster(*(a_node(f"n{i:03}", a_device()) for i in range(200)))
    cluster.table.charge("u", an_allocation("n150", a_grant("d0", memory=100)))
    assert where(cluster.run(a_pod(gpu=1, mem=1)))[0] == "n150"
    cluster.table.remove_node("n150")
    cluster.table.remove_node("n150")
    cluster.table.set_node(a_node("new", a_device()))
    assert where(cluster.run(a_pod(gpu=1, mem=1)))[0] == "n000"


def test_a_node_that_loses_its_devices_is_unregistered():
    cluster = Cluster(a_node("n1", a_device()))
    assert where(cluster.try_pod(a_pod(gpu=1)))[0] == "n1"
    cluster.table.set_node(a_node("n1", annotations={"acme.com/register": "[]"}))
    assert texts(cluster.try_pod(a_pod(gpu=1))) == {"n1": "node unregistered"}
    cluster.table.set_node(a_node("n1", a_device()))
    assert where(cluster.try_pod(a_pod(gpu=1)))[0] == "n1"


def test_a_malformed_register_does_not_keep_an_old_cordon_or_death():
    cluster = Cluster()
    cluster.table = ClusterTable(
        cluster.vendors, alive=lambda _, node: "dead" not in node.annotations
    )
    cluster.table.set_node(a_node("n1", a_device(), annotations={"hami.io/device-cordon": "d0"}))
    broken = {"acme.com/register": "{"}
    assert len(cluster.table.set_node(a_node("n1", annotations=broken))) == 1
    assert where(cluster.try_pod(a_pod(gpu=1)))[1] == [["d0"]]
    cluster.table.set_node(a_node("n1", annotations=broken | {"dead": ""}))
    assert texts(cluster.try_pod(a_pod(gpu=1))) == {"n1": "1/1 CardNotHealth"}
    cluster.table.set_node(a_node("n1", annotations=broken))
    assert where(cluster.try_pod(a_pod(gpu=1)))[1] == [["d0"]]


class Places(ProfileVendor):
    """One place a device, whatever is asked."""

    def __init__(self):
        rules = "- modes: {part: {placements: true}}\n  key"
        super().__init__(ACME_YAML.replace("- key", rules))

    @hookimpl
    def hami_charge(self, request, state):
        return MIG_INFEASIBLE if state.grants else a_grant(state.device.id, cores=1)


def test_the_place_of_an_ended_init_container_stays_taken_until_its_pod_is_gone():
    vendors = Vendors.of({"acme": Places()})
    cluster = Cluster(a_node("n1", a_device(mode="part")), vendors=vendors)
    held = an_allocation("n1", a_grant("d0", cores=1), kind=ContainerKind.INIT)
    cluster.table.charge("old", held, init_ended=True)
    assert cluster.usage("n1") == {"d0": Usage()}
    assert texts(cluster.try_pod(a_pod(gpu=1))) == {"n1": "1/1 CardMigTopologyInfeasible"}
    cluster.table.release("old")
    assert where(cluster.try_pod(a_pod(gpu=1)))[1] == [["d0"]]


def test_hundreds_of_containers_under_quota_do_not_cost_their_square():
    """Counted in sums, not in seconds: each container is added up once more, not all of them."""
    calls: Counter[int] = Counter()

    class Counting(ChargeMeter):
        def add(self, kind, grants):
            calls[len(grants)] += 1
            super().add(kind, grants)

    cluster = Cluster(a_node("n1", a_device(slots=300)))
    cluster.ledger.set_quota(a_quota(mem=8000))
    pod = a_pod("p", *(a_container(f"c{i}", gpu=1, mem=10) for i in range(200)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hami.policy.fit.exact.ChargeMeter", Counting)
        assert where(cluster.try_pod(pod))[0] == "n1"
    assert calls == {1: 200}


def test_fix_node_names_over_63_characters_work():
    name = "a" * 63 + "." + "b" * 63 + ".example.com"
    assert where(Cluster(a_node(name, a_device())).run(a_pod(gpu=1)))[0] == name
