"""The fit of shared devices (mode ``hami-core``), through the registry and the core's loop."""

from types import MappingProxyType

import pytest

from hami.domain.requests import ContainerRequest, PodRequest
from hami.domain.scheduling import DevicePolicy, SchedulingPolicy
from hami.policy.fit.exact import NodeDevices, fit_pod

from ..builders import (
    ONE,
    a_container,
    a_context,
    a_gpu,
    a_mig_gpu,
    a_mig_grant,
    a_node,
    a_pod,
    asking,
    fitted,
    idle,
    refused,
    the_vendor,
    the_vendors,
    used,
)

CORDON = "hami.io/device-cordon"


@pytest.mark.parametrize(
    ("request_", "states", "reason"),
    [
        pytest.param(
            asking(memory=512), idle(a_gpu()), "CardInsufficientMemory", id="too little memory"
        ),
        pytest.param(
            asking(memory=64, cores=50),
            [used(a_gpu(), cores=100)],
            "CardInsufficientCore",
            id="too little compute",
        ),
        pytest.param(
            asking(memory=64, cores=200),
            idle(a_gpu(cores=4)),
            "CardInsufficientCore",
            id="200 % is clamped to 100 and still more than 4",
        ),
        pytest.param(
            asking(percent=100, cores=200),
            [used(a_gpu(cores=4), memory=1)],
            "CardInsufficientMemory",
            id="memory is checked before compute",
        ),
        pytest.param(
            asking(memory=64),
            [used(a_gpu(slots=100), slots=100)],
            "CardTimeSlicingExhausted",
            id="no slot left",
        ),
        pytest.param(
            asking(memory=64, cores=100),
            [used(a_gpu(), slots=20)],
            "ExclusiveDeviceAllocateConflict",
            id="exclusive compute on a device in use",
        ),
        pytest.param(
            asking(memory=64),
            [used(a_gpu(), slots=20, cores=100)],
            "CardComputeUnitsExhausted",
            id="no compute asked of a device that has none left",
        ),
        pytest.param(
            asking(memory=64), idle(a_gpu(healthy=False)), "CardNotHealth", id="not healthy"
        ),
    ],
)
def test_one_device_is_refused(request_, states, reason):
    assert refused(request_, states) == f"1/1 {reason}"


@pytest.mark.parametrize(
    ("request_", "states"),
    [
        pytest.param(asking(memory=64, cores=120), idle(a_gpu()), id="120 % is clamped to 100"),
        pytest.param(asking(percent=10), idle(a_gpu(memory=1280)), id="10 % of the memory"),
        pytest.param(
            asking(percent=10), [used(a_gpu(memory=1289), memory=1161)], id="10 % is rounded down"
        ),
        pytest.param(asking(memory=64), idle(a_gpu(mode="")), id="a device without a mode"),
    ],
)
def test_one_device_serves(request_, states):
    assert fitted(request_, states) == ["dev-0"]


def test_of_two_equal_devices_the_last_is_taken():
    assert fitted(asking(memory=64, cores=50), idle(a_gpu("dev-0"), a_gpu("dev-1"))) == ["dev-1"]


@pytest.mark.parametrize(
    ("count", "devices", "text"),
    [
        pytest.param(2, 1, "1/1 AllocatedCardsInsufficientRequest", id="two of one"),
        pytest.param(3, 2, "2/2 AllocatedCardsInsufficientRequest", id="three of two"),
    ],
)
def test_more_devices_than_there_are(count, devices, text):
    states = idle(*(a_gpu(f"dev-{n}") for n in range(devices)))
    assert refused(asking(count, memory=64), states) == text


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        pytest.param({"nvidia.com/use-gpuuuid": "dev-1"}, "CardUuidMismatch", id="another uuid"),
        pytest.param({"nvidia.com/nouse-gpuuuid": "dev-0"}, "CardUuidMismatch", id="not this uuid"),
        pytest.param(
            {"nvidia.com/use-gpuuuid": "dev-0", "nvidia.com/nouse-gpuuuid": "dev-0"},
            "CardUuidMismatch",
            id="a uuid both ways",
        ),
        pytest.param({"nvidia.com/use-gputype": "H100"}, "CardTypeMismatch", id="another model"),
        pytest.param({"nvidia.com/nouse-gputype": "a100"}, "CardTypeMismatch", id="not this model"),
        pytest.param(
            {"nvidia.com/use-gputype": "A100", "nvidia.com/nouse-gputype": "SXM4"},
            "CardTypeMismatch",
            id="a model both ways",
        ),
        pytest.param({"nvidia.com/vgpu-mode": "mig"}, "CardTypeMismatch", id="another mode"),
    ],
)
def test_the_pod_excludes_the_device(annotations, reason):
    gpu = a_gpu(model="NVIDIA-NVIDIA A100-SXM4-40GB")
    assert refused(asking(memory=64), idle(gpu), pod=annotations) == f"1/1 {reason}"


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({"nvidia.com/use-gpuuuid": " dev-0 , dev-9 "}, id="one of several uuids"),
        pytest.param({"nvidia.com/use-gpuuuid": "  "}, id="a blank list of uuids"),
        pytest.param({"nvidia.com/nouse-gpuuuid": ""}, id="an empty list of uuids to avoid"),
        pytest.param({"nvidia.com/nouse-gpuuuid": "dev-1"}, id="another uuid to avoid"),
        pytest.param(
            {"nvidia.com/use-gpuuuid": "dev-0", "nvidia.com/nouse-gpuuuid": "dev-1"},
            id="this uuid and not another",
        ),
        pytest.param({"nvidia.com/use-gputype": "a10"}, id="a part of the model's name"),
        pytest.param({"nvidia.com/use-gputype": ",H100, A100,"}, id="one of several models"),
        pytest.param({"nvidia.com/nouse-gputype": " , "}, id="a blank list of models"),
        pytest.param({"nvidia.com/vgpu-mode": "hami-core"}, id="this mode"),
        pytest.param({"nvidia.com/vgpu-mode": "mig,hami-core"}, id="this mode among others"),
    ],
)
def test_the_pod_admits_the_device(annotations):
    gpu = a_gpu(model="NVIDIA-NVIDIA A100-SXM4-40GB")
    assert fitted(asking(memory=64), idle(gpu), pod=annotations) == ["dev-0"]


def test_a_cordoned_device_takes_no_new_slice():
    states = idle(a_gpu("dev-0"), a_gpu("dev-1"))
    assert fitted(asking(memory=64), states, node={CORDON: "dev-1, "}) == ["dev-0"]
    both = refused(asking(memory=64), states, node={CORDON: "dev-0,dev-1"})
    assert both == "2/2 CardCordoned"


def test_the_mutex_policy_takes_idle_devices_only():
    states = [used(a_gpu("dev-0"), memory=1), *idle(a_gpu("dev-1"))]
    mutex = DevicePolicy(chain=("mutex",), mutex=True)
    assert fitted(asking(memory=64), states, policy=mutex) == ["dev-1"]
    text = refused(asking(2, memory=64), states, policy=mutex)
    assert "1/2 ExclusiveDeviceAllocateConflict" in text


NUMA_BOUND = MappingProxyType({"nvidia.com/numa-bind": "true"})


class TestNumaBinding:
    def test_devices_of_one_numa_node_are_taken(self):
        states = idle(a_gpu("dev-0", numa=1), a_gpu("dev-1", numa=1), a_gpu("dev-2", numa=0))
        assert fitted(asking(2, memory=64), states, pod=NUMA_BOUND) == ["dev-1", "dev-0"]

    def test_devices_are_grouped_before_they_are_scored(self):
        a, b, c = (
            used(a_gpu(name, numa=numa), slots=slots)
            for name, numa, slots in (("A", 0, 5), ("B", 0, 1), ("C", 1, 3))
        )
        assert set(fitted(asking(2, memory=64), [a, b, c], pod=NUMA_BOUND)) == {"A", "B"}

    def test_devices_of_two_numa_nodes_do_not_make_a_pair(self):
        states = idle(a_gpu("dev-0", numa=0), a_gpu("dev-1", numa=1))
        assert refused(asking(2, memory=64), states, pod=NUMA_BOUND) == (
            "1/2 AllocatedCardsInsufficientRequest, 1/2 NumaNotFit"
        )

    def test_without_the_annotation_numa_does_not_matter(self):
        states = idle(a_gpu("dev-0", numa=0), a_gpu("dev-1", numa=1))
        assert len(fitted(asking(2, memory=64), states)) == 2


def test_each_device_is_refused_for_its_first_failing_check():
    states = [
        *idle(a_gpu("dev-0", healthy=False), a_gpu("dev-1", model="Tesla")),
        used(a_gpu("dev-2", slots=1)),
        used(a_gpu("dev-3"), memory=100),
        used(a_gpu("dev-4"), cores=80),
        *idle(a_gpu("dev-5")),
    ]
    assert refused(
        asking(2, memory=64, cores=30), states, pod={"nvidia.com/use-gputype": "NVIDIA"}
    ) == (
        "1/6 AllocatedCardsInsufficientRequest, 1/6 CardInsufficientCore, "
        "1/6 CardInsufficientMemory, 1/6 CardNotHealth, 1/6 CardTimeSlicingExhausted, "
        "1/6 CardTypeMismatch"
    )


def test_a_shared_device_under_a_running_mig_instance_takes_nothing():
    """It was switched out of mode mig while a pod was on it: nobody knows what is free."""
    gpu = a_gpu(memory=40960)
    state = idle(gpu)[0].taking(a_mig_grant(gpu.id, ONE, 0))
    assert refused(asking(memory=64), [state]) == "1/1 UnknownUsage"


class TestFewerDevicesThanSlices:
    def outcome(self, device, annotations=None):
        container = a_container()
        request = PodRequest(
            pod=a_pod(annotations, containers=[container]),
            containers=(
                ContainerRequest(
                    container=container,
                    kind=a_context().kind,
                    requests=(asking(2, memory=4000),),
                ),
            ),
            policy=SchedulingPolicy(),
        )
        devices = NodeDevices(node=a_node(), states={"NVIDIA": idle(device)})
        return fit_pod(request, devices, the_vendors())

    def test_a_shared_device_gives_one_slice(self):
        assert str(self.outcome(a_gpu(memory=8000))) == "NodeInsufficientDevice"

    def test_a_mig_device_gives_several(self):
        assert len(self.outcome(a_mig_gpu()).grants) == 2

    @pytest.mark.parametrize("mode", ["mig", "hami-core,mig"])
    def test_a_mig_device_gives_several_to_a_pod_that_wants_mig(self, mode):
        assert len(self.outcome(a_mig_gpu(), {"nvidia.com/vgpu-mode": mode}).grants) == 2

    def test_a_mig_device_is_none_for_a_pod_that_wants_sharing(self):
        outcome = self.outcome(a_mig_gpu(), {"nvidia.com/vgpu-mode": "hami-core"})
        assert str(outcome) == "NodeInsufficientDevice"


@pytest.mark.parametrize(
    ("mode", "columns", "several", "placements"),
    [
        pytest.param("", "cordon cores health memory selection slots", False, False, id="none"),
        pytest.param(
            "hami-core", "cordon cores health memory selection slots", False, False, id="shared"
        ),
        pytest.param("mig", "cordon health selection slots", True, True, id="mig"),
        pytest.param("mps", "cordon health", False, False, id="a mode that is not known"),
    ],
)
def test_how_devices_are_counted_by_their_mode(mode, columns, several, placements):
    rules = the_vendor().rules(mode)
    assert sorted(column.value for column in rules.prefilter) == columns.split()
    assert rules.several_slices_per_device is several
    assert rules.placements is placements
