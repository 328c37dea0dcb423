"""ResourceQuota objects as limits on what vendors manage: readings, refusals, the ledger."""

from __future__ import annotations

import pytest

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.kubernetes.objects import Metadata, Pod, ResourceQuota, ResourceQuotaSpec
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.policy.quota import QuotaLedger, read_quota
from hami.policy.quota.resource_quotas import ResourceQuotas
from hami.vendors.registry import Vendors

from ..builders import (
    BOLT_YAML,
    Cluster,
    a_container,
    a_device,
    a_grant,
    a_node,
    a_pod,
    a_quota,
    texts,
    the_vendors,
    where,
)

GPU, MEM, CORES = "acme.com/gpu", "acme.com/mem", "acme.com/cores"
NPUMEM = "bolt.io/mem"
INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def a_ledger(*quotas: ResourceQuota) -> QuotaLedger:
    ledger = QuotaLedger(the_vendors())
    for quota in quotas:
        assert ledger.set_quota(quota) == ()
    return ledger


def taking(*mib: int, cores: int = 0, vendor: str = "ACME", kind: ContainerKind = APP):
    grants = (a_grant(f"d{i}", memory=m, cores=cores, vendor=vendor) for i, m in enumerate(mib))
    return ContainerAllocation(name="c", kind=kind, grants=tuple(grants))


def together(*containers: ContainerAllocation) -> PodAllocation:
    return PodAllocation(node="n1", containers=containers)


def reserved(
    ledger: QuotaLedger, name: str, *containers: ContainerAllocation, **where: str
) -> bool:
    return not ledger.reserve(a_pod(name, **where), together(*containers))


def hard(**limits: str) -> ResourceQuota:
    """A quota whose keys are written out: ``hard(**{"limits.acme.com/mem": "1"})``."""
    return ResourceQuota(metadata=Metadata(name="q"), spec=ResourceQuotaSpec(hard=limits))


# What an object says.


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        pytest.param("limits.acme.com/mem", "8000", {MEM: 8000}, id="memory"),
        pytest.param("limits.acme.com/mem", "8k", {MEM: 8000}, id="fix: 8k is how the API server writes 8000"),
        pytest.param("limits.acme.com/mem", "10Gi", {MEM: 10240}, id="fix: 10Gi are 10240 MiB and not 10737418240"),
        pytest.param("limits.acme.com/mem", "1.5Mi", {MEM: 1}, id="bytes of a limit go down"),
        pytest.param("limits.acme.com/cores", "400", {CORES: 400}, id="cores"),
        pytest.param("limits.acme.com/gpu", "2", {GPU: 2}, id="fix: the count is limited too"),
        pytest.param("limits.acme.com/mem", "0", {MEM: 0}, id="an explicit 0"),
        pytest.param("limits.bolt.io/mem", "100", {NPUMEM: 25600}, id="units of 256 MiB"),
        pytest.param("limits.bolt.io/mem", "1Gi", {NPUMEM: 1024}, id="fix: bytes are not multiplied by the unit"),
        pytest.param("requests.acme.com/mem", "8000", {}, id="requests are counted by the API server"),
        pytest.param("acme.com/mem", "8000", {}, id="no prefix"),
        pytest.param("limits!acme.com/mem", "100", {}, id="a prefix of the same length"),
        pytest.param("limits.limits.acme.com/mem", "8000", {}, id="the prefix twice"),
        pytest.param("limits.acme.com/mem-percent", "50", {}, id="no percentage is managed"),
        pytest.param("limits.cpu", "4", {}, id="a resource of Kubernetes"),
        pytest.param("limits.tin.com/gpu", "4", {}, id="a vendor that is not there"),
        pytest.param("limits.", "4", {}, id="no name"),
    ],
)  # fmt: skip
def test_limits(key, text, expected):
    constraint, problems = read_quota(hard(**{key: text}), the_vendors())
    assert constraint.limits == expected
    assert problems == ()


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        pytest.param("limits.acme.com/mem", "1.5", "'1.5' is not a whole number", id="a fraction"),
        pytest.param(
            "limits.acme.com/mem", "500m", "'500m' is not a whole number", id="thousandths"
        ),
        pytest.param("limits.acme.com/mem", "-1", "'-1' is negative", id="negative"),
        pytest.param("limits.acme.com/cores", "half", "'half' is not a quantity", id="a word"),
        pytest.param("limits.acme.com/gpu", "", "'' is not a quantity", id="empty"),
    ],
)
def test_fix_an_unreadable_limit_blocks_and_is_reported_instead_of_ignored(key, text, said):
    ledger = QuotaLedger(the_vendors())
    problems = ledger.set_quota(hard(**{key: text}))
    assert [str(problem) for problem in problems] == [
        f"ResourceQuota default/q: {key}: {said}; counts as 0 until mended"
    ]
    assert not reserved(ledger, "p", taking(1, cores=1))


def test_an_object_without_hard_limits_nothing():
    constraint, problems = read_quota(ResourceQuota(), the_vendors())
    assert (constraint.limits, problems) == ({}, ())


# One check: used, asked, limit.


@pytest.mark.parametrize(
    ("resource", "used", "asked", "expected"),
    [
        pytest.param(MEM, 1000, 500, True, id="fits"),
        pytest.param(MEM, 1000, 1000, True, id="fits exactly"),
        pytest.param(MEM, 1000, 1001, False, id="one too much"),
        pytest.param(MEM, 1000, 1500, False, id="too much memory"),
        pytest.param(CORES, 200, 100, True, id="cores fit"),
        pytest.param(CORES, 200, 300, False, id="too many cores"),
        pytest.param(NPUMEM, 10**9, 10**9, True, id="a resource without a limit"),
        pytest.param(MEM, 3000, 0, True, id="asking nothing is never refused"),
        pytest.param(MEM, 3000, 1, False, id="over the limit already"),
    ],
)
def test_constraint(resource, used, asked, expected):
    constraint, _ = read_quota(a_quota(mem=2000, cores=400), the_vendors())
    assert (constraint.refusal(resource, used, asked) is None) is expected


def test_a_refusal_names_object_resource_and_all_numbers():
    ledger = a_ledger(a_quota("team", mem=4000, gpu=9))
    assert reserved(ledger, "a", taking(1000))
    (refusal,) = ledger.reserve(a_pod("b"), together(taking(3000, 3000)))
    assert str(refusal) == (
        "ResourceQuota default/team: limits.acme.com/mem: "
        "used 1000 MiB + asked 6000 MiB > limit 4000 MiB"
    )
    (refusal,) = a_ledger(a_quota(gpu=1)).reserve(a_pod("b"), together(taking(1, 1)))
    assert (
        str(refusal) == "ResourceQuota default/q: limits.acme.com/gpu: used 0 + asked 2 > limit 1"
    )


def test_every_refusal_is_told():
    ledger = a_ledger(a_quota("a", mem=1, gpu=1), a_quota("b", cores=10))
    refusals = ledger.reserve(a_pod("p"), together(taking(5, 5, cores=50)))
    assert [(r.name, r.resource, r.asked) for r in refusals] == [
        ("a", GPU, 2),
        ("a", MEM, 10),
        ("b", CORES, 100),
    ]


@pytest.mark.parametrize(
    ("limit", "containers", "expected"),
    [
        pytest.param(2048, [taking(100)], True, id="one slice"),
        pytest.param(2048, [taking(3000)], False, id="one slice too large"),
        pytest.param(2048, [taking(1024, 100)], True, id="two slices"),
        pytest.param(2048, [taking(1024, 2000)], False, id="two slices too large together"),
        pytest.param(2048, [taking(1024), taking(100)], True, id="two containers"),
        pytest.param(2048, [taking(1024), taking(2000)], False, id="two containers too large together"),
        pytest.param(2048, [taking(1024), taking(1024, 100)], False, id="a container and two slices"),
        pytest.param(2048, [taking(100), taking(100, 100)], True, id="three small slices"),
        pytest.param(2048, [taking(1500, kind=INIT), taking(1500, kind=INIT)], True, id="init containers one after the other"),
        pytest.param(2048, [taking(1024, kind=INIT), taking(1024, kind=INIT), taking(500)], True, id="init containers before the app"),
        pytest.param(2048, [taking(2100, kind=INIT), taking(100)], False, id="an init container too large alone"),
        pytest.param(2048, [taking(1024, kind=SIDECAR), taking(1025)], False, id="fix: a sidecar beside the app"),
        pytest.param(2048, [taking(1024, kind=SIDECAR), taking(1025, kind=INIT), taking(1)], False, id="fix: a sidecar beside a later init container"),
        pytest.param(2048, [taking(1025, kind=INIT), taking(1024, kind=SIDECAR), taking(1)], True, id="no sidecar beside an earlier one"),
        pytest.param(4000, [taking(3000, 3000)], False, id="fix: two devices times 3000"),
        pytest.param(10000, [taking(10240)], False, id="fix: what is charged counts, not what was asked"),
        pytest.param(10240, [taking(10240)], True, id="what is charged fits"),
        pytest.param(0, [taking(1)], False, id="an explicit 0 blocks"),
        pytest.param(0, [taking(0)], True, id="an explicit 0 of memory blocks none that takes none"),
    ],
)  # fmt: skip
def test_what_a_pod_is_charged(limit, containers, expected):
    assert reserved(a_ledger(a_quota(mem=limit)), "p", *containers) is expected


@pytest.mark.parametrize(
    ("quota", "container", "expected"),
    [
        pytest.param(a_quota(npumem=100), taking(50 * 256, vendor="BOLT"), True, id="50 units of 100"),
        pytest.param(a_quota(npumem=100), taking(200 * 256, vendor="BOLT"), False, id="200 units of 100"),
        pytest.param(a_quota(npumem=60), taking(40 * 256, 40 * 256, vendor="BOLT"), False, id="two times 40 units of 60"),
        pytest.param(a_quota(npucores=50), taking(1, cores=60, vendor="BOLT"), False, id="fix: another vendor's cores"),
        pytest.param(a_quota(npumem=1), taking(9999), True, id="one vendor's limit is not the other's"),
        pytest.param(a_quota(card=1), taking(1, 1, vendor="WHOLE"), False, id="fix: a vendor that only has counts"),
    ],
)  # fmt: skip
def test_fix_every_vendor_is_limited(quota, container, expected):
    assert reserved(a_ledger(quota), "p", container) is expected


@pytest.mark.parametrize(("asked", "expected"), [(4096, True), (8192, True), (8193, False)])
def test_units_of_4_mib(asked, expected):
    text = BOLT_YAML.replace("memory_factor: 256", "memory_factor: 4")
    ledger = QuotaLedger(Vendors.of({"bolt": ProfileVendor(text)}))
    ledger.set_quota(a_quota(npumem=8192))
    assert reserved(ledger, "p", taking(asked * 4, vendor="BOLT")) is expected


def test_another_factor_after_a_reload_leaves_what_is_used():
    used = []
    for factor in (256, 4):
        text = BOLT_YAML.replace("memory_factor: 256", f"memory_factor: {factor}")
        ledger = QuotaLedger(Vendors.of({"bolt": ProfileVendor(text)}))
        ledger.set_quota(a_quota(npumem=8192))
        ledger.charge(a_pod("p"), together(taking(5120, vendor="BOLT")))
        used.append(ledger.used("default", "q"))
    assert used == [{NPUMEM: 5120}] * 2


# Several objects.


def test_fix_of_two_objects_each_counts_and_deleting_one_lifts_no_other():
    small, large = a_quota("small", mem=1000), a_quota("large", mem=5000)
    ledger = a_ledger(small, large)
    assert not reserved(ledger, "p", taking(3000))
    ledger.remove_quota("default", "large")
    assert not reserved(ledger, "p", taking(3000))
    ledger.remove_quota("default", "small")
    assert reserved(ledger, "p", taking(3000))


@pytest.mark.parametrize("order", [("small", "large"), ("large", "small")])
def test_fix_the_order_of_objects_does_not_matter(order):
    limits = {"small": 1000, "large": 5000}
    ledger = a_ledger(*(a_quota(name, mem=limits[name]) for name in order))
    assert ledger.gate(a_pod("p")).left(MEM) == 1000


def test_objects_of_other_namespaces_do_not_count():
    ledger = a_ledger(a_quota(mem=0), a_quota(namespace="team", mem=100))
    assert reserved(ledger, "p", taking(100), namespace="team")
    assert not reserved(ledger, "q", taking(1), namespace="team")
    assert reserved(ledger, "r", taking(99999), namespace="other")


def test_removing_twice_or_what_never_was_changes_nothing():
    ledger = a_ledger(a_quota("a", mem=10))
    for name in ("a", "a", "never"):
        ledger.remove_quota("default", name)
    ledger.remove_quota("nowhere", "a")
    assert ledger.gate(a_pod("p")) is None


def test_a_namespace_without_objects_is_forgotten():
    """Where namespaces come and go, each would be remembered for ever."""
    quotas = ResourceQuotas(the_vendors())
    for name in ("a", "b"):
        quotas.put(a_quota(name, mem=10), ())
    quotas.remove("default", "a")
    assert "default" in quotas.namespaces
    quotas.remove("default", "b")
    assert "default" not in quotas.namespaces


def test_what_runs_while_its_namespace_has_no_quota_counts_against_the_next():
    ledger = a_ledger(a_quota(mem=40))
    assert reserved(ledger, "before", taking(10))
    ledger.remove_quota("default", "q")
    assert reserved(ledger, "between", taking(20))
    ledger.set_quota(a_quota(mem=40))
    assert ledger.used("default", "q") == {MEM: 30}
    for name in ("before", "between"):
        ledger.release(a_pod(name).uid)
    assert ledger.used("default", "q") == {MEM: 0}


def test_a_quota_that_is_created_late_counts_what_runs():
    ledger = a_ledger()
    assert reserved(ledger, "p", taking(30))
    ledger.set_quota(a_quota(mem=40))
    assert ledger.used("default", "q") == {MEM: 30}
    assert not reserved(ledger, "q", taking(11))
    assert reserved(ledger, "q", taking(10))


def test_a_quota_that_is_replaced_keeps_what_is_used():
    ledger = a_ledger(a_quota(mem=1000, cores=100))
    assert reserved(ledger, "p", taking(500))
    ledger.set_quota(a_quota(mem=2000))
    assert [c.limits for c in ledger.constraints] == [{MEM: 2000}]
    assert ledger.used("default", "q") == {MEM: 500}
    ledger.set_quota(a_quota(mem=3000))
    assert ledger.gate(a_pod("q")).left(MEM) == 2500


def test_updates_that_change_nothing_never_open_a_gap():
    ledger = a_ledger(a_quota(mem=1000))
    assert reserved(ledger, "p", taking(1000))
    for _ in range(200):
        ledger.set_quota(a_quota(mem=1000))
        assert not reserved(ledger, "q", taking(1))


def test_a_lowered_limit_keeps_what_runs_and_admits_nothing_more():
    ledger = a_ledger(a_quota(mem=1000))
    assert reserved(ledger, "p", taking(800))
    ledger.set_quota(a_quota(mem=500))
    assert ledger.used("default", "q") == {MEM: 800}
    assert ledger.gate(a_pod("q")).left(MEM) == -300
    assert not reserved(ledger, "q", taking(1))
    ledger.release(a_pod("p").uid)
    assert reserved(ledger, "q", taking(500))


# Pods over time.


def test_of_a_burst_exactly_as_many_are_reserved_as_fit():
    ledger = a_ledger(a_quota(mem=2000))
    assert [reserved(ledger, f"p{i}", taking(1000)) for i in range(5)] == [True, True, *[False] * 3]


def test_three_pods_of_one_device_against_two():
    ledger = a_ledger(a_quota(gpu=2))
    assert [reserved(ledger, name, taking(1)) for name in "abc"] == [True, True, False]


def test_a_pod_that_is_filtered_again_is_charged_once():
    ledger = a_ledger(a_quota(mem=1000))
    for mib in (1000, 600, 1000):
        assert reserved(ledger, "p", taking(mib))
        assert ledger.used("default", "q") == {MEM: mib}


def test_a_pod_that_asks_more_the_second_time_keeps_its_charge_when_refused():
    ledger = a_ledger(a_quota(mem=1000))
    assert reserved(ledger, "p", taking(600))
    assert not reserved(ledger, "p", taking(1001))
    assert ledger.used("default", "q") == {MEM: 600}
    assert not reserved(ledger, "q", taking(401))


def test_what_runs_is_charged_whatever_the_limits_say():
    ledger = a_ledger(a_quota(mem=10))
    ledger.charge(a_pod("p"), together(taking(50)))
    assert ledger.used("default", "q") == {MEM: 50}


def test_the_charge_shrinks_when_the_init_containers_have_ended():
    ledger = a_ledger(a_quota(mem=30000, cores=99))
    pod = together(taking(20000, cores=10, kind=INIT), taking(10000, cores=5))
    assert reserved(ledger, "one", *pod.containers)
    assert ledger.used("default", "q") == {MEM: 20000, CORES: 10}
    assert not reserved(ledger, "two", *pod.containers)
    ledger.charge(a_pod("one"), pod.after_init())
    assert ledger.used("default", "q") == {MEM: 10000, CORES: 5}
    assert reserved(ledger, "two", *pod.containers)


def test_releasing_twice_takes_back_once():
    ledger = a_ledger(a_quota(mem=1000))
    assert reserved(ledger, "p", taking(1000))
    assert not reserved(ledger, "q", taking(1))
    ledger.release(a_pod("p").uid)
    ledger.release(a_pod("p").uid)
    assert ledger.used("default", "q") == {MEM: 0}
    assert reserved(ledger, "q", taking(1000))


def test_a_pod_that_replaces_one_of_its_name_is_another():
    ledger = a_ledger(a_quota(mem=1000))
    first = a_pod("web-0")
    second = Pod(metadata=Metadata(name="web-0", namespace="default", uid="other"))
    assert not ledger.reserve(first, together(taking(600)))
    assert ledger.reserve(second, together(taking(600)))
    ledger.release(first.uid)
    assert not ledger.reserve(second, together(taking(600)))


def test_asking_changes_nothing():
    ledger = a_ledger(a_quota(mem=1000))
    pod = a_pod("p")
    for _ in range(3):
        assert ledger.gate(pod).refusals({MEM: 1000}) == ()
        assert ledger.gate(pod).refusals({MEM: 5000}) != ()
    assert ledger.used("default", "q") == {MEM: 0}


def test_a_namespace_without_limits_for_us_has_no_gate():
    assert a_ledger().gate(a_pod("p")) is None
    assert a_ledger(hard(**{"limits.cpu": "1"})).gate(a_pod("p")) is None


@pytest.mark.parametrize(
    ("resource", "expected"),
    [(MEM, 700), (CORES, 50), (GPU, None), (NPUMEM, None)],
)
def test_what_is_left(resource, expected):
    ledger = a_ledger(a_quota("a", mem=1000), a_quota("b", mem=5000, cores=50))
    assert reserved(ledger, "p", taking(300))
    assert ledger.gate(a_pod("q")).left(resource) == expected
    held = a_pod("p")
    assert ledger.gate(held).left(MEM) == 1000, "what it has already is not against it"


# Through the scheduler.

FOUR = a_node("n1", *(a_device(f"d{i}", index=i, memory=m) for i, m in enumerate((2000, 8000, 4000, 6000))))  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "pod", "expected"),
    [
        pytest.param(20479, a_pod(gpu=1, pct=50), "1/1 ResourceQuotaNotFit", id="half of a device of 40960 does not fit 20479"),
        pytest.param(20480, a_pod(gpu=1, pct=50), "n1", id="it fits 20480"),
        pytest.param(40959, a_pod(gpu=1), "1/1 ResourceQuotaNotFit", id="a whole device is charged whole"),
        pytest.param("1E", a_pod(gpu=1), "n1", id="a limit beyond all numbers of the table"),
        pytest.param("1e99", a_pod(gpu=1), "n1", id="a limit beyond everything"),
    ],
)  # fmt: skip
def test_a_share_counts_as_what_it_comes_to_on_the_device(limit, pod, expected):
    cluster = Cluster(a_node("n1", a_device(memory=40960)))
    cluster.ledger.set_quota(a_quota(mem=limit, cores=limit, gpu=limit))
    outcome = cluster.try_pod(pod)
    assert (texts(outcome)["n1"] if expected != "n1" else where(outcome)[0]) == expected


@pytest.mark.parametrize(
    ("vendor_asks", "limits"),
    [
        pytest.param({"npu": 1, "npumem": 50}, {"npumem": 49}, id="memory in units"),
        pytest.param({"npu": 1, "npumem": 1, "npucores": 60}, {"npucores": 59}, id="cores"),
        pytest.param({"npu": 2, "npumem": 1, "npucores": 1}, {"npu": 1}, id="counts"),
        pytest.param({"card": 1}, {"card": 0}, id="whole devices"),
    ],
)
def test_fix_quota_is_checked_for_every_vendor_when_a_pod_is_placed(vendor_asks, limits):
    node = a_node(
        "n1",
        *(a_device(f"b{i}", memory=25600, vendor="BOLT") for i in range(2)),
        a_device("w0", vendor="WHOLE"),
    )
    cluster = Cluster(node)
    pod = a_pod(**vendor_asks)
    assert where(cluster.try_pod(pod))[0] == "n1"
    cluster.ledger.set_quota(a_quota(**limits))
    assert "ResourceQuotaNotFit" in texts(cluster.try_pod(pod))["n1"]


def test_fix_quota_is_checked_for_every_container():
    cluster = Cluster(FOUR)
    pod = a_pod("p", a_container("a", gpu=1, mem=600), a_container("b", gpu=1, mem=600))
    cluster.ledger.set_quota(a_quota(mem=1200))
    assert where(cluster.try_pod(pod))[0] == "n1"
    cluster.ledger.set_quota(a_quota(mem=1199))
    assert "ResourceQuotaNotFit" in texts(cluster.try_pod(pod))["n1"]


def test_a_burst_through_the_scheduler_never_exceeds_the_limit():
    cluster = Cluster(FOUR)
    cluster.ledger.set_quota(a_quota(mem=2000))
    outcomes = [cluster.run(a_pod(f"p{i}", gpu=1, mem=1000)) for i in range(5)]
    assert [isinstance(o, PodAllocation) for o in outcomes] == [True, True, False, False, False]
    assert cluster.ledger.used("default", "q") == {MEM: 2000}


def test_a_refused_pod_is_told_the_numbers():
    cluster = Cluster(FOUR)
    cluster.ledger.set_quota(a_quota("team", mem=4000))
    outcome = cluster.try_pod(a_pod(gpu=2, mem=3000))
    (rejected,) = outcome.reasons.values()
    assert "limits.acme.com/mem: used 0 MiB + asked 6000 MiB > limit 4000 MiB" in str(
        rejected.details
    )


def test_a_simulation_leaves_the_ledger_as_it_was():
    cluster = Cluster(FOUR)
    cluster.ledger.set_quota(a_quota(mem=4000))
    for _ in range(3):
        assert where(cluster.try_pod(a_pod(gpu=1, mem=4000)))[0] == "n1"
    assert cluster.ledger.used("default", "q") == {MEM: 0}
