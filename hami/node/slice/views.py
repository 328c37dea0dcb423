"""One slice in the forms in which others take it: the vendor's hooks, the disk, the container.

Everything here makes values of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from hami.domain.devices import Grant
from hami.domain.kubernetes.objects import Container, Metadata, Pod, PodSpec, Resources
from hami.domain.slices import SEEN_AT, ContainerEdits, Identity, Mount, PageSettings, Slice
from hami.domain.units import MIB, WHOLE_DEVICE, DeviceId, VendorKey
from hami.node.pod.pods import Granted
from hami.node.slice.live_slices import LiveSlice
from hami.slices.limits_page import DeviceLimit, PageLimits
from hami.slices.record import RecordedGrant, SliceRecord

SLICE_ID_VARIABLE = "HAMI_SLICE_ID"
"""Tells the preloaded library that there must be a limits page: without one it fails closed."""


def seen_limits(vendor: VendorKey) -> str:
    """Where a container finds its limits page."""
    return f"{SEEN_AT}/{vendor.lower()}/limits"


def with_page(
    vendor: VendorKey, slice_id: str, state_dir: Path, edits: ContainerEdits
) -> ContainerEdits:
    """Add the limits page and the usage region to the vendor's edits."""
    folder = f"{SEEN_AT}/{vendor.lower()}"
    pages = (
        Mount(host_path=str(state_dir / "limits"), container_path=f"{folder}/limits"),
        Mount(
            host_path=str(state_dir / "usage"), container_path=f"{folder}/usage", read_only=False
        ),
    )
    theirs = tuple(m for m in edits.mounts if m.host_path != pages[1].host_path)
    return replace(edits, env={**edits.env, SLICE_ID_VARIABLE: slice_id}, mounts=(*theirs, *pages))


def page_limits(granted: Granted, settings: PageSettings) -> PageLimits:
    """The limits page of these grants, in the order in which the container sees its devices.

    A device that was granted twice is one device with the limits of both.
    """
    held: dict[DeviceId, list[Grant]] = {}
    for grant in granted.grants:
        held.setdefault(grant.device_id, []).append(grant)
    devices = []
    for device, grants in held.items():
        cores = min(WHOLE_DEVICE, sum(grant.cores for grant in grants))
        devices.append(
            DeviceLimit(
                uuid=device,
                memory_bytes=sum(grant.memory_mib for grant in grants) * MIB,
                cores=cores,
                cores_limit=granted.cores_limit and max(cores, granted.cores_limit),
                context_reserve_bytes=settings.context_reserve_mib.get(device, 0) * MIB,
            )
        )
    return PageLimits(
        generation=granted.generation,
        priority=settings.priority,
        policy=settings.policy,
        devices=tuple(devices),
    )


def literal_env(container: Container) -> Mapping[str, str]:
    """The values that stand in the pod itself; the last one of a name counts, as for kubelet."""
    return {variable.name: variable.value for variable in container.env or ()}


# For the vendor's hooks, and for the disk.


def as_slice(live: LiveSlice, state_dir: Path) -> Slice:
    """The slice as the vendor's hooks get it."""
    pod = live.record.pod
    return Slice(
        id=live.id,
        vendor=live.record.vendor,
        pod_uid=pod.uid,
        namespace=pod.namespace,
        pod=pod.name,
        container=live.record.container,
        kind=live.granted.kind,
        grants=live.grants,
        state_dir=state_dir,
        identity=live.record.identity,
    )


def to_enforce(record: SliceRecord, granted: Granted, state_dir: Path) -> Slice:
    """The slice as ``hami_enforce`` gets it, with what the pod says of its container."""
    pod = granted.pod
    container = next(c for c, _ in pod.each_container() if c.name == granted.container)
    return replace(
        as_slice(LiveSlice(record, granted), state_dir),
        container_env=literal_env(container),
        pod_annotations=pod.annotations,
    )


def new_record(
    slice_id: str,
    vendor: VendorKey,
    granted: Granted,
    *,
    at: float,
    identity: Identity = "kubelet",
) -> SliceRecord:
    """The record of a slice that is about to be made; ``at`` in Unix seconds."""
    return SliceRecord(
        slice_id=slice_id,
        vendor=vendor,
        pod=recorded_pod(granted.pod),
        container=granted.container,
        generation=granted.generation,
        state="preparing",
        created_at=at,
        grants=recorded_grants(granted),
        identity=identity,
    )


def enforced_record(record: SliceRecord, granted: Granted) -> SliceRecord:
    """The record of a slice that has been made as ``granted`` says."""
    return msgspec.structs.replace(
        record,
        pod=recorded_pod(granted.pod),
        generation=granted.generation,
        grants=recorded_grants(granted),
        state="enforced",
    )


def recorded_grants(granted: Granted) -> tuple[RecordedGrant, ...]:
    return tuple(
        RecordedGrant(device_id=g.device_id, memory_mib=g.memory_mib, cores=g.cores)
        for g in granted.grants
    )


def recorded_pod(pod: Pod) -> Pod:
    """The parts of a pod from which its allocation is read. Environments may hold secrets."""
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
