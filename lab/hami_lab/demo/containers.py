"""What the demo's containers were really given, beside what their pods were allotted."""

from __future__ import annotations

from collections.abc import Sequence

from hami.domain.allocations import PodAllocation
from hami.domain.units import MIB
from hami.slices.limits_page import PageLimits, read_page
from hami_lab.cluster import EmbeddedCluster
from hami_lab.demo.run import StepFailed
from hami_lab.kubelet.runtime.create import StartedContainer
from hami_lab.live import LivePod

LIMITS, USAGE = "/run/hami/nvidia/limits", "/run/hami/nvidia/usage"
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_OURS = ("NVIDIA_", "CUDA_")


def each_has_its_own(
    cluster: EmbeddedCluster, held: Sequence[tuple[LivePod, PodAllocation]]
) -> list[str]:
    """Every pod's container was given its own grant; tells of the first one all of it.

    Raises:
        StepFailed: one was given something else, or shares its limits page.
    """
    lines: list[str] = []
    pages: dict[str, str] = {}
    for pod, allocation in held:
        started = started_container(cluster, pod)
        limits = _checked(started, allocation)
        page = next(m.host_path for m in started.mounts if m.container_path == LIMITS)
        if page in pages:
            raise StepFailed(f"{started.full_name} has the limits page of {pages[page]}: {page}")
        pages[page] = started.full_name
        if not lines:
            lines += _environment(started)
        lines.append(f"{pod.name}: its limits page says {_shown(limits)}")
    return lines


def started_container(cluster: EmbeddedCluster, pod: LivePod) -> StartedContainer:
    """The one start of the pod's one container."""
    node = cluster.agents.nodes[pod.spec.node_name]
    starts = [one for one in node.runtime.starts_of(pod.name) if one.pod_uid == pod.uid]
    if len(starts) != 1:
        raise StepFailed(f"the container of pod {pod.full_name} was started {len(starts)} times")
    return starts[0]


def _checked(started: StartedContainer, allocation: PodAllocation) -> PageLimits:
    """Its limits page and its environment say what was allotted, and nothing is missing."""
    if started.missing:
        raise StepFailed(f"{started.full_name}: {', '.join(started.missing)} is not on the node")
    limits = read_page(started.files.get(LIMITS, b""))
    if not isinstance(limits, PageLimits):
        raise StepFailed(f"{started.full_name}: {LIMITS}: {limits}")
    allotted = [(g.device_id, g.memory_mib, g.cores) for g in allocation.grants]
    found = [(one.uuid, one.memory_bytes // MIB, one.cores) for one in limits.devices]
    if found != allotted:
        raise StepFailed(f"{started.full_name}: its limits are {found}, its grants {allotted}")
    devices = ",".join(grant.device_id for grant in allocation.grants)
    if (visible := started.env.get(_VISIBLE)) != devices:
        raise StepFailed(f"{started.full_name} sees the devices {visible}, and has {devices}")
    return limits


def _environment(started: StartedContainer) -> list[str]:
    env = [f"{key}={text}" for key, text in sorted(started.env.items()) if key.startswith(_OURS)]
    mounts = [
        f"{mount.container_path} ({'read-only' if mount.read_only else 'writable'})"
        for mount in started.mounts
        if mount.container_path in (LIMITS, USAGE)
    ]
    return [
        f"{started.pod}: environment {' '.join(env)}",
        f"{started.pod}: mounts {', '.join(mounts)}",
    ]


def _shown(limits: PageLimits) -> str:
    return ", ".join(
        f"{one.memory_bytes // MIB} MiB{f', {one.cores} %' if one.cores else ''} of {one.uuid}"
        for one in limits.devices
    )
