"""What the core itself gives a container with a slice, and what it keeps of the pod on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hami.domain.devices import Grant
from hami.domain.objects import Container, Metadata, Pod, PodSpec, Resources
from hami.domain.slices import SEEN_AT, ContainerEdits, Mount, PageSettings
from hami.domain.units import MIB, WHOLE_DEVICE, DeviceId, VendorKey
from hami.node.disk.limits_page import DeviceLimit, PageLimits
from hami.node.pod.granting import Granted

SLICE_ID = "HAMI_SLICE_ID"
"""Tells the preloaded library that there must be a limits page: without one it fails closed."""


def seen_limits(vendor: VendorKey) -> str:
    """Where a container finds its limits page."""
    return f"{SEEN_AT}/{vendor.lower()}/limits"


def with_page(
    vendor: VendorKey, slice_id: str, state_dir: Path, edits: ContainerEdits
) -> ContainerEdits:
    """The vendor's edits, and the limits page and usage region beside them."""
    folder = f"{SEEN_AT}/{vendor.lower()}"
    pages = (
        Mount(host_path=str(state_dir / "limits"), container_path=f"{folder}/limits"),
        Mount(
            host_path=str(state_dir / "usage"), container_path=f"{folder}/usage", read_only=False
        ),
    )
    theirs = tuple(m for m in edits.mounts if m.host_path != pages[1].host_path)
    return replace(edits, env={**edits.env, SLICE_ID: slice_id}, mounts=(*theirs, *pages))


def page_limits(granted: Granted, settings: PageSettings) -> PageLimits:
    """The limits page of these grants, in the order in which the container sees its devices.

    A device that was granted twice is one device with the limits of both.
    """
    held: dict[DeviceId, list[Grant]] = {}
    for grant in granted.grants:
        held.setdefault(grant.device_id, []).append(grant)
    return PageLimits(
        generation=granted.generation,
        priority=settings.priority,
        policy=settings.policy,
        devices=tuple(
            DeviceLimit(
                uuid=device,
                memory_bytes=sum(grant.memory_mib for grant in grants) * MIB,
                cores=min(WHOLE_DEVICE, sum(grant.cores for grant in grants)),
                context_reserve_bytes=settings.context_reserve_mib.get(device, 0) * MIB,
            )
            for device, grants in held.items()
        ),
    )


def literal_env(container: Container) -> Mapping[str, str]:
    """The values that stand in the pod itself; the last one of a name counts, as for kubelet."""
    return {variable.name: variable.value for variable in container.env or ()}


def recorded_pod(pod: Pod) -> Pod:
    """What an allocation is read from, and no more: environments may hold secrets."""
    return Pod(
        metadata=Metadata(
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            annotations=dict(pod.annotations),
        ),
        spec=PodSpec(
            node_name=pod.spec.node_name,
            containers=[_recorded(c) for c in pod.spec.containers],
            init_containers=[_recorded(c) for c in pod.spec.init_containers or ()] or None,
        ),
    )


def _recorded(container: Container) -> Container:
    return Container(
        name=container.name,
        resources=Resources(limits=dict(container.limits), requests=dict(container.requests)),
        restart_policy=container.restart_policy,
    )
