"""What one pod is counted with: its charge, its requests, and the GB of device memory in both."""

from __future__ import annotations

import pytest

from hami.domain.allocations import ContainerAllocation, ContainerKind
from hami.domain.devices import Grant
from hami.domain.kubernetes.objects import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    Resources,
)
from hami.policy.quota.elastic import Units, pod_vector
from hami.policy.quota.elastic.vector import typed_charge

from ...builders import the_vendors
from .builders import UNITS, G

GPU, GPUMEM, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"


def a_container(name: str = "c", *, limits=None, restart: str | None = None, **requests: str):
    requests = {name.replace("_", "-"): text for name, text in requests.items()}
    return Container(name=name, resources=Resources(requests=requests, limits=limits),
                     restart_policy=restart)  # fmt: skip


def a_pod(*containers: Container, init=(), overhead=None, ended=()) -> Pod:
    statuses = [
        ContainerStatus(name=name, state=ContainerState(terminated=ContainerStateTerminated(exit_code=code)))
        for name, code in ended
    ]  # fmt: skip
    return Pod(spec=PodSpec(containers=list(containers), init_containers=list(init) or None, overhead=overhead),
               status=PodStatus(init_container_statuses=statuses))  # fmt: skip


def sidecar(name: str, **requests: str) -> Container:
    return a_container(name, restart="Always", **requests)


def asks(**texts: str) -> dict[str, str]:
    return {f"nvidia.com/{name.replace('_', '-')}": text for name, text in texts.items()}


def vector(pod: Pod, charge=None, gb: int = 32):
    return pod_vector(pod, charge, UNITS, gb)


# What the spec requests.


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(a_pod(a_container(cpu="500m", memory="1Gi"), a_container(cpu="1", memory="129M")),
                     {"cpu": 1500, "memory": (1 << 30) + 129_000_000}, id="containers are added up"),
        pytest.param(a_pod(a_container(cpu="1"), init=[a_container("i", cpu="3"), a_container("j", cpu="2")]),
                     {"cpu": 3000}, id="the largest init container"),
        pytest.param(a_pod(a_container(cpu="3"), init=[a_container("i", cpu="2")]), {"cpu": 3000}, id="or the apps"),
        pytest.param(a_pod(a_container(cpu="1"), init=[sidecar("s", cpu="1"), a_container("i", cpu="2")]),
                     {"cpu": 3000}, id="an init container runs beside the sidecars before it"),
        pytest.param(a_pod(a_container(cpu="1"), init=[a_container("i", cpu="2"), sidecar("s", cpu="1")]),
                     {"cpu": 2000}, id="and not beside later ones"),
        pytest.param(a_pod(a_container(cpu="1"), init=[sidecar("s", cpu="1"), sidecar("t", cpu="1")]),
                     {"cpu": 3000}, id="sidecars run beside the apps"),
        pytest.param(a_pod(a_container(cpu="1"), init=[a_container("i", cpu="2")], overhead={"cpu": "250m", "memory": "1"}),
                     {"cpu": 2250, "memory": 1}, id="fix: overhead counts"),
        pytest.param(a_pod(a_container(limits={"cpu": "2", "x.io/y": "3"}, cpu="1")), {"cpu": 1000, "x.io/y": 3},
                     id="a limit is the request where there is none"),
        pytest.param(a_pod(a_container(cpu="1.0001", memory="0.5")), {"cpu": 1001, "memory": 1}, id="requests are rounded up"),
        pytest.param(a_pod(a_container(ephemeral_storage="2Ki")), {"ephemeral-storage": 2048}, id="ephemeral storage"),
        pytest.param(a_pod(a_container(cpu="0")), {}, id="nothing is no entry"),
        pytest.param(a_pod(a_container(cpu="many", memory="-1", x="1")), {"x": 1}, id="what the API server would not let in"),
        pytest.param(a_pod(), {}, id="no container"),
    ],
)  # fmt: skip
def test_requests(pod, expected):
    assert vector(pod) == expected


TWO_STAGES = [a_container("i", cpu="4"), a_container("j", cpu="3")]


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        pytest.param([("i", 0)], 4000, id="one has ended"),
        pytest.param([("i", 0), ("j", 1)], 4000, id="one has failed and is started again"),
        pytest.param([("i", 0), ("j", 0)], 1000, id="all have ended well"),
    ],
)
def test_init_containers_count_until_all_have_ended_well(ended, expected):
    assert vector(a_pod(a_container(cpu="1"), init=TWO_STAGES, ended=ended)) == {"cpu": expected}


def test_a_sidecar_that_ends_well_and_starts_again_changes_nothing():
    init = [sidecar("s", cpu="1"), a_container("i", cpu="4")]
    pod = a_pod(a_container(cpu="1"), init=init, ended=[("s", 0)])
    assert vector(pod) == {"cpu": 5000}
    pod = a_pod(a_container(cpu="1"), init=init, ended=[("s", 0), ("i", 0)])
    assert vector(pod) == {"cpu": 2000}


# What vendors manage.


def test_the_charge_counts_and_not_what_was_written():
    """After percentages, whole devices and rounding to a profile."""
    limits = asks(gpu="1", gpumem="8000", gpumem_percentage="50") | {"cpu": "1", "bolt.io/mem": "4"}
    charge = {GPU: 1, GPUMEM: 10240, CORES: 14}
    assert vector(a_pod(a_container(limits=limits)), charge) == {"cpu": 1000, G: 10, **charge}


@pytest.mark.parametrize(
    ("charge", "gb"),
    [
        pytest.param({GPU: 1, GPUMEM: 1}, 1, id="begun GB count"),
        pytest.param({GPU: 1, GPUMEM: 1024}, 1, id="exactly one"),
        pytest.param({GPU: 1, GPUMEM: 1025}, 2, id="one MiB more"),
        pytest.param(
            {GPU: 2, GPUMEM: 512, "bolt.io/npu": 1, "bolt.io/mem": 512},
            1,
            id="all vendors together",
        ),
        pytest.param({GPU: 1, CORES: 100}, 0, id="no memory"),
    ],
)
def test_gpu_memory_of_what_we_grant(charge, gb):
    assert vector(a_pod(a_container(limits=asks(gpu="1"))), charge).get(G, 0) == gb


@pytest.mark.parametrize(
    ("limits", "gb"),
    [
        pytest.param(asks(gpu="1"), 32, id="a whole GPU"),
        pytest.param({"nvidia.com/mig-1g.10gb": "1", GPU: "1"}, 42, id="a MIG slice and a GPU"),
        pytest.param({"nvidia.com/mig-1g.1gb15gb": "1"}, 0, id="a name with two numbers"),
        pytest.param({"nvidia.com/gpu-10gb": "2"}, 20, id="fix: MPS slices"),
        pytest.param({G: "999", "nvidia.com/gpu-10gb": "1"}, 10, id="what a user writes is not believed"),
        pytest.param({G: "999"}, 0, id="nor where nothing is asked"),
        pytest.param(asks(gpumem="8000", gpucores="10"), 0, id="what only we could grant counts when it is granted"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("charge", [None, {}], ids=["not ours", "ours, with nothing granted"])
def test_gpu_memory_of_what_others_grant(limits, gb, charge):
    found = vector(a_pod(a_container(limits=limits)), charge)
    assert found.get(G, 0) == gb
    assert found.get(GPU, 0) == int(limits.get(GPU, 0))
    assert not found.keys() & {GPUMEM, CORES}


def test_slices_of_others_count_beside_what_we_grant():
    pod = a_pod(a_container(limits=asks(gpu="1") | {"nvidia.com/mig-1g.10gb": "1"}))
    assert vector(pod, {GPU: 1, GPUMEM: 2048})[G] == 12


def test_slices_of_init_containers_count_as_all_else_does():
    init = [a_container("i", limits={"nvidia.com/mig-1g.10gb": "3"})]
    assert vector(a_pod(a_container(limits={"nvidia.com/mig-2g.20gb": "1"}), init=init))[G] == 50


# By model.


def test_a_generic_pod_is_charged_to_the_model_of_the_chosen_device():
    vendors = the_vendors()
    profiles = {key: vendors[key].profile for key in vendors}
    models = {"d0": "ACME A100-80GB", "d1": "ACME V100"}

    def grant(device: str, memory: int) -> Grant:
        return Grant(device_id=device, vendor="ACME", memory_mib=memory, cores=10)

    containers = [
        ContainerAllocation(name="i", kind=ContainerKind.INIT, grants=(grant("d0", 900),)),
        ContainerAllocation(name="c", kind=ContainerKind.APP, grants=(grant("d0", 300), grant("d1", 500))),
        ContainerAllocation(name="d", kind=ContainerKind.APP, grants=(grant("d0", 400),)),
    ]  # fmt: skip
    typed = [
        "acme.com/mem@a100",
        "acme.com/gpu@A100",
        "acme.com/mem@V100",
        "acme.com/mem@H100",
        "bolt.io/mem@A100",
    ]
    assert typed_charge(containers, profiles, typed, lambda grant: models[grant.device_id]) == {
        "acme.com/mem@a100": 900, "acme.com/gpu@A100": 2, "acme.com/mem@V100": 500,
    }  # fmt: skip


def test_units_come_from_the_vendors_profiles():
    units = Units.of(the_vendors())
    assert units.memory == {"acme.com/mem": 1, "bolt.io/mem": 256}
    assert units.counts == {"acme.com/gpu", "bolt.io/npu", "whole.io/card"}
    assert "acme.com/mem-percent" in units.managed
