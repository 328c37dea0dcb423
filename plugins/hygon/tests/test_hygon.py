from __future__ import annotations

from typing import Any

import hami_hygon
import pytest

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant, Usage
from hami.domain.errors import ConfigError, PluginRejected
from hami.domain.kubernetes.objects import Container, Metadata, Node, Pod, Resources
from hami.domain.requests import DeviceRequest, FitContext, Invalid, Placement
from hami.domain.scheduling import DevicePolicy, SchedulingPolicy
from hami.domain.units import DeviceId, VendorKey
from hami.vendors.registry import Vendors
from hami.wire.allocation import encode_allocation

DCU, HCU = VendorKey("DCU"), VendorKey("HCU")


def vendors(**hygon: Any) -> Vendors:
    return Vendors.of({"hygon": hami_hygon.plugin}, {"hygon": hygon} if hygon else {})


def a_container(limits: dict[str, str] | None = None, **requests: str) -> Container:
    return Container(name="c", resources=Resources(limits=limits, requests=requests or None))


def dcu(num: str | None = "1", mem: str | None = None, cores: str | None = None) -> dict[str, str]:
    asked = {"hygon.com/dcunum": num, "hygon.com/dcumem": mem, "hygon.com/dcucores": cores}
    return {name: text for name, text in asked.items() if text is not None}


def hcu(**asked: str) -> dict[str, str]:
    return {key.replace("dcu", "hcu"): text for key, text in dcu(**asked).items()}


def a_request(count: int = 1, mem: int = 0, percent: int = 0, cores: int = 100) -> DeviceRequest:
    return DeviceRequest(
        vendor=DCU,
        count=count,
        memory_mib=mem or None,
        memory_percent=percent or None,
        cores=cores,
    )


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param(dcu("1", "2000", "60"), a_request(1, 2000, cores=60), id="share"),
        pytest.param(dcu("2"), a_request(2, percent=100), id="two whole devices"),
        pytest.param(dcu("1", "2000"), a_request(1, 2000), id="cores default to a whole device"),
        pytest.param(dcu("1", "0", "0"), a_request(1, percent=100, cores=0), id="0 MiB is all"),
        pytest.param(dcu("1", "2k", "60"), a_request(1, 2000, cores=60), id="2k counts MiB"),
        pytest.param(dcu("1", "2Gi"), a_request(1, 2048), id="our 2Gi is bytes: no whole device"),
        pytest.param(
            dcu("1", None, "150"), a_request(1, percent=100, cores=150), id="clamped later"
        ),
        pytest.param(dcu("0"), None, id="count 0 asks nothing"),
        pytest.param(dcu(None, "2000", "60"), None, id="memory without count asks nothing"),
        pytest.param(hcu(num="1", mem="2000"), None, id="another profile's names ask nothing"),
    ],
)
def test_parse_as_hami(limits: dict[str, str], expected: DeviceRequest | None) -> None:
    assert vendors()[DCU].parse_request(a_container(limits), Pod()) == expected


@pytest.mark.parametrize(
    ("limits", "names"),
    [
        pytest.param(dcu("-1"), ("hygon.com/dcunum", "-1"), id="negative count"),
        pytest.param(dcu("1.5"), ("hygon.com/dcunum", "1.5"), id="half a device"),
        pytest.param(dcu("2147483648"), ("hygon.com/dcunum", "2147483648"), id="count over int32"),
        pytest.param(dcu("1", "-1"), ("hygon.com/dcumem", "-1"), id="negative memory"),
        pytest.param(dcu("1", "500M"), ("500M", "500Mi"), id="memory of no device, with a remedy"),
        pytest.param(dcu("1", "1", "x"), ("hygon.com/dcucores", "x"), id="cores are no number"),
    ],
)
def test_bad_quantities_are_refused_where_hami_sees_no_request(
    limits: dict[str, str], names: tuple[str, ...]
) -> None:
    answer = vendors()[DCU].parse_request(a_container(limits), Pod())
    assert isinstance(answer, Invalid)
    assert all(name in answer.text for name in ("container c", *names))


def test_hcu_refuses_more_than_100_percent_cores() -> None:
    vendor = vendors()[HCU]
    assert vendor.parse_request(a_container(hcu(num="1", cores="100")), Pod()) is not None
    answer = vendor.parse_request(a_container(hcu(num="1", cores="101")), Pod())
    assert isinstance(answer, Invalid)
    assert "hygon.com/hcucores" in answer.text


def test_requests_count_where_limits_are_silent() -> None:
    container = a_container(None, **dcu("1", "2000", "60"))
    assert vendors()[DCU].parse_request(container, Pod()) == a_request(1, 2000, cores=60)


def test_memory_factor_scales_numbers_of_both_profiles() -> None:
    registry = vendors(memoryFactor=256)
    for key, limits in ((DCU, dcu("1", "8")), (HCU, hcu(num="1", mem="8"))):
        request = registry[key].parse_request(a_container(limits), Pod())
        assert isinstance(request, DeviceRequest)
        assert request.memory_mib == 2048


@pytest.mark.parametrize(
    ("section", "key", "names"),
    [
        pytest.param({}, DCU, ("hygon.com/dcunum", "hygon.com/dcumem", "hygon.com/dcucores")),
        pytest.param({}, HCU, ("hygon.com/hcunum", "hygon.com/hcumem", "hygon.com/hcucores")),
        pytest.param(
            {"resourceCountName": "a.com/hcu"},
            HCU,
            ("a.com/hcu", "hygon.com/hcumem", "hygon.com/hcucores"),
            id="hcu in a name: the HCU profile",
        ),
        pytest.param(
            {"resourceCountName": "a.com/hcu"},
            DCU,
            ("hygon.com/dcunum", "hygon.com/dcumem", "hygon.com/dcucores"),
            id="the other profile keeps its names",
        ),
        pytest.param(
            {"resourceCountName": "a.com/n", "resourceMemoryName": "a.com/m"},
            DCU,
            ("a.com/n", "a.com/m", "hygon.com/dcucores"),
            id="any other names: the DCU profile",
        ),
        pytest.param(
            {"resourceMemoryName": ""},
            DCU,
            ("hygon.com/dcunum", "hygon.com/dcucores"),
            id="removed",
        ),
        pytest.param(
            {"chartAddsThis": 1},
            HCU,
            ("hygon.com/hcunum", "hygon.com/hcumem", "hygon.com/hcucores"),
        ),
    ],
)
def test_section_names(section: dict[str, Any], key: VendorKey, names: tuple[str, ...]) -> None:
    assert vendors(**section)[key].profile.resources.all_names == names


@pytest.mark.parametrize(
    ("section", "words"),
    [
        pytest.param({"resourceCountName": 3}, ("hygon.resourceCountName", "3"), id="no text"),
        pytest.param(
            {"resourceCountName": ""}, ("hygon.resourceCountName", "''"), id="empty count"
        ),
        pytest.param({"memoryFactor": -1}, ("hygon.memoryFactor", "-1"), id="negative factor"),
        pytest.param({"memoryFactor": "2"}, ("hygon.memoryFactor", "'2'"), id="quoted factor"),
        pytest.param(
            {"resourceMemoryName": "hygon.com/dcunum"}, ("two purposes",), id="one name twice"
        ),
        pytest.param([1], ("hygon", "[1]"), id="no mapping"),
    ],
)
def test_bad_section(section: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        Vendors.of({"hygon": hami_hygon.plugin}, {"hygon": section})
    assert all(word in str(caught.value) for word in words)


def test_a_name_that_the_other_profile_uses_stops_the_start() -> None:
    with pytest.raises(PluginRejected, match=r"hygon\.com/dcumem"):
        vendors(resourceCountName="a.com/hcu", resourceMemoryName="hygon.com/dcumem")


def a_device(device: str = "DCU-A", *, index: int = 0, model: str = "DCU-K100_AI") -> Device:
    return Device(
        id=DeviceId(device),
        vendor=DCU,
        index=index,
        model=model,
        slots=4,
        memory_mib=65520,
        cores=100,
        mode="hami",
    )


def used(slots: int = 0, mem: int = 0, cores: int = 0) -> DeviceState:
    return DeviceState(a_device(), Usage(slots, mem, cores))


def fit(
    state: DeviceState, request: DeviceRequest, *, mutex: bool = False, **annotations: str
) -> Placement | str:
    ctx = FitContext(
        pod=Pod(metadata=Metadata(annotations=annotations)),
        node=Node(),
        container=Container(name="c"),
        policy=SchedulingPolicy(device=DevicePolicy(mutex=mutex)),
    )
    outcome = vendors()[DCU].fit(request, [state], ctx)
    return outcome if isinstance(outcome, Placement) else str(outcome)


def granted(mem: int, cores: int) -> Placement:
    return Placement((Grant(device_id=DeviceId("DCU-A"), vendor=DCU, memory_mib=mem, cores=cores),))


SHARE_60, SHARE_40, NO_CORES = (a_request(mem=2000, cores=cores) for cores in (60, 40, 0))


@pytest.mark.parametrize(
    ("state", "request_", "outcome"),
    [
        pytest.param(used(), SHARE_60, granted(2000, 60), id="an unused device"),
        pytest.param(used(1, 2000, 60), SHARE_60, "1/1 CardInsufficientCore", id="60 + 60"),
        pytest.param(used(1, 2000, 60), SHARE_40, granted(2000, 40), id="60 + 40"),
        pytest.param(used(2, 4000, 100), NO_CORES, "1/1 CardComputeUnitsExhausted", id="100 + 0"),
        pytest.param(
            used(1, 2000, 0),
            a_request(mem=2000),
            "1/1 ExclusiveDeviceAllocateConflict",
            id="all cores beside a neighbour without cores",
        ),
        pytest.param(
            used(1, 2000, 1), a_request(mem=2000), "1/1 CardInsufficientCore", id="1 + all cores"
        ),
        pytest.param(
            used(4, 8000, 40), NO_CORES, "1/1 CardTimeSlicingExhausted", id="a fifth sharer"
        ),
        pytest.param(used(), a_request(percent=100), granted(65520, 100), id="the whole device"),
        pytest.param(
            used(1, 1, 0),
            a_request(percent=100, cores=0),
            "1/1 CardInsufficientMemory",
            id="all memory beside 1 MiB",
        ),
        pytest.param(
            used(), a_request(mem=2000, cores=150), granted(2000, 100), id="150 cores are 100"
        ),
    ],
)
def test_fit_on_one_device(
    state: DeviceState, request_: DeviceRequest, outcome: Placement | str
) -> None:
    assert fit(state, request_) == outcome


def test_mutex_policy_wants_an_unused_device() -> None:
    assert fit(used(1), NO_CORES, mutex=True) == "1/1 ExclusiveDeviceAllocateConflict"


@pytest.mark.parametrize(
    ("annotations", "outcome"),
    [
        pytest.param({"hygon.com/nouse-dcutype": "K100"}, "1/1 CardTypeMismatch", id="substring"),
        pytest.param({"hygon.com/use-dcutype": "z100,k100_ai"}, granted(2000, 0), id="any case"),
        pytest.param({"hygon.com/use-gpuuuid": "DCU-B"}, "1/1 CardUuidMismatch", id="another id"),
        pytest.param({"hygon.com/nouse-gpuuuid": "DCU-A"}, "1/1 CardUuidMismatch", id="excluded"),
        pytest.param({"hygon.com/nouse-hcutype": "K100"}, granted(2000, 0), id="not our key"),
    ],
)
def test_selection(annotations: dict[str, str], outcome: Placement | str) -> None:
    assert fit(used(), NO_CORES, **annotations) == outcome


REGISTERED = (
    "DCU-A,4,65520,100,DCU-K100_AI,0,true,0,hami:DCU-B,4,65520,100,DCU-K100_AI,0,true,1,hami:"
)


def test_register_annotation_golden() -> None:
    vendor = vendors()[DCU]
    devices = [a_device(), a_device("DCU-B", index=1)]
    assert vendor.node_annotations(devices) == {"hami.io/node-dcu-register": REGISTERED}
    node = Node(metadata=Metadata(annotations={"hami.io/node-dcu-register": REGISTERED}))
    assert list(vendor.node_devices(node)) == devices


def test_a_node_with_both_register_keys_serves_both_profiles() -> None:
    """HAMi has one of the two names compiled in; a migrating cluster has both."""
    both = {
        "hami.io/node-dcu-register": REGISTERED,
        "hami.io/node-hcu-register": "HCU-T6T8,4,65520,100,HCU-K100_AI,0,true,0,hami:",
    }
    node = Node(metadata=Metadata(annotations=both))
    registry = vendors()
    found = {key: [d.id for d in registry[key].node_devices(node)] for key in registry}
    assert found == {"DCU": ["DCU-A", "DCU-B"], "HCU": ["HCU-T6T8"]}


def test_pod_annotation_golden() -> None:
    grant = granted(2000, 60).grants
    allocation = PodAllocation(
        node="n1",
        containers=(
            ContainerAllocation(name="app1", kind=ContainerKind.APP),
            ContainerAllocation(name="app2", kind=ContainerKind.APP, grants=grant),
        ),
    )
    assert encode_allocation(allocation, vendors().profiles) == {
        "hami.io/dcu-devices-to-allocate": ";DCU-A,DCU,2000,60:;",
        "hami.io/dcu-devices-allocated": ";DCU-A,DCU,2000,60:;",
    }
