"""Short ways to say devices, requests and pods, for cases that are about one thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hami_nvidia import plugin
from hami_nvidia.schedule.mig_placement import (
    MIG_INSTANCE,
    MIG_PROFILES,
    MigInstance,
    MigPlacement,
    MigProfile,
)
from hami_nvidia.schedule.topology import PAIR_SCORES, PairScore

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant, Usage
from hami.domain.extra import NO_EXTRA
from hami.domain.kubernetes.objects import (
    Container,
    EnvVar,
    Metadata,
    Node,
    Pod,
    PodSpec,
    Resources,
)
from hami.domain.reasons import Rejected
from hami.domain.requests import DeviceRequest, FitContext, Placement
from hami.domain.scheduling import DevicePolicy, SchedulingPolicy
from hami.vendors.registry import Vendors

COUNT, MEMORY, PERCENT, CORES, PRIORITY = (
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "nvidia.com/priority",
)
SHORT = {"gpu": COUNT, "mem": MEMORY, "pct": PERCENT, "cores": CORES, "priority": PRIORITY}


def the_vendors(**section: Any):
    """The real registry with this plugin alone; a failing hook fails the test."""

    def fail(failure):
        raise AssertionError(str(failure))

    return Vendors.of({"nvidia": plugin}, {"nvidia": section}, on_failure=fail)


def the_vendor(**section: Any):
    return the_vendors(**section)["NVIDIA"]


# Devices.


def a_gpu(id: str = "dev-0", *, memory: int = 128, slots: int = 100, **rest: Any) -> Device:
    return Device(
        id=id,
        vendor="NVIDIA",
        memory_mib=memory,
        slots=slots,
        **({"model": "NVIDIA", "mode": "hami-core"} | rest),
    )


def idle(*devices: Device) -> list[DeviceState]:
    return [DeviceState(device) for device in devices]


def used(device: Device, *, slots: int = 1, memory: int = 0, cores: int = 0) -> DeviceState:
    return DeviceState(device, Usage(slots, memory, cores))


def linked(*names: str, **rest: Any):
    """Devices of which ``scores`` says how well they are linked: ``{(0, 1): 100}``, both ways."""

    def with_scores(scores: Mapping[tuple[int, int], int]) -> list[Device]:
        both = scores | {(b, a): score for (a, b), score in scores.items()}
        devices = []
        for a, name in enumerate(names):
            links = tuple(
                PairScore(peer=names[b], score=score)
                for (from_, b), score in sorted(both.items())
                if from_ == a
            )
            extra = NO_EXTRA.with_(PAIR_SCORES, links) if links else NO_EXTRA
            devices.append(a_gpu(name, extra=extra, **rest))
        return devices

    return with_scores


# MIG.


def a_profile(name: str, memory: int, cores: int, slices: int, starts: Sequence[int], size: int):
    return MigProfile(
        name=name,
        memory_mib=memory,
        cores=cores,
        slices=slices,
        placements=tuple(MigPlacement(start=start, size=size) for start in starts),
    )


ONE = a_profile("1g.5gb", 5120, 14, 1, range(7), 1)
TWO = a_profile("2g.10gb", 10240, 28, 2, (0, 2, 4), 2)
THREE = a_profile("3g.20gb", 20480, 42, 3, (0, 4), 4)
SEVEN = a_profile("7g.40gb", 40192, 100, 7, (0,), 8)
A100 = (ONE, TWO, THREE, SEVEN)


def a_mig_gpu(id: str = "GPU-0", profiles: Sequence[MigProfile] = A100, **rest: Any) -> Device:
    extra = NO_EXTRA.with_(MIG_PROFILES, tuple(profiles)) if profiles else NO_EXTRA
    return a_gpu(id, **({"memory": 40960, "slots": 7, "mode": "mig", "extra": extra} | rest))


def an_instance(profile: str, start: int, size: int) -> MigInstance:
    return MigInstance(profile=profile, placement=MigPlacement(start=start, size=size))


def a_mig_grant(device: str, profile: MigProfile, start: int) -> Grant:
    size = profile.placements[0].size
    return Grant(
        device_id=device,
        vendor="NVIDIA",
        memory_mib=profile.memory_mib,
        cores=profile.cores,
        extra=NO_EXTRA.with_(MIG_INSTANCE, an_instance(profile.name, start, size)),
    )


def running(device: Device, *instances: tuple[MigProfile, int]) -> DeviceState:
    grants = [a_mig_grant(device.id, profile, start) for profile, start in instances]
    return DeviceState(device).taking(*grants)


def places(grants: Sequence[Grant]) -> list[tuple[str, int]]:
    """``[("1g.5gb", 6)]``: what was chosen, and where."""
    instances = [grant.extra.get(MIG_INSTANCE) for grant in grants]
    return [(instance.profile, instance.placement.start) for instance in instances]


# Pods and requests.


def a_container(limits=None, requests=None, name: str = "c", env=None) -> Container:
    """Resources by their short names: ``{"gpu": "1", "mem": "4096"}``."""

    def full(short):
        return {SHORT.get(key, key): text for key, text in (short or {}).items()}

    return Container(
        name=name,
        resources=Resources(limits=full(limits), requests=full(requests)),
        env=[EnvVar(name=key, value=value) for key, value in (env or {}).items()],
    )


def a_pod(annotations: Mapping[str, str] | None = None, containers=(), inits=()) -> Pod:
    return Pod(
        metadata=Metadata(name="p", namespace="n", uid="u", annotations=dict(annotations or {})),
        spec=PodSpec(containers=list(containers), init_containers=list(inits)),
    )


def a_node(annotations: Mapping[str, str] | None = None) -> Node:
    return Node(metadata=Metadata(name="node", annotations=dict(annotations or {})))


def asking(count: int = 1, **what: Any) -> DeviceRequest:
    """``memory`` in MiB or ``percent`` (the default, 100), and ``cores``."""
    memory, percent = what.pop("memory", None), what.pop("percent", None)
    if memory is None and percent is None:
        percent = 100
    return DeviceRequest(
        vendor="NVIDIA", count=count, memory_mib=memory, memory_percent=percent, **what
    )


def a_context(
    *,
    pod: Mapping[str, str] | None = None,
    node: Mapping[str, str] | None = None,
    policy: DevicePolicy | None = None,
    **rest: Any,
) -> FitContext:
    """The surroundings; ``pod`` and ``node`` are their annotations."""
    return FitContext(
        pod=a_pod(pod),
        node=a_node(node),
        container=Container(name="c"),
        policy=SchedulingPolicy(device=policy or DevicePolicy()),
        **rest,
    )


def fitted(request: DeviceRequest, states: Sequence[DeviceState], **context: Any) -> list[str]:
    """The ids of the devices that are taken; fails when the request is refused."""
    placement = the_vendor().fit(request, states, a_context(**context))
    assert isinstance(placement, Placement), str(placement)
    return [grant.device_id for grant in placement.grants]


def refused(request: DeviceRequest, states: Sequence[DeviceState], **context: Any) -> str:
    """HAMi's text for the refusal; fails when the request fits."""
    rejected = the_vendor().fit(request, states, a_context(**context))
    assert isinstance(rejected, Rejected), str(rejected)
    return str(rejected)


def an_allocation(*containers: tuple[ContainerKind, Sequence[Grant]]) -> PodAllocation:
    return PodAllocation(
        node="node",
        containers=tuple(
            ContainerAllocation(name=f"c{number}", kind=kind, grants=tuple(grants))
            for number, (kind, grants) in enumerate(containers)
        ),
    )
