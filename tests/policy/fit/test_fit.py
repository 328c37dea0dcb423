"""The exact fit: one request on one node, then whole pods on one node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain import reasons
from hami.domain.devices import DeviceState, Grant, Usage
from hami.domain.reasons import Rejected
from hami.domain.requests import Placement
from hami.hookspecs import hookimpl
from hami.policy.fit.exact import fit_pod, place
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.vendors.registry import Vendors

from ..builders import (
    ACME_YAML,
    Cluster,
    a_container,
    a_context,
    a_device,
    a_node,
    a_pod,
    a_policy,
    a_request,
    a_state,
    texts,
    the_vendors,
    used,
    where,
)


def placed(request, *states: DeviceState, vendors=None, **context) -> str:
    """The ids taken, or the refusal's text."""
    if isinstance(context.get("policy"), str):
        context["policy"] = a_policy(context["policy"])
    vendor = (vendors or the_vendors())[request.vendor]
    answer = place(vendor, request, states, a_context(**context))
    if isinstance(answer, Placement):
        return " ".join(grant.device_id for grant in answer.grants)
    return str(answer)


FULL_CORES = a_state(usage=used(0, 100, slots=20), slots=100)


@pytest.mark.parametrize(
    ("request_", "states", "context", "expected"),
    [
        pytest.param(a_request(memory=64, cores=50), [a_state("d0"), a_state("d1")], {}, "d1", id="of two idle devices the last is taken"),
        pytest.param(a_request(memory=512), [a_state(memory=128)], {}, "1/1 CardInsufficientMemory", id="too little memory"),
        pytest.param(a_request(memory=64, cores=50), [a_state(usage=used(0, 100))], {}, "1/1 CardInsufficientCore", id="too few cores"),
        pytest.param(a_request(), [a_state()], {"annotations": {"acme.com/use-type": "Other"}}, "1/1 CardTypeMismatch", id="another model is wanted"),
        pytest.param(a_request(), [a_state()], {"annotations": {"acme.com/nouse-type": "one"}}, "1/1 CardTypeMismatch", id="this model is not wanted"),
        pytest.param(a_request(), [a_state()], {"annotations": {"acme.com/use-type": "two, ONE"}}, "d0", id="one of several models is enough"),
        pytest.param(a_request(), [a_state()], {"annotations": {"acme.com/use-type": " , "}}, "d0", id="a blank list is no constraint"),
        pytest.param(a_request(), [a_state(mode="mig")], {"annotations": {"acme.com/mode": "hami-core"}}, "1/1 CardTypeMismatch", id="another mode is wanted"),
        pytest.param(a_request(), [a_state(mode="mig")], {"annotations": {"acme.com/mode": "mig,hami-core"}}, "d0", id="the annotation contains the mode"),
        pytest.param(a_request(), [a_state("d1")], {"annotations": {"acme.com/use-uuid": "d0"}}, "1/1 CardUuidMismatch", id="another uuid is wanted"),
        pytest.param(a_request(), [a_state()], {"annotations": {"acme.com/nouse-uuid": " d0 ,x"}}, "1/1 CardUuidMismatch", id="this uuid is not wanted"),
        pytest.param(a_request(), [a_state("d0"), a_state("d1")], {"annotations": {"acme.com/use-uuid": "d0 "}}, "d0", id="the wanted uuid is taken"),
        pytest.param(a_request(), [a_state()], {"annotations": {"acme.com/use-uuid": "d0", "acme.com/nouse-uuid": "d0"}}, "1/1 CardUuidMismatch", id="wanted and unwanted: unwanted wins"),
        pytest.param(a_request(), [a_state(usage=used(slots=10))], {}, "1/1 CardTimeSlicingExhausted", id="no slot left"),
        pytest.param(a_request(memory=1, cores=120), [a_state()], {}, "d0", id="cores above 100 are clamped"),
        pytest.param(a_request(memory=1, cores=200), [a_state(cores=4)], {}, "1/1 CardInsufficientCore", id="clamped cores may still be too many"),
        pytest.param(a_request(memory=1, cores=100), [a_state(usage=used(slots=2))], {}, "1/1 ExclusiveDeviceAllocateConflict", id="all cores of a device in use"),
        pytest.param(a_request(memory=1, cores=0), [FULL_CORES], {}, "1/1 CardComputeUnitsExhausted", id="no cores asked where none is left"),
        pytest.param(a_request(2, memory=1), [a_state()], {}, "1/1 AllocatedCardsInsufficientRequest", id="two wanted, one there"),
        pytest.param(a_request(3, memory=1), [a_state("d0"), a_state("d1")], {}, "2/2 AllocatedCardsInsufficientRequest", id="three wanted, two there"),
        pytest.param(a_request(percent=10), [a_state(memory=1280)], {}, "d0", id="a percentage fits"),
        pytest.param(a_request(percent=100), [a_state(memory=11264, usage=used(4))], {}, "1/1 CardInsufficientMemory", id="100 percent of a device in use"),
        pytest.param(a_request(percent=100, cores=100), [a_state(usage=used(8000))], {}, "1/1 CardInsufficientMemory", id="memory is checked before cores"),
        pytest.param(a_request(), [a_state(healthy=False)], {}, "1/1 CardNotHealth", id="not healthy"),
        pytest.param(a_request(), [a_state("d0"), a_state("d1")], {"node": {"hami.io/device-cordon": "d1, "}}, "d0", id="a cordoned device is passed over"),
        pytest.param(a_request(), [a_state("d0"), a_state("d1")], {"node": {"hami.io/device-cordon": "d1,d0"}}, "2/2 CardCordoned", id="all devices cordoned"),
        pytest.param(a_request(memory=1), [a_state("d0", used()), a_state("d1")], {"policy": "mutex"}, "d1", id="mutex takes an idle device"),
        pytest.param(a_request(2, memory=1), [a_state("d0", used()), a_state("d1")], {"policy": "mutex"}, "1/2 AllocatedCardsInsufficientRequest, 1/2 ExclusiveDeviceAllocateConflict", id="mutex needs enough idle devices"),
        pytest.param(a_request(exclusive=True), [a_state("d0", used()), a_state("d1")], {}, "d1", id="exclusive takes an idle device"),
        pytest.param(a_request(memory=500), [a_state("d0", memory=100), a_state("d1", healthy=False), a_state("d2", used(slots=10))], {}, "1/3 CardInsufficientMemory, 1/3 CardNotHealth, 1/3 CardTimeSlicingExhausted", id="each device counts for its first reason"),
    ],
)  # fmt: skip
def test_place(request_, states, context, expected):
    assert placed(request_, *states, **context) == expected


BOUND = {"acme.com/numa-bind": "true"}


@pytest.mark.parametrize(
    ("count", "numas", "expected"),
    [
        pytest.param(2, [1, 1, 0], "d1 d0", id="both on one numa node"),
        pytest.param(2, [0, 1], "1/2 AllocatedCardsInsufficientRequest, 1/2 NumaNotFit", id="never across two numa nodes"),
        pytest.param(2, [0, 0, 1], "d1 d0", id="a numa node that is too small is left behind"),
        pytest.param(1, [0, 1], "d1", id="one device needs no second"),
    ],
)  # fmt: skip
def test_numa_bind(count, numas, expected):
    states = [a_state(f"d{i}", numa=numa) for i, numa in enumerate(numas)]
    assert placed(a_request(count, memory=1), *states, annotations=BOUND) == expected


@pytest.mark.parametrize("value", ["false", "yes", "0", ""])
def test_numa_bind_follows_gos_booleans(value):
    states = [a_state("d0"), a_state("d1", numa=1)]
    assert (
        placed(a_request(2, memory=1), *states, annotations={"acme.com/numa-bind": value})
        == "d1 d0"
    )


def sums_to_at_most(limit):
    return lambda grants: sum(g.memory_mib for g in grants) <= limit


@pytest.mark.parametrize(
    ("request_", "limit", "expected"),
    [
        pytest.param(a_request(2, memory=2000), 4000, "d1 d2", id="two times 2000 fit 4000"),
        pytest.param(a_request(2, memory=3000), 4000, "1/4 AllocatedCardsInsufficientRequest, 3/4 ResourceQuotaNotFit", id="two times 3000 do not fit 4000"),
        pytest.param(a_request(percent=100), 2000, "d0", id="a whole device of 2000 fits: the larger ones are passed over"),
        pytest.param(a_request(percent=100), 1500, "4/4 ResourceQuotaNotFit", id="no whole device fits 1500"),
    ],
)  # fmt: skip
def test_quota_is_asked_device_by_device(request_, limit, expected):
    states = [a_state(f"d{i}", memory=m) for i, m in enumerate([2000, 8000, 6000, 4000])]
    assert placed(request_, *states, allowed=sums_to_at_most(limit)) == expected


def test_fix_the_smallest_devices_are_tried_where_quota_refuses_the_policys_order():
    states = [a_state("a", memory=4000), a_state("b", memory=4000), a_state("c", memory=8000)]
    assert placed(a_request(2, percent=100), *states, allowed=sums_to_at_most(8000)) == "b a"
    assert placed(a_request(2, percent=100), *states, allowed=sums_to_at_most(7999)) == (
        "1/3 AllocatedCardsInsufficientRequest, 2/3 ResourceQuotaNotFit"
    )


class Choosy(ProfileVendor):
    """Chooses what a test tells it."""

    def __init__(self, answer):
        super().__init__(ACME_YAML)
        self.answer = answer

    @hookimpl
    def hami_choose(self, request, candidates, ctx):
        return self.answer(candidates)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(lambda c: None, "d2 d1", id="None takes the default"),
        pytest.param(lambda c: [c[2][1], c[0][1]], "d0 d2", id="the vendor's choice is taken as it is"),
        pytest.param(lambda c: [c[0][1]], "3/3 VendorError", id="too few grants are a failure"),
        pytest.param(lambda c: [c[0][1], c[0][1]], "3/3 VendorError", id="one offer cannot be taken twice"),
        pytest.param(lambda c: [c[0][1], Grant(device_id="x", vendor="ACME")], "3/3 VendorError", id="a foreign grant is a failure"),
        pytest.param(lambda c: Rejected.of({reasons.VENDOR_RULE: 3}), "3/3 CardNotFoundCustomFilterRule", id="the vendor may refuse"),
        pytest.param(lambda c: 1 / 0, "3/3 VendorError", id="an exception is that vendor's failure"),
    ],
)  # fmt: skip
def test_choose(answer, expected):
    vendors = Vendors.of({"acme": Choosy(answer)})
    states = [a_state(f"d{i}") for i in range(3)]
    assert placed(a_request(2, memory=1), *states, vendors=vendors) == expected


def test_a_vendors_choice_must_fit_quota_together():
    vendors = Vendors.of({"acme": Choosy(lambda c: [g for _, g in c])})
    states = [a_state("d0"), a_state("d1")]
    request = a_request(2, memory=3000)
    assert (
        placed(request, *states, vendors=vendors, allowed=sums_to_at_most(4000))
        == "2/2 ResourceQuotaNotFit"
    )


class Placements(ProfileVendor):
    """Two slices a device, any device twice, whatever cores it says."""

    def __init__(self):
        super().__init__(
            ACME_YAML.replace(
                "- key",
                "- modes: {part: {several_slices_per_device: true, placements: true}}\n  key",
            )
        )

    @hookimpl
    def hami_charge(self, request, state, ctx):
        if len(state.grants) >= 2:
            return reasons.MIG_INFEASIBLE
        return Grant(device_id=state.device.id, vendor="ACME", memory_mib=10, cores=60)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(2, "d1 d1", id="one device twice"),
        pytest.param(3, "d1 d1 d0", id="then the next"),
        pytest.param(5, "2/2 CardMigTopologyInfeasible, 4/2 AllocatedCardsInsufficientRequest", id="until all are full"),
    ],
)  # fmt: skip
def test_several_slices_of_one_device(count, expected):
    vendors = Vendors.of({"acme": Placements()})
    states = [a_state(f"d{i}", mode="part") for i in range(2)]
    assert placed(a_request(count, memory=1), *states, vendors=vendors) == expected


class Replaced(ProfileVendor):
    """A vendor with a loop of its own."""

    def __init__(self, answer):
        super().__init__(ACME_YAML)
        self.answer = answer

    @hookimpl
    def hami_fit(self, request, states, ctx):
        return self.answer(states)


def one(memory: int, device: str = "d0") -> Grant:
    return Grant(device_id=device, vendor="ACME", memory_mib=memory)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(lambda s: Placement((one(8000),)), {}, id="a sound placement counts"),
        pytest.param(lambda s: Placement((one(8001),)), {"n1": "1/1 VendorError"}, id="more than the device has"),
        pytest.param(lambda s: Placement((one(1, "other"),)), {"n1": "1/1 VendorError"}, id="a device of nobody"),
        pytest.param(lambda s: Placement(()), {"n1": "1/1 VendorError"}, id="too few slices"),
        pytest.param(lambda s: Placement((one(1), one(1))), {"n1": "1/1 VendorError"}, id="too many slices"),
    ],
)  # fmt: skip
def test_a_replaced_loop_is_checked(answer, expected):
    cluster = Cluster(a_node("n1", a_device()), vendors=Vendors.of({"acme": Replaced(answer)}))
    outcome = cluster.try_pod(a_pod(gpu=1))
    assert (texts(outcome) if expected else where(outcome)) == (expected or ("n1", [["d0"]]))


@pytest.mark.parametrize(
    ("node", "asks", "answer", "problem"),
    [
        pytest.param([a_device(healthy=False)], {"gpu": 1}, ["d0"], "granted device d0, which is ill, cordoned or of unknown usage", id="an ill device"),
        pytest.param([a_device(), a_device("d1")], {"gpu": 2}, ["d0", "d0"], "granted device d0 twice", id="one device twice"),
    ],
)  # fmt: skip
def test_a_replaced_loop_is_told_what_was_wrong(node, asks, answer, problem):
    vendors = Vendors.of({"acme": Replaced(lambda s: Placement(tuple(one(1, i) for i in answer)))})
    cluster = Cluster(a_node("n1", *node), vendors=vendors)
    outcome = fit_pod(cluster.parse(a_pod(**asks)), cluster.table.devices("n1"), vendors)
    assert outcome.details == (f"hami_fit {problem}",)


# Whole pods.


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(a_pod("p", a_container("a", gpu=1, mem=5000), a_container("b", gpu=1, mem=5000)), [["d1"], ["d0"]], id="two apps run together: they need both"),
        pytest.param(a_pod("p", a_container("a", gpu=1, mem=4000, cores=50), a_container("b", gpu=1, mem=4000, cores=50)), [["d1"], ["d0"]], id="spread parts two apps that would fit one device"),
        pytest.param(a_pod("p", a_container("a", gpu=2, mem=5000), init=[a_container("i", gpu=2, mem=8000)]), [["d1", "d0"], ["d1", "d0"]], id="an init container has ended before the apps start"),
        pytest.param(a_pod("p", a_container("a", gpu=1, mem=5000), init=[a_container("s", restart="Always", gpu=1, mem=5000)]), [["d1"], ["d0"]], id="fix: a sidecar keeps its device while the apps run"),
        pytest.param(a_pod("p", a_container("a"), a_container("b", gpu=1, mem=1)), [[], ["d1"]], id="fix: a container without devices keeps its place"),
        pytest.param(a_pod("p", a_container("a", gpu=1, mem=1, npu=1, npumem=1)), [["d1", "b0"]], id="two vendors in one container"),
    ],
)  # fmt: skip
def test_pods(pod, expected):
    node = a_node("n1", a_device("d0"), a_device("d1"), a_device("b0", vendor="BOLT"))
    assert where(Cluster(node).try_pod(pod)) == ("n1", expected)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(a_pod("p", a_container("a", gpu=1, mem=5000), a_container("b", gpu=1, mem=5000)), "1/1 CardInsufficientMemory", id="two apps do not fit one device"),
        pytest.param(a_pod("p", a_container("a", gpu=1, mem=5000), init=[a_container("s", restart="Always", gpu=1, mem=5000)]), "1/1 CardInsufficientMemory", id="an app does not fit beside the sidecar"),
        pytest.param(a_pod("p", a_container("a", gpu=1, mem=1), init=[a_container("s", restart="Always", gpu=1, mem=5000), a_container("i", gpu=1, mem=5000)]), "1/1 CardInsufficientMemory", id="an init container does not fit beside the sidecar before it"),
        pytest.param(a_pod(gpu=2, mem=1), "NodeInsufficientDevice", id="fewer devices than wanted"),
        pytest.param(a_pod(npu=1), "NodeInsufficientDevice", id="no device of this vendor"),
        pytest.param(a_pod("p", a_container("a", gpu=1, mem=1), a_container("b", npu=1)), "NodeInsufficientDevice", id="one of two vendors is missing"),
    ],
)  # fmt: skip
def test_pods_that_do_not_fit(pod, expected):
    assert texts(Cluster(a_node("n1", a_device())).try_pod(pod)) == {"n1": expected}


def test_an_init_container_may_follow_the_sidecar_onto_what_is_left():
    pod = a_pod(
        "p",
        a_container("a", gpu=1, mem=3000),
        init=[a_container("i", gpu=1, mem=8000), a_container("s", restart="Always", gpu=1, mem=5000)],
    )  # fmt: skip
    cluster = Cluster(a_node("n1", a_device()))
    cluster.run(pod)
    assert cluster.usage("n1") == {"d0": Usage(2, 8000, 0)}


@given(
    memory=st.integers(1, 9000),
    cores=st.integers(0, 100),
    percent=st.none() | st.integers(1, 100),
    count=st.integers(1, 4),
    usage=st.lists(st.builds(Usage, st.integers(0, 10), st.integers(0, 8000), st.integers(0, 100)), min_size=4, max_size=4),
    policy=st.sampled_from(["binpack", "spread", "mutex", "numa,binpack"]),
    order=st.permutations(range(4)),
    bind=st.booleans(),
)  # fmt: skip
def test_the_answer_does_not_depend_on_the_order_of_devices(
    memory, cores, percent, count, usage, policy, order, bind
):
    states = [a_state(a_device(f"d{i}", numa=i % 2), u) for i, u in enumerate(usage)]
    request = a_request(count, memory=None if percent else memory, percent=percent, cores=cores)
    context = {"policy": policy, "annotations": BOUND if bind else {}}
    first = placed(request, *states, **context)
    assert placed(request, *(states[i] for i in order), **context) == first
