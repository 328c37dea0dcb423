from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hami_mock import MockVendor
from hami_mock.settings import SCHEDULER_HOOKS
from hami_mock.tags import TAG_KEY, Tag
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hami.domain.admission import Admission, Denied
from hami.domain.allocations import ContainerAllocation, ContainerKind, Corrupt, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant, Usage
from hami.domain.errors import Malformed, PluginRejected, VendorFailed
from hami.domain.kubernetes.objects import Container, Metadata, Node, Pod, Resources
from hami.domain.reasons import VENDOR_ERROR, Rejected
from hami.domain.requests import DeviceRequest, FitContext, Invalid, Placement
from hami.domain.scheduling import NodePolicy
from hami.domain.units import DeviceId, VendorKey
from hami.hookspecs import NodeHooks, SchedulerHooks
from hami.vendors.boundary import Vendor, VendorFailure
from hami.vendors.registry import Vendors

MOCK = VendorKey("MOCK")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def the_vendor(on_failure: Callable[[VendorFailure], None] = lambda _: None, **mock: Any) -> Vendor:
    return Vendors.of({"mock": MockVendor()}, {"mock": mock}, on_failure=on_failure)[MOCK]


def a_device(index: int = 0) -> Device:
    return Device(
        id=DeviceId(f"MOCK-n1-{index}"),
        vendor=MOCK,
        index=index,
        model="Mock-16G",
        slots=10,
        memory_mib=16384,
        mode="mock",
    )


def a_container(**asked: str) -> Container:
    names = {f"mock.hami.io/{key.replace('_', '-')}": text for key, text in asked.items()}
    return Container(name="c", resources=Resources(limits=names))


def a_pod(**annotations: str) -> Pod:
    written = {f"mock.hami.io/{key}": text for key, text in annotations.items()}
    return Pod(metadata=Metadata(name="p", namespace="ns", annotations=written))


def a_node(**annotations: str) -> Node:
    written = {f"mock.hami.io/{key}": text for key, text in annotations.items()}
    return Node(metadata=Metadata(name="n1", annotations=written))


def a_context(pod: Pod | None = None, node: Node | None = None) -> FitContext:
    return FitContext(pod=pod or a_pod(), node=node or a_node(), container=a_container())


def a_request(count: int = 1, mem: int = 1000, cores: int = 10) -> DeviceRequest:
    return DeviceRequest(vendor=MOCK, count=count, memory_mib=mem, cores=cores)


def a_grant(index: int = 0, tag: str = "") -> Grant:
    grant = Grant(device_id=a_device(index).id, vendor=MOCK, memory_mib=1000, cores=10)
    return replace(grant, extra=grant.extra.with_(TAG_KEY, Tag(tag))) if tag else grant


def test_every_hook_of_the_contract_is_implemented() -> None:
    hooks = {name for side in (SchedulerHooks, NodeHooks) for name in vars(side)}
    assert set(the_vendor().hooks) == {name for name in hooks if name.startswith("hami_")}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param(
            a_container(device="2", memory="1Gi", cores="30"), (2, 1024, None, 30), id="MiB"
        ),
        pytest.param(
            a_container(device="1", memory_percentage="25"), (1, None, 25, 0), id="percent"
        ),
        pytest.param(a_container(device="1"), (1, None, 100, 0), id="all memory"),
    ],
)
def test_requests(container: Container, expected: tuple[int | None, ...]) -> None:
    request = the_vendor().parse_request(container, a_pod())
    assert isinstance(request, DeviceRequest)
    found = (request.count, request.memory_mib, request.memory_percent, request.cores)
    assert found == expected


def test_memory_alone_means_one_device() -> None:
    admission = the_vendor().admit(a_container(memory="1000"), a_pod(), ContainerKind.APP)
    assert isinstance(admission, Admission)
    assert admission.limits == {"mock.hami.io/device": "1"}


def test_fit_takes_as_many_devices_as_asked() -> None:
    states = [DeviceState(a_device(index)) for index in range(3)]
    outcome = the_vendor().fit(a_request(count=2), states, a_context())
    assert isinstance(outcome, Placement)
    assert len({grant.device_id for grant in outcome.grants}) == 2


def test_fit_counts_reasons_as_the_core_does() -> None:
    full = DeviceState(a_device(), Usage(1, 16000, 10))
    outcome = the_vendor().fit(a_request(), [full], a_context())
    assert str(outcome) == "1/1 CardInsufficientMemory"


@pytest.mark.parametrize(
    ("taken", "used", "score"),
    [
        pytest.param([0], [0], 0.0, id="a shared device stays shared"),
        pytest.param([0], [], -1.0, id="an unused device is broken"),
        pytest.param([0, 1], [1], -1.0, id="one of two"),
        pytest.param([0, 0], [], -1.0, id="two slices of one device"),
    ],
)
def test_score_keeps_devices_whole(taken: list[int], used: list[int], score: float) -> None:
    before = [DeviceState(a_device(index), Usage(slots=int(index in used))) for index in range(2)]
    placement = Placement(tuple(a_grant(index) for index in taken))
    found = the_vendor().score(a_request(), placement, before, NodePolicy.BINPACK)
    assert found == score


# Tags: a vendor's own value on a grant.


def an_allocation(*containers: tuple[Grant, ...]) -> PodAllocation:
    return PodAllocation(
        node="n1",
        containers=tuple(
            ContainerAllocation(name=f"c{number}", kind=ContainerKind.APP, grants=grants)
            for number, grants in enumerate(containers)
        ),
    )


def without_extras(allocation: PodAllocation) -> PodAllocation:
    """As the core's device lists give it back."""
    bare = [
        tuple(
            Grant(device_id=g.device_id, vendor=g.vendor, memory_mib=g.memory_mib, cores=g.cores)
            for g in container.grants
        )
        for container in allocation.containers
    ]
    return an_allocation(*bare)


def test_a_grant_carries_the_tag_of_its_pod() -> None:
    grant = the_vendor().charge(a_request(), DeviceState(a_device()), a_context(a_pod(tag="blue")))
    assert isinstance(grant, Grant)
    assert grant.extra.encode() == {"mock.tag": {"text": "blue"}}


def test_tags_golden() -> None:
    foreign = Grant(device_id=DeviceId("GPU-0"), vendor=VendorKey("NVIDIA"))
    allocation = an_allocation((), (foreign, a_grant(1, tag="blue")))
    written = the_vendor().allocation_annotations(allocation, [a_device(1)], a_pod(), NOW)
    assert written == {
        "mock.hami.io/tags": '[{"container":1,"device":0,"id":"MOCK-n1-1","tag":{"text":"blue"}}]'
    }


def test_a_pod_without_tags_still_overwrites_what_its_author_wrote() -> None:
    written = the_vendor().allocation_annotations(an_allocation((a_grant(),)), [], a_pod(), NOW)
    assert written == {"mock.hami.io/tags": "[]"}


grants = st.builds(
    lambda index, tag, vendor: replace(
        a_grant(index, tag if vendor == "MOCK" else ""), vendor=vendor
    ),
    st.integers(0, 3),
    st.sampled_from(["", "blue", 'a"b;é']),
    st.sampled_from([MOCK, VendorKey("NVIDIA")]),
)


@given(st.lists(st.lists(grants, max_size=3).map(tuple), min_size=1, max_size=3))
def test_restore_undoes_what_the_decision_wrote(containers: list[tuple[Grant, ...]]) -> None:
    vendor, allocation = the_vendor(), an_allocation(*containers)
    written = vendor.allocation_annotations(allocation, [], a_pod(), NOW)
    assert written is not None
    pod = Pod(metadata=Metadata(annotations=dict(written)))
    assert vendor.restore(pod, without_extras(allocation)) == allocation


ENTRY = {"container": 0, "device": 0, "id": "MOCK-n1-0", "tag": {"text": "blue"}}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{}", id="no list"),
        pytest.param(json.dumps([{**ENTRY, "tag": 1}]), id="no tag"),
        pytest.param(json.dumps([{**ENTRY, "device": 1}]), id="a grant too many"),
        pytest.param(json.dumps([{**ENTRY, "id": "MOCK-n1-9"}]), id="another device"),
        pytest.param(json.dumps([ENTRY, ENTRY]), id="one grant twice"),
    ],
)
def test_tags_that_contradict_the_allocation_are_corrupt(text: str) -> None:
    answer = the_vendor().restore(a_pod(tags=text), an_allocation((a_grant(),)))
    assert isinstance(answer, Corrupt)
    assert answer.device_ids == ("MOCK-n1-0",)
    assert "mock.hami.io/tags" in answer.problem


# Failures on demand.


def call(vendor: Vendor, hook: str, pod: Pod, node: Node) -> Any:
    """Call one hook of the scheduler's side as the core does."""
    state, context = DeviceState(a_device()), a_context(pod, node)
    container, allocation = a_container(device="1"), an_allocation((a_grant(),))
    request = vendor.parse_request(container, pod)
    asked = request if isinstance(request, DeviceRequest) else a_request()
    calls: dict[str, Callable[[], Any]] = {
        "hami_node_devices": lambda: vendor.node_devices(node),
        "hami_node_annotations": lambda: vendor.node_annotations([a_device()]),
        "hami_admit": lambda: vendor.admit(container, pod, ContainerKind.APP),
        "hami_parse_request": lambda: request,
        "hami_charge": lambda: vendor.charge(asked, state, context),
        "hami_accept": lambda: vendor.accept(asked, state, [], context),
        "hami_choose": lambda: vendor.choose(asked, [], context),
        "hami_fit": lambda: vendor.fit(asked, [state], context),
        "hami_score": lambda: vendor.score(
            asked, Placement((a_grant(),)), [state], NodePolicy.SPREAD
        ),
        "hami_allocation_annotations": lambda: vendor.allocation_annotations(
            allocation, [a_device()], pod, NOW
        ),
        "hami_restore": lambda: vendor.restore(pod, allocation),
    }
    try:
        return calls[hook]()
    except VendorFailed as failed:
        return failed


REFUSALS: dict[str, Callable[[Any], bool]] = {
    "hami_node_devices": lambda answer: isinstance(answer, Malformed),
    "hami_node_annotations": lambda answer: isinstance(answer, VendorFailed),
    "hami_admit": lambda answer: isinstance(answer, Denied),
    "hami_parse_request": lambda answer: isinstance(answer, Invalid),
    "hami_charge": lambda answer: answer == VENDOR_ERROR,
    "hami_accept": lambda answer: answer == VENDOR_ERROR,
    "hami_choose": lambda answer: isinstance(answer, Rejected),
    "hami_fit": lambda answer: isinstance(answer, Rejected),
    "hami_score": lambda answer: answer is None,
    "hami_allocation_annotations": lambda answer: answer is None,
    "hami_restore": lambda answer: isinstance(answer, Corrupt),
}


def test_every_scheduler_hook_has_a_failure_here() -> None:
    elsewhere = {"hami_vendors", "hami_simulated_annotations"}
    assert set(REFUSALS) == SCHEDULER_HOOKS - elsewhere


NOT_BY_POD = ("hami_node_devices", "hami_node_annotations")
BY_NODE = ("hami_node_devices", "hami_charge", "hami_accept", "hami_choose", "hami_fit")


@pytest.mark.parametrize("hook", sorted(REFUSALS))
def test_a_hook_fails_when_the_section_asks_so(hook: str) -> None:
    seen: list[VendorFailure] = []
    vendor = the_vendor(seen.append, fail={hook: "raise"})
    assert REFUSALS[hook](call(vendor, hook, a_pod(), a_node()))
    assert {failure.hook for failure in seen} == {hook}
    assert "mock.fail" in str(seen[0])


@pytest.mark.parametrize("hook", sorted(REFUSALS.keys() - {*NOT_BY_POD}))
def test_a_hook_fails_when_the_pod_asks_so(hook: str) -> None:
    seen: list[VendorFailure] = []
    vendor = the_vendor(seen.append)
    pod = a_pod(fail=f" hami_restore=raise , {hook}=raise")
    assert REFUSALS[hook](call(vendor, hook, pod, a_node()))
    assert {failure.hook for failure in seen} == {hook}
    assert "of pod" in str(seen[0])


@pytest.mark.parametrize("hook", BY_NODE)
def test_a_hook_fails_when_the_node_asks_so(hook: str) -> None:
    seen: list[VendorFailure] = []
    answer = call(the_vendor(seen.append), hook, a_pod(), a_node(fail=f"{hook}=raise"))
    assert REFUSALS[hook](answer)
    assert "of node n1" in str(seen[0])


@pytest.mark.parametrize("hook", sorted(REFUSALS))
def test_a_hook_that_nobody_asks_to_fail_does_not(hook: str) -> None:
    seen: list[VendorFailure] = []
    assert not REFUSALS[hook](call(the_vendor(seen.append), hook, a_pod(), a_node()))
    assert seen == []


def test_a_failing_charge_refuses_the_node_and_names_the_hook() -> None:
    outcome = call(the_vendor(), "hami_fit", a_pod(fail="hami_charge=raise"), a_node())
    assert isinstance(outcome, Rejected)
    assert (str(outcome), "hami_charge" in outcome.details[0]) == ("1/1 VendorError", True)


def test_failing_to_name_its_vendors_stops_the_start() -> None:
    with pytest.raises(PluginRejected, match="hami_vendors fails"):
        the_vendor(fail={"hami_vendors": "raise"})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("hami_chargee=raise", id="misspelt hook"),
        pytest.param("hami_charge", id="no way to fail"),
        pytest.param("hami_charge=slow", id="a slow scheduler hook"),
        pytest.param("hami_enforce=raise", id="a hook of the node's side"),
        pytest.param("hami_fit=raise,", id="a comma too many"),
    ],
)
def test_a_wish_that_cannot_be_read_is_refused_and_not_ignored(text: str) -> None:
    request = the_vendor().parse_request(a_container(device="1"), a_pod(fail=text))
    assert isinstance(request, Invalid)
    assert "mock.hami.io/fail" in request.text
    assert isinstance(the_vendor().node_devices(a_node(fail=text)), Malformed)


def test_a_pod_without_devices_may_write_what_it_wants() -> None:
    assert the_vendor().parse_request(Container(name="c"), a_pod(fail="nonsense")) is None
