"""The vectorised pass agrees with the exact loop: never stricter, and with the same reasons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.devices import Usage
from hami.domain.reasons import Rejected
from hami.policy.filter.decision import Placed, prefilter
from hami.policy.fit.exact import fit_pod

from ..builders import (
    Cluster,
    a_container,
    a_device,
    a_grant,
    a_node,
    a_pod,
    a_quota,
    an_allocation,
    texts,
)

devices = st.builds(
    a_device,
    st.sampled_from([f"d{i}" for i in range(8)]),
    memory=st.sampled_from([0, 4000, 8000]),
    cores=st.sampled_from([0, 100, 200]),
    slots=st.integers(1, 3),
    numa=st.integers(0, 1),
    model=st.sampled_from(["One", "Two"]),
    mode=st.sampled_from(["", "hami-core"]),
    healthy=st.sampled_from([True, True, True, False]),
)
nodes = st.lists(devices, max_size=4, unique_by=lambda d: d.id)
usages = st.builds(a_grant, st.sampled_from([f"d{i}" for i in range(8)]),
                   memory=st.sampled_from([0, 1000, 4000]), cores=st.sampled_from([0, 30, 100]))  # fmt: skip
asks = st.fixed_dictionaries(
    {"gpu": st.integers(1, 3)},
    optional={
        "mem": st.sampled_from([500, 1000, 4000, 8000, 9000]),
        "pct": st.sampled_from([10, 50, 100]),
        "cores": st.sampled_from([0, 30, 100, 120]),
    },
)
choices = st.fixed_dictionaries(
    {},
    optional={
        "acme.com/use-type": st.sampled_from(["one", "Two", "three", ""]),
        "acme.com/nouse-uuid": st.sampled_from(["d1", "d2,d3"]),
        "acme.com/use-uuid": st.sampled_from(["d1,d2,d3"]),
        "acme.com/mode": st.sampled_from(["hami-core", "mig"]),
        "hami.io/gpu-scheduler-policy": st.sampled_from(["binpack", "mutex", "spread,mutex"]),
    },
)


def a_cluster(layout, loads, cordon=""):
    annotations = {"hami.io/device-cordon": cordon}
    cluster = Cluster(
        *(a_node(f"n{i}", *ds, annotations=annotations) for i, ds in enumerate(layout))
    )
    for number, (at, grant) in enumerate(loads):
        cluster.table.charge(f"u{number}", an_allocation(f"n{at % max(len(layout), 1)}", grant))
    return cluster


layouts = st.lists(nodes, min_size=1, max_size=4)
loads = st.lists(st.tuples(st.integers(0, 3), usages), max_size=8)


@given(layouts, loads, asks, choices, st.sampled_from(["", "d1", "d2,d3"]))
def test_reasons_equal_the_exact_loops_for_one_container(layout, load, ask, annotations, cordon):
    cluster = a_cluster(layout, load, cordon)
    request = cluster.parse(a_pod(annotations=annotations, **ask))
    names = sorted(cluster.table.node_names)
    found = prefilter(cluster.table, request, None, names)
    dropped = found.explain(names)
    for name, kept in zip(names, found.kept.tolist(), strict=True):
        exact = fit_pod(request, cluster.table.devices(name), cluster.vendors)
        assert kept is not isinstance(exact, Rejected)
        if not kept and cluster.table.devices(name).states:
            assert str(dropped[name]) == str(exact)


containers = st.lists(asks, min_size=1, max_size=2)


@given(
    layouts, loads, containers, st.lists(asks, max_size=1), st.lists(asks, max_size=1), choices,
    st.booleans(), st.none() | st.sampled_from([2000, 8000]), st.none() | st.integers(0, 4),
)  # fmt: skip
def test_never_drops_a_node_that_the_exact_fit_accepts(
    layout, load, apps, inits, sidecars, annotations, bind, limit, count
):
    cluster = a_cluster(layout, load)
    hard = {k: v for k, v in {"mem": limit, "gpu": count}.items() if v is not None}
    cluster.ledger.set_quota(a_quota(**hard))
    pod = a_pod(
        "p",
        *(a_container(f"a{i}", **ask) for i, ask in enumerate(apps)),
        init=[
            *(a_container(f"s{i}", restart="Always", **ask) for i, ask in enumerate(sidecars)),
            *(a_container(f"i{i}", **ask) for i, ask in enumerate(inits)),
        ],
        annotations=annotations | ({"acme.com/numa-bind": "true"} if bind else {}),
    )
    request, gate = cluster.parse(pod), cluster.ledger.gate(pod)
    names = sorted(cluster.table.node_names)
    kept = prefilter(cluster.table, request, gate, names).kept.tolist()
    for name, stays in zip(names, kept, strict=True):
        exact = fit_pod(request, cluster.table.devices(name), cluster.vendors, gate)
        assert stays or isinstance(exact, Rejected)


@pytest.mark.parametrize(
    ("hard", "ask"),
    [
        pytest.param({"mem": 3000}, {"gpu": 1, "mem": 3001}, id="more memory than quota leaves"),
        pytest.param({"mem": 3000}, {"gpu": 2, "mem": 1501}, id="two slices together exceed it"),
        pytest.param({"mem": 3000}, {"gpu": 1, "pct": 50}, id="a percentage exceeds it on every device"),
        pytest.param({"mem": 7000}, {"gpu": 2, "pct": 50}, id="the two cheapest devices exceed it"),
        pytest.param({"cores": 50}, {"gpu": 2, "cores": 30}, id="more cores than quota leaves"),
        pytest.param({"gpu": 1}, {"gpu": 2}, id="more slices than quota leaves"),
        pytest.param({"mem": 0}, {"gpu": 1, "mem": 1}, id="zero blocks"),
    ],
)  # fmt: skip
def test_an_exhausted_quota_drops_every_node_without_a_fit(hard, ask):
    cluster = a_cluster([[a_device("d0"), a_device("d1")]] * 3, [])
    cluster.ledger.set_quota(a_quota(**hard))
    pod = a_pod(**ask)
    found = prefilter(
        cluster.table, cluster.parse(pod), cluster.ledger.gate(pod), ["n0", "n1", "n2"]
    )
    assert not found.kept.any()
    assert {str(r) for r in found.explain(["n0", "n1", "n2"]).values()} == {
        "2/2 ResourceQuotaNotFit"
    }


def test_a_cheaper_device_is_kept_where_a_dear_one_exceeds_quota():
    cluster = a_cluster([[a_device("d0", memory=8000)], [a_device("d0", memory=4000)]], [])
    cluster.ledger.set_quota(a_quota(mem=2000))
    assert isinstance(outcome := cluster.try_pod(a_pod(gpu=1, pct=50)), Placed)
    assert outcome.allocation.node == "n1"


def test_what_quota_refuses_is_explained_with_all_its_numbers():
    cluster = a_cluster([[a_device("d0"), a_device("d1")]], [])
    cluster.ledger.set_quota(a_quota("gpu-team", mem=4000))
    outcome = cluster.try_pod(
        a_pod("p", a_container("a", gpu=1, mem=3000), a_container("b", gpu=1, mem=3000))
    )
    assert texts(outcome) == {"n0": "2/2 ResourceQuotaNotFit"}
    assert outcome.reasons["n0"].details == (
        "ResourceQuota default/gpu-team: limits.acme.com/mem: used 0 MiB + asked 6000 MiB > limit 4000 MiB",
    )


def test_an_unknown_or_empty_candidate_is_unregistered():
    cluster = Cluster(a_node("n1"), a_node("n2", a_device(memory=1)))
    assert texts(cluster.try_pod(a_pod(gpu=1, mem=2), ["n1", "n2", "ghost"])) == {
        "n1": "node unregistered",
        "n2": "1/1 CardInsufficientMemory",
        "ghost": "node unregistered",
    }


def test_a_table_without_nodes_answers_too():
    assert texts(Cluster().try_pod(a_pod(gpu=1), ["ghost"])) == {"ghost": "node unregistered"}
    assert texts(Cluster().try_pod(a_pod(gpu=1), [])) == {}


def test_over_committed_usage_from_an_edited_annotation_does_not_overflow():
    cluster = a_cluster([[a_device("d0")]], [])
    for number in range(3):
        grant = a_grant("d0", memory=2**31 - 1, cores=2**31 - 1)
        cluster.table.charge(f"u{number}", an_allocation("n0", grant))
    assert texts(cluster.try_pod(a_pod(gpu=1, mem=1))) == {"n0": "1/1 CardInsufficientMemory"}
    assert cluster.usage("n0") == {"d0": Usage(3, 3 * (2**31 - 1), 3 * (2**31 - 1))}
