"""The boundary: whatever a plugin does wrong becomes its vendor's refusal, and nobody else's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hami.domain.admission import Admission, Denied
from hami.domain.allocations import ContainerAllocation, ContainerKind, Corrupt, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.errors import HamiError, Malformed, VendorFailed
from hami.domain.kubernetes.objects import Container, Metadata, Node, Pod, Resources
from hami.domain.measurements import MeasuredDevice, Measurement
from hami.domain.options import NodeOption
from hami.domain.profile import ALL_COLUMNS, HEALTH_AND_CORDON, ModeRules
from hami.domain.reasons import NO_SLOT, VENDOR_ERROR, VENDOR_RULE, Rejected
from hami.domain.requests import DeviceRequest, FitContext, Invalid, Placement
from hami.domain.scheduling import NodePolicy
from hami.domain.slices import ContainerEdits, HealthChange, Slice
from hami.hookspecs import HAMI_API, NodeHooks, SchedulerHooks, hookimpl
from hami.vendors.boundary import Vendor, VendorFailure
from hami.vendors.registry import Vendors

from .builders import a_plugin, a_profile, answering

CONTAINER = Container(name="c", resources=Resources(limits={"acme.com/gpu": "1"}))
POD = Pod(metadata=Metadata(name="p", uid="u"))
NODE = Node(metadata=Metadata(name="n1"))
REQUEST = DeviceRequest(vendor="ACME", count=1, memory_mib=10)
DEVICE = Device(id="d0", vendor="ACME", memory_mib=100)
STATE = DeviceState(DEVICE)
GRANT = Grant(device_id="d0", vendor="ACME", memory_mib=10)
CTX = FitContext(pod=POD, node=NODE, container=CONTAINER)
OTHERS = Grant(device_id="b0", vendor="BOLT")
ALLOCATION = PodAllocation(
    node="n1",
    containers=(
        ContainerAllocation(name="c", kind=ContainerKind.APP, grants=(GRANT, OTHERS, GRANT)),
    ),
)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
SLICE = Slice(id="s", vendor="ACME", pod_uid="u", namespace="default", pod="p", container="c",
              kind=ContainerKind.APP, grants=(GRANT,), state_dir=Path("/state"))  # fmt: skip


@dataclass(frozen=True)
class Hook:
    """How a hook is called through the boundary, and what it may and may not answer."""

    name: str
    call: Callable[[Vendor], Any]
    good: Any
    nonsense: tuple[Any, ...]


def text_of(hook: str) -> str:
    """The failure of a hook that raises ``ValueError("boom")``."""
    return f"acme: {hook} of vendor ACME failed: ValueError: boom"


def spoiled(*grants: Grant, node: str = "n1") -> PodAllocation:
    (container,) = ALLOCATION.containers
    return PodAllocation(node=node, containers=(replace(container, grants=grants),))


class Exploding(list):
    """A sequence that fails when it is read."""

    def __iter__(self):
        raise KeyError("lazily")


FOREIGN_GRANTS = (
    replace(GRANT, vendor="ZETA"),
    replace(GRANT, memory_mib=-1),
    replace(GRANT, slots=0),
    replace(GRANT, cores=1.5),
    replace(GRANT, memory_mib="8Gi"),
)
FOREIGN_DEVICES = (
    replace(DEVICE, vendor="ZETA"),
    replace(DEVICE, id=""),
    replace(DEVICE, memory_mib="x"),
    replace(DEVICE, slots=-1),
    replace(DEVICE, cores=2**31),
    replace(DEVICE, numa=None),
    replace(DEVICE, model=None),
)
FOREIGN_REQUESTS = (
    replace(REQUEST, vendor="ZETA"),
    replace(REQUEST, count=0),
    replace(REQUEST, memory_percent=5),
    replace(REQUEST, memory_mib=None),
    replace(REQUEST, cores=-1),
)

SPOILED = (
    spoiled(replace(GRANT, memory_mib=9), OTHERS, GRANT),
    spoiled(replace(GRANT, device_id="d9"), OTHERS, GRANT),
    spoiled(GRANT, replace(OTHERS, memory_mib=1), GRANT),
    spoiled(GRANT, OTHERS),
    spoiled(GRANT, OTHERS, GRANT, node="elsewhere"),
    PodAllocation(node="n1", containers=(*ALLOCATION.containers, *spoiled().containers)),
)
"""What ``hami_restore`` must not make of :data:`ALLOCATION`: less, more, or another's."""

SCHEDULER = [
    Hook("hami_node_devices", lambda v: v.node_devices(NODE), (DEVICE,), (None, 7, "d0", [DEVICE, 7], *([d] for d in FOREIGN_DEVICES))),
    Hook("hami_admit", lambda v: v.admit(CONTAINER, POD, ContainerKind.APP), Admission(env={"A": "1"}), (None, "no", {})),
    Hook("hami_parse_request", lambda v: v.parse_request(CONTAINER, POD), REQUEST, (7, False, [REQUEST], *FOREIGN_REQUESTS)),
    Hook("hami_charge", lambda v: v.charge(REQUEST, STATE, CTX), GRANT, (None, "no", [GRANT], True, replace(GRANT, device_id="d9"), *FOREIGN_GRANTS)),
    Hook("hami_accept", lambda v: v.accept(REQUEST, STATE, (), CTX), VENDOR_RULE, (True, False, "no")),
    Hook("hami_choose", lambda v: v.choose(REQUEST, [(STATE, GRANT)] * 3, CTX), (GRANT,), (7, GRANT, [GRANT, None], "ab")),
    Hook("hami_fit", lambda v: v.fit(REQUEST, [STATE] * 3, CTX), Placement((GRANT,)), (None, [GRANT], 7, *(Placement((g,)) for g in FOREIGN_GRANTS))),
    Hook("hami_score", lambda v: v.score(REQUEST, Placement((GRANT,)), [STATE], NodePolicy.SPREAD), 1.5, (None, "1", math.nan, math.inf, -math.inf, 10**400, 1j)),
    Hook("hami_allocation_annotations", lambda v: v.allocation_annotations(ALLOCATION, [DEVICE], POD, NOW), {"a": "1"}, (None, 7, ["a"], {"a": 1}, {1: "a"}, {"a": None})),
    Hook("hami_restore", lambda v: v.restore(POD, ALLOCATION), ALLOCATION, (None, 7, (GRANT,), *SPOILED)),
]  # fmt: skip
REFUSALS = {
    "hami_node_devices": lambda text: Malformed(annotation="acme.com/register", position="", text="", problem=text),
    "hami_admit": Denied,
    "hami_parse_request": lambda text: Invalid(f"container c: VendorError: {text}"),
    "hami_charge": lambda text: VENDOR_ERROR,
    "hami_accept": lambda text: VENDOR_ERROR,
    "hami_choose": lambda text: Rejected.of({VENDOR_ERROR: 3}, 3, [text]),
    "hami_fit": lambda text: Rejected.of({VENDOR_ERROR: 3}, 3, [text]),
    "hami_score": lambda text: None,
    "hami_allocation_annotations": lambda text: None,
    "hami_restore": lambda text: Corrupt(("d0",), text),
}  # fmt: skip
NODE_SIDE = [
    Hook("hami_node_annotations", lambda v: v.node_annotations([DEVICE]), {"a": "1"}, (None, 7, {"a": 1})),
    Hook("hami_node_options", lambda v: v.node_options(), (NodeOption(section="acme", key="k", help="k"),), (None, 7, [7])),
    Hook("hami_discover", lambda v: v.discover({}), (DEVICE,), (None, 7, [7], "ab", DEVICE)),
    Hook("hami_static_devices", lambda v: v.static_devices({}), {"acme.com/whole": (DEVICE,)}, (None, 7, [DEVICE], {"a": 7}, {"a": [7]}, {1: [DEVICE]})),
    Hook("hami_static_edits", lambda v: v.static_edits([DEVICE], {}), ContainerEdits(env={"A": "1"}), (None, {"env": {}}, 7)),
    Hook("hami_enforce", lambda v: v.enforce(SLICE, {}), ContainerEdits(env={"A": "1"}), (None, {"env": {}}, 7)),
    Hook("hami_release", lambda v: v.release(SLICE, {}), None, (True, 7)),
    Hook("hami_reconcile", lambda v: v.reconcile([SLICE], {}), None, (True, 7)),
    Hook("hami_check_health", lambda v: v.check_health([DEVICE]), (HealthChange("d0", healthy=False),), (None, [DEVICE], 7, {})),
    Hook("hami_measure", lambda v: v.measure([DEVICE], [SLICE]), Measurement(devices=(MeasuredDevice(id="d0"),)), (None, [7], 7, ())),
]  # fmt: skip
EVERY = [pytest.param(hook, id=hook.name) for hook in [*SCHEDULER, *NODE_SIDE]]
AT_THE_SCHEDULER = [pytest.param(hook, id=hook.name) for hook in SCHEDULER]
ON_THE_NODE = [pytest.param(hook, id=hook.name) for hook in NODE_SIDE]


def nonsense(hooks: list[Hook]) -> list[Any]:
    return [
        pytest.param(hook, answer, id=f"{hook.name} returns {str(answer)[:20]}")
        for hook in hooks
        for answer in hook.nonsense
    ]


@pytest.fixture
def failures() -> list[VendorFailure]:
    return []


@pytest.fixture
def answered(failures) -> Callable[[Hook, Any], Vendors]:
    """``answered(hook, answer)``: ACME's hook gives this answer; BOLT follows the defaults."""

    def answered(hook: Hook, answer: Any) -> Vendors:
        plugins = {
            "acme": a_plugin(answering(hook.name, answer)),
            "bolt": a_plugin(vendors=("BOLT",)),
        }
        return Vendors.of(plugins, on_failure=failures.append)

    return answered


def test_every_hook_of_the_contract_is_in_these_tables():
    hooks = {name for spec in (SchedulerHooks, NodeHooks) for name in vars(spec)}
    specified = {name for name in hooks if name.startswith("hami_")}
    of_the_registry = {"hami_vendors", "hami_simulated_annotations"}
    assert {hook.name for hook in [*SCHEDULER, *NODE_SIDE]} == specified - of_the_registry
    assert {hook.name for hook in SCHEDULER} == REFUSALS.keys()


@pytest.mark.parametrize("hook", EVERY)
def test_a_good_answer_passes(hook, answered, failures):
    assert hook.call(answered(hook, hook.good)["ACME"]) == hook.good
    assert failures == []


@pytest.mark.parametrize("hook", AT_THE_SCHEDULER)
def test_an_exception_becomes_the_vendors_refusal(hook, answered, failures):
    error = ValueError("boom")
    answer = hook.call(answered(hook, error)["ACME"])
    assert answer == REFUSALS[hook.name](text_of(hook.name))
    assert [(f.vendor, f.hook, f.distribution, f.error) for f in failures] == [
        ("ACME", hook.name, "acme", error)
    ]
    assert str(failures[0]) == text_of(hook.name)


@pytest.mark.parametrize(("hook", "answer"), nonsense(SCHEDULER))
def test_nonsense_becomes_the_vendors_refusal(hook, answer, answered, failures):
    refusal = hook.call(answered(hook, answer)["ACME"])
    (failure,) = failures
    assert (failure.vendor, failure.hook, failure.distribution) == ("ACME", hook.name, "acme")
    assert failure.problem
    assert refusal == REFUSALS[hook.name](str(failure))


@pytest.mark.parametrize("hook", ON_THE_NODE)
def test_an_exception_on_the_node_is_raised_for_a_retry(hook, answered, failures):
    error = ValueError("boom")
    with pytest.raises(VendorFailed) as caught:
        hook.call(answered(hook, error)["ACME"])
    assert str(caught.value) == text_of(hook.name)
    assert caught.value.__cause__ is error
    assert isinstance(caught.value, HamiError)
    assert [f.error for f in failures] == [error]


@pytest.mark.parametrize(("hook", "answer"), nonsense(NODE_SIDE))
def test_nonsense_on_the_node_is_raised(hook, answer, answered, failures):
    with pytest.raises(VendorFailed, match=rf"acme: {hook.name} of vendor ACME failed: returned "):
        hook.call(answered(hook, answer)["ACME"])
    assert [f.hook for f in failures] == [hook.name]


@pytest.mark.parametrize("hook", EVERY)
def test_another_vendor_answers_as_if_nothing_had_happened(hook, answered, failures):
    alone = Vendors.of({"bolt": a_plugin(vendors=("BOLT",))})["BOLT"]
    beside = answered(hook, ValueError("boom"))["BOLT"]
    if hook.name in ("hami_discover", "hami_enforce", "hami_score"):
        assert hook.name not in beside.hooks  # they have no default to compare
        return
    assert hook.call(beside) == hook.call(alone)
    assert failures == []


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param(lambda v: v.accept(REQUEST, STATE, (), CTX), None, id="accept: accepted"),
        pytest.param(lambda v: v.choose(REQUEST, [], CTX), None, id="choose: the default choice"),
        pytest.param(lambda v: v.parse_request(CONTAINER, POD), None, id="parse_request: asks nothing"),
    ],
)  # fmt: skip
def test_none_is_an_answer_where_the_contract_says_so(call, expected, failures):
    hooks = (answering(f"hami_{name}", None) for name in ("accept", "choose", "parse_request"))
    vendors = Vendors.of({"acme": a_plugin(*hooks)}, on_failure=failures.append)
    assert call(vendors["ACME"]) is expected
    assert failures == []


@pytest.mark.parametrize(
    ("hook", "answer"),
    [
        pytest.param("hami_node_devices", Malformed(annotation="a", position="", text="", problem="x"), id="malformed"),
        pytest.param("hami_admit", Denied("no"), id="denied"),
        pytest.param("hami_parse_request", Invalid("no"), id="invalid"),
        pytest.param("hami_charge", NO_SLOT, id="a reason instead of a grant"),
        pytest.param("hami_choose", Rejected.of({NO_SLOT: 1}, 1), id="no choice"),
        pytest.param("hami_fit", Rejected.of({NO_SLOT: 1}, 1), id="no placement"),
        pytest.param("hami_restore", Corrupt(("d0",), "no"), id="corrupt"),
        pytest.param("hami_score", 3, id="a whole number"),
    ],
)  # fmt: skip
def test_the_other_legal_answer_passes_too(hook, answer, answered, failures):
    found = next(h for h in SCHEDULER if h.name == hook)
    assert found.call(answered(found, answer)["ACME"]) == answer
    assert failures == []


def test_a_failure_without_a_listener_is_a_refusal_all_the_same():
    vendors = Vendors.of({"acme": a_plugin(answering("hami_fit", ValueError("boom")))})
    assert str(vendors["ACME"].fit(REQUEST, [STATE], CTX)) == "1/1 VendorError"


def test_a_huge_answer_is_named_shortly(answered, failures):
    hook = next(h for h in SCHEDULER if h.name == "hami_admit")
    hook.call(answered(hook, "x" * 10_000)["ACME"])
    assert len(str(failures[0])) < 250


def test_a_failing_wrapper_refuses_and_crashes_nothing(failures):
    class Broken:
        HAMI_API = HAMI_API

        @hookimpl(wrapper=True)
        def hami_fit(self):
            yield
            raise ValueError("boom")

    vendors = Vendors.of({"acme": a_plugin(), "trace": Broken()}, on_failure=failures.append)
    assert str(vendors["ACME"].fit(REQUEST, [STATE], CTX)) == "1/1 VendorError"
    assert [failure.hook for failure in failures] == ["hami_fit"]


def test_a_refusal_within_the_default_fit_names_the_hook_that_failed(failures):
    plugin = a_plugin(answering("hami_charge", ValueError("boom")))
    vendors = Vendors.of({"acme": plugin}, on_failure=failures.append)
    assert str(vendors["ACME"].fit(REQUEST, [STATE, STATE], CTX)) == "2/2 VendorError"
    assert [failure.hook for failure in failures] == ["hami_charge", "hami_charge"]


# What the vendor says of itself.


@pytest.mark.parametrize("hook", ["hami_discover", "hami_enforce"])
def test_a_node_hook_without_a_default_says_who_lacks_it(hook):
    vendor = Vendors.of({"acme": a_plugin()})["ACME"]
    called = next(h for h in NODE_SIDE if h.name == hook)
    with pytest.raises(VendorFailed, match=f"acme does not implement {hook}"):
        called.call(vendor)


def test_node_hooks_with_a_default_do_nothing():
    vendor = Vendors.of({"acme": a_plugin()})["ACME"]
    assert vendor.release(SLICE, {}) is None
    assert vendor.reconcile([], {}) is None
    assert vendor.check_health([DEVICE]) == ()
    assert vendor.measure([DEVICE], [SLICE]) == Measurement()


@pytest.mark.parametrize(
    ("hook", "facts"),
    [
        pytest.param("hami_admit", (False, False, False, False), id="admission is no part of it"),
        pytest.param("hami_score", (True, False, False, False), id="scores"),
        pytest.param("hami_choose", (False, True, False, False), id="chooses"),
        pytest.param("hami_fit", (False, False, True, False), id="fits"),
        pytest.param("hami_discover", (False, False, False, True), id="has a node's side"),
        pytest.param("hami_measure", (False, False, False, True), id="any node hook counts"),
    ],
)
def test_what_a_vendor_implements(hook, facts):
    vendor = Vendors.of({"acme": a_plugin(answering(hook, None))})["ACME"]
    assert (vendor.scores, vendor.chooses, vendor.fits, vendor.has_node_hooks) == facts
    assert vendor.hooks == tuple(sorted((hook, "hami_vendors")))


def test_a_wrapper_does_not_count_as_an_implementation():
    class Watching:
        HAMI_API = HAMI_API

        @hookimpl(wrapper=True)
        def hami_score(self):
            return (yield)

    vendor = Vendors.of({"acme": a_plugin(), "trace": Watching()})["ACME"]
    assert not vendor.scores


@pytest.mark.parametrize(
    ("hook", "columns"),
    [
        pytest.param("hami_admit", ALL_COLUMNS, id="the default loop: all"),
        pytest.param("hami_score", ALL_COLUMNS, id="a score refuses nothing"),
        pytest.param("hami_charge", HEALTH_AND_CORDON, id="its own charge"),
        pytest.param("hami_accept", HEALTH_AND_CORDON, id="its own rule"),
        pytest.param("hami_choose", HEALTH_AND_CORDON, id="its own choice"),
        pytest.param("hami_fit", HEALTH_AND_CORDON, id="its own fit"),
    ],
)
def test_columns_that_may_refuse_in_the_prefilter(hook, columns):
    vendor = Vendors.of({"acme": a_plugin(answering(hook, None))})["ACME"]
    assert vendor.rules("").prefilter == columns


def test_a_profile_decides_about_its_columns_itself():
    modes = {"mig": ModeRules(prefilter=frozenset(), several_slices_per_device=True)}
    vendor = Vendors.of({"acme": a_plugin(vendors=(a_profile(modes=modes),))})["ACME"]
    assert vendor.rules("mig") == modes["mig"]
    assert vendor.rules("other").prefilter == ALL_COLUMNS


@pytest.mark.parametrize("answer", [SystemExit(3), Exploding([DEVICE])])
def test_leaving_or_failing_late_is_a_failure_like_any_other(answer, answered, failures):
    hook = next(h for h in SCHEDULER if h.name == "hami_node_devices")
    assert isinstance(hook.call(answered(hook, answer)["ACME"]), Malformed)
    assert len(failures) == 1


@pytest.mark.parametrize("hook", ["hami_admit", "hami_parse_request"])
def test_a_vendor_that_fails_does_not_stand_in_the_way_of_pods_that_do_not_ask_it(hook, failures):
    vendors = Vendors.of(
        {"acme": a_plugin(answering(hook, ValueError("boom")))}, on_failure=failures.append
    )
    plain = Container(name="c", resources=Resources(limits={"cpu": "1"}))
    assert vendors["ACME"].admit(plain, POD, ContainerKind.APP) == Admission()
    assert vendors["ACME"].parse_request(plain, POD) is None
    assert len(failures) == 1
