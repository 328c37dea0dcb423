"""Whole simulations: what is placed, what waits and why, what admission refuses."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hami.domain.errors import ConfigError
from hami.domain.scheduling import NodePolicy, SchedulingPolicy
from hami.hookspecs import hookimpl
from hami.simulate.simulation import unavailable

from .builders import (
    a_container,
    a_node,
    a_pod,
    a_quota,
    a_running_pod,
    a_workload,
    nodes_of,
    run,
    the_vendors,
)


def only_pending(result):
    (pending,) = result.pending
    return pending


def test_a_pod_is_placed_and_its_device_charged():
    result = run(a_node(memory=1000), a_pod("a", limits={"gpu": 1, "mem": 300, "cores": 20}))
    assert nodes_of(result) == {"a": "n1"}
    (device,) = result.devices
    usage = device.state.usage
    assert (usage.slots, usage.memory_mib, usage.cores) == (1, 300, 20)
    assert result.everything_placed


def test_a_pod_sees_what_the_pods_before_it_took():
    result = run(
        a_node(memory=1000),
        a_workload("Deployment", pod=a_pod(limits={"gpu": 1, "mem": 400}), replicas=3),
    )
    assert nodes_of(result) == {"web-1": "n1", "web-2": "n1"}
    assert only_pending(result).message == "0/1 nodes are available: 1 1/1 CardInsufficientMemory."
    assert not result.everything_placed


def test_a_refused_pod_names_every_node_and_its_reason():
    taint = {"key": "team", "value": "ml", "effect": "NoSchedule"}
    result = run(
        a_node("n1", memory=100),
        a_node("n2", memory=100),
        a_node("n3", taints=[taint]),
        a_node("n4", devices=0),
        a_pod("a", limits={"gpu": 1, "mem": 200}),
    )
    pending = only_pending(result)
    assert dict(pending.reasons) == {
        "n1": "1/1 CardInsufficientMemory",
        "n2": "1/1 CardInsufficientMemory",
        "n3": "node(s) had untolerated taint {team: ml}",
        "n4": "node unregistered",
    }
    assert list(pending.reasons) == ["n1", "n2", "n3", "n4"]
    assert pending.message == (
        "0/4 nodes are available: 1 node unregistered, "
        "1 node(s) had untolerated taint {team: ml}, 2 1/1 CardInsufficientMemory."
    )


def test_a_pod_without_devices_is_only_counted():
    result = run(a_node(), a_pod("web", containers=[{"name": "c"}]))
    assert (result.without_devices, result.placed, result.pending) == (1, (), ())


def test_a_cluster_without_nodes_leaves_the_pod_pending():
    assert only_pending(run(a_pod("a"))).message.startswith("0/0 nodes are available")


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        pytest.param(a_pod(limits={"gpu": 1, "mem": "lots"}), "'lots' is not", id="a bad quantity"),
        pytest.param(a_pod(limits={"gpu": 1, "mem": "500M"}), "write 500Mi", id="bytes meant"),
        pytest.param(a_pod(nodeName="n1"), "spec.nodeName skips the scheduler", id="a node name"),
        pytest.param(
            a_pod(containers=[a_container(gpu=1) | {"securityContext": {"privileged": True}}]),
            "container main is privileged",
            id="a privileged container",
        ),
    ],
)
def test_admission_denies(pod, message):
    result = run(a_node(), pod)
    (denied,) = result.denied
    assert message in denied.message
    assert not result.placed
    assert not result.everything_placed


def test_a_pod_of_another_scheduler_is_left_out_with_a_warning():
    result = run(a_node(), a_pod("a", schedulerName="volcano"))
    assert (result.placed, result.pending, result.denied) == ((), (), ())
    assert result.warnings == (
        "Pod default/a is left out: pod already has a different scheduler: volcano",
    )


def test_a_pod_of_another_scheduler_without_devices_is_no_news():
    result = run(a_node(), a_pod("a", containers=[{"name": "c"}], schedulerName="volcano"))
    assert (result.without_devices, result.warnings) == (1, ())


# Nodes.


@pytest.mark.parametrize(
    ("allocatable", "placed"),
    [
        pytest.param(None, True, id="a node that does not say"),
        pytest.param({"cpu": 8}, True, id="a node that says something else"),
        pytest.param({"acme.com/gpu": 10}, True, id="a node with devices"),
        pytest.param({"acme.com/gpu": 0}, False, id="a node whose devices are gone"),
    ],
)
def test_devices_are_alive_by_capacity_for(allocatable, placed):
    result = run(a_node(allocatable=allocatable), a_pod("a"))
    assert bool(result.placed) == placed
    if not placed:
        assert only_pending(result).reasons == {"n1": "1/1 CardNotHealth"}


def test_an_unreadable_register_annotation_is_a_warning():
    result = run(a_node(annotations={"acme.com/register": "{"}), a_pod("a"))
    assert result.warnings[0].startswith("Node n1: annotation acme.com/register")
    assert only_pending(result).reasons == {"n1": "node unregistered"}


class _Simulator:
    """Gives each node the register annotation that it asks for."""

    HAMI_API = 1

    @hookimpl
    def hami_simulated_annotations(self, node):
        asked = node.annotations.get("example.com/devices")
        if asked == "nonsense":
            raise ConfigError(f"node {node.name}: no devices are called {asked}")
        return {"acme.com/register": asked} if asked else {}


def test_a_plugin_completes_simulated_nodes():
    register = a_node("n1", devices=2)["metadata"]["annotations"]["acme.com/register"]
    node = a_node("n1", devices=0, annotations={"example.com/devices": register})
    result = run(node, a_pod("a"), vendors=the_vendors(sim=_Simulator()))
    assert nodes_of(result) == {"a": "n1"}
    assert len(result.devices) == 2


def test_devices_that_no_plugin_knows_stop_the_simulation():
    node = a_node("n1", devices=0, annotations={"example.com/devices": "nonsense"})
    with pytest.raises(ConfigError, match="node n1: no devices are called nonsense"):
        run(node, vendors=the_vendors(sim=_Simulator()))


# Quota and policy.


def test_an_exhausted_quota_leaves_the_pod_pending_with_used_asked_and_limit():
    result = run(a_node(), a_quota(mem=250), a_workload("Deployment", pod=a_pod(), replicas=3))
    assert len(result.placed) == 2
    pending = only_pending(result)
    assert pending.reasons == {"n1": "1/1 ResourceQuotaNotFit"}
    assert "ResourceQuota default/team: limits.acme.com/mem: used 200" in pending.message


def test_a_pod_that_no_quota_could_ever_admit_is_denied():
    result = run(a_node(), a_quota(mem=50), a_pod("a"))
    (denied,) = result.denied
    assert "exceeding resource quota" in denied.message


def test_another_namespace_has_its_own_quota():
    assert run(a_node(), a_quota(mem=50, namespace="ml"), a_pod("a")).everything_placed


def test_a_quota_that_the_api_server_counts_is_warned_about():
    quota = a_quota()
    quota["spec"]["hard"] = {"requests.acme.com/gpu": 1, "pods": 3}
    (warning,) = run(a_node(), quota).warnings
    assert warning.startswith(
        "ResourceQuota default/team: requests.acme.com/gpu is counted by the API server"
    )


def test_a_quota_with_an_unusable_limit_is_warned_about():
    (warning,) = run(a_node(), a_quota(mem="1500m")).warnings
    assert warning.startswith("ResourceQuota default/team: limits.acme.com/mem")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(NodePolicy.BINPACK, {"a": "n1", "b": "n1"}), (NodePolicy.SPREAD, {"a": "n1", "b": "n2"})],
)
def test_the_default_policy_counts_for_pods_that_do_not_say(policy, expected):
    result = run(
        a_node("n1"), a_node("n2"), a_pod("a"), a_pod("b"), policy=SchedulingPolicy(node=policy)
    )
    assert nodes_of(result) == expected


# The shape of a run.


def test_progress_counts_every_pod_that_is_looked_at():
    from hami.simulate.simulation import Settings, simulate

    from .builders import read

    seen = []
    manifests = read(
        a_node(),
        a_pod("a"),
        a_pod("done", phase="Succeeded"),
        a_running_pod("r", "n1", "n1-0", mem=1),
    )
    simulate(the_vendors(), manifests, Settings(), lambda *step: seen.append(step))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("nodes", "reasons", "details", "expected"),
    [
        pytest.param(
            3, ["x", "y", "x"], [], "0/3 nodes are available: 1 y, 2 x.", id="counted and sorted"
        ),
        pytest.param(
            1, ["x"], ["Used 1.", "Used 1."], "0/1 nodes are available: 1 x. Used 1.", id="once"
        ),
        pytest.param(
            0,
            [],
            [],
            "0/0 nodes are available: no nodes available to schedule pods.",
            id="an empty cluster",
        ),
    ],
)
def test_the_summary_reads_like_kube_schedulers(nodes, reasons, details, expected):
    assert unavailable(nodes, reasons, details) == expected


def test_equal_pods_refused_one_after_the_other_have_equal_reasons():
    result = run(
        a_node(memory=50),
        a_pod("a"),
        a_pod("b"),
        a_pod("c", namespace="ml"),
        a_pod("d", limits={"gpu": 2}),
    )
    texts = [(p.pod.full_name, *p.reasons.values()) for p in result.pending]
    assert texts == [
        ("default/a", "1/1 CardInsufficientMemory"),
        ("default/b", "1/1 CardInsufficientMemory"),
        ("ml/c", "1/1 CardInsufficientMemory"),
        ("default/d", "NodeInsufficientDevice"),
    ]


def test_a_placement_in_between_changes_an_equal_pods_reasons():
    big = {"gpu": 1, "mem": 900}
    result = run(
        a_node("n1", devices=2, memory=800),
        a_pod("a", limits=big),
        a_pod("b", limits={"gpu": 1, "mem": 10, "cores": 100}),
        a_pod("c", limits=big),
    )
    first, second = (p.reasons["n1"] for p in result.pending)
    assert first == "2/2 CardInsufficientMemory"
    assert second == "2/2 CardInsufficientMemory"
    assert nodes_of(result) == {"b": "n1"}


_ASKS = st.fixed_dictionaries(
    {"gpu": st.integers(1, 3), "mem": st.integers(0, 1200), "cores": st.integers(0, 100)}
)


@settings(max_examples=50)
@given(asks=st.lists(_ASKS, max_size=8), memory=st.integers(1, 2000))
def test_no_device_is_ever_given_more_than_it_has(asks, memory):
    pods = [a_pod(f"p{i}", limits=limits) for i, limits in enumerate(asks)]
    result = run(a_node("n1", devices=2, memory=memory), a_node("n2", memory=memory), *pods)
    seen = len(result.placed) + len(result.pending) + len(result.denied)
    assert seen == len(pods)
    for device in result.devices:
        usage, whole = device.state.usage, device.capacity
        assert usage.memory_mib <= whole.memory_mib
        assert usage.cores <= whole.cores
        assert usage.slots <= whole.slots
        granted = [
            g.memory_mib
            for p in result.placed
            for g in p.allocation.grants
            if (p.allocation.node, g.device_id) == (device.node, device.state.device.id)
        ]
        assert usage.memory_mib == sum(granted)


@settings(max_examples=30)
@given(asks=st.lists(_ASKS, min_size=1, max_size=6))
def test_the_order_of_nodes_in_the_files_changes_nothing(asks):
    pods = [a_pod(f"p{i}", limits=limits) for i, limits in enumerate(asks)]
    nodes = [a_node("n1", memory=1000), a_node("n2", devices=2, memory=500), a_node("n3")]
    outcomes = [nodes_of(run(*order, *pods)) for order in permutations(nodes)]
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_the_json_object_has_the_documented_shape():
    result = run(
        a_node(memory=1000),
        a_pod(
            "a",
            initContainers=[a_container("setup", gpu=1, mem=50)],
            limits={"gpu": 1, "mem": 300, "cores": 20},
        ),
        a_pod("b", limits={"gpu": 1, "mem": 900}),
        a_pod("c", limits={"gpu": 1, "mem": "x"}),
        a_running_pod("old", "n1", "n1-0", mem=100),
    )
    first = {"vendor": "ACME", "id": "n1-0", "extra": {}}
    assert result.as_json() == {
        "placements": [
            {
                "pod": "default/a",
                "node": "n1",
                "containers": [
                    {
                        "name": "setup",
                        "init": True,
                        "devices": [first | {"memoryMiB": 50, "cores": 0}],
                    },
                    {
                        "name": "main",
                        "init": False,
                        "devices": [first | {"memoryMiB": 300, "cores": 20}],
                    },
                ],
            }
        ],
        "pending": [
            {
                "pod": "default/b",
                "reasons": {"n1": "1/1 CardInsufficientMemory"},
                "message": "0/1 nodes are available: 1 1/1 CardInsufficientMemory.",
            }
        ],
        "denied": [
            {
                "pod": "default/c",
                "message": result.denied[0].message,
            }
        ],
        "devices": [
            {
                "node": "n1",
                "id": "n1-0",
                "vendor": "ACME",
                "model": "ACME One",
                "memoryMiB": 1000,
                "usedMemoryMiB": 400,
                "cores": 100,
                "usedCores": 20,
                "slots": 10,
                "usedSlots": 2,
            }
        ],
    }
