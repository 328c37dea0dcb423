"""The pod annotation that says which MIG instance each slice is, written and read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec.structs import replace

from hami.domain.allocations import Corrupt, PodAllocation
from hami.domain.devices import Grant
from hami.domain.errors import Malformed, shortened
from hami.domain.kubernetes.objects import Pod
from hami.domain.profile import VendorProfile
from hami.domain.units import DeviceId, VendorKey
from hami.wire.codecs import decode_pod_devices
from hami_nvidia.schedule.mig_placement import MIG_INSTANCE, MigInstance, MigPlacement

MIG_ANNOTATION = "hami.io/vgpu-mig-allocations"

_Index = Annotated[int, msgspec.Meta(ge=0)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Uint32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class MigAllocation(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={
        "container_index": "containerIndex",
        "device_index": "deviceIndex",
        "gpu_uuid": "gpuUUID",
        "mig_uuid": "migUUID",
        "gpu_instance_id": "gpuInstanceID",
        "compute_instance_id": "computeInstanceID",
    },
):
    """One slice: which container (init containers count first) and which of its NVIDIA grants.

    The last three are the instance's identity on its node: all there once it was made (0 is a
    real id), none before.
    """

    container_index: _Index
    device_index: _Index
    gpu_uuid: _Text
    profile: _Text
    placement: MigPlacement
    mig_uuid: str | None = None
    gpu_instance_id: _Uint32 | None = None
    compute_instance_id: _Uint32 | None = None


MadeAt = tuple[str, str, MigPlacement]
"""Where an instance is: its GPU's UUID, its profile and its placement."""


def decode_mig_allocations(text: str) -> tuple[MigAllocation, ...] | Malformed:
    """Every entry, or what is wrong with the whole annotation; an empty text has none."""

    def malformed(position: str, problem: str) -> Malformed:
        return Malformed(
            annotation=MIG_ANNOTATION, position=position, text=shortened(text), problem=problem
        )

    if not text:
        return ()
    try:
        entries = msgspec.json.decode(text, type=tuple[MigAllocation, ...] | None) or ()
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        return malformed("", str(error))
    seen: set[tuple[int, int]] = set()
    for number, entry in enumerate(entries):
        identity = (entry.mig_uuid, entry.gpu_instance_id, entry.compute_instance_id)
        if identity.count(None) not in (0, 3):
            return malformed(
                f"entry {number}", f"MIG allocation {number} has partial runtime identity"
            )
        place = (entry.container_index, entry.device_index)
        if place in seen:
            return malformed(
                f"entry {number}",
                f"duplicate MIG allocation for container {place[0]} device {place[1]}",
            )
        seen.add(place)
    return entries


def encode_mig_allocations(entries: Sequence[MigAllocation]) -> str:
    return msgspec.json.encode(entries).decode()


def completed(
    text: str, identities: Mapping[MadeAt, tuple[str, int, int]]
) -> tuple[MigAllocation, ...] | Malformed:
    """The entries with the identity of every instance that is known: MIG UUID and the two ids.

    An entry of an instance that is not known stays as it is.
    """
    entries = decode_mig_allocations(text)
    if isinstance(entries, Malformed):
        return entries
    return tuple(_completed(entry, identities) for entry in entries)


def _completed(
    entry: MigAllocation, identities: Mapping[MadeAt, tuple[str, int, int]]
) -> MigAllocation:
    known = identities.get((entry.gpu_uuid, entry.profile, entry.placement))
    if known is None:
        return entry
    return msgspec.structs.replace(
        entry, mig_uuid=known[0], gpu_instance_id=known[1], compute_instance_id=known[2]
    )


def mig_annotations(vendor: VendorKey, allocation: PodAllocation, pod: Pod) -> Mapping[str, str]:
    """The annotation for an allocation with MIG instances; else none.

    A value that the pod's author left there is overwritten: it would be believed later.
    """
    entries = [
        MigAllocation(
            container_index=container,
            device_index=position,
            gpu_uuid=grant.device_id,
            profile=instance.profile,
            placement=instance.placement,
        )
        for container, position, grant in _numbered(vendor, allocation)
        if (instance := grant.extra.get(MIG_INSTANCE)) is not None
    ]
    if not entries and MIG_ANNOTATION not in pod.annotations:
        return {}
    return {MIG_ANNOTATION: encode_mig_allocations(entries)}


def restore_instances(
    profile: VendorProfile, pod: Pod, allocation: PodAllocation
) -> PodAllocation | Corrupt:
    """Give each grant the instance that the annotation names for it.

    A grant that it does not name stays as it is: whether that is right depends on its device's
    mode, which only the fit sees. An annotation that contradicts the allocation puts every
    NVIDIA device of this pod in question, and no other: the pod's author can write it too.
    """
    text = pod.annotations.get(MIG_ANNOTATION, "")
    if not text:
        return allocation
    vendor = profile.key
    numbered = list(_numbered(vendor, allocation))
    devices = tuple(dict.fromkeys(grant.device_id for _, _, grant in numbered))
    entries = decode_mig_allocations(text)
    if isinstance(entries, Malformed):
        return Corrupt(devices, str(entries))
    slots = _slots(profile, pod, [container for container, _, _ in numbered])
    granted = {
        (slots.get(container, container), position): grant.device_id
        for container, position, grant in numbered
    }
    for entry in entries:
        problem = _contradiction(entry, granted)
        if problem:
            return Corrupt(devices, f"annotation {MIG_ANNOTATION}: {problem}")
    instances = {
        (entry.container_index, entry.device_index): MigInstance(
            profile=entry.profile, placement=entry.placement
        )
        for entry in entries
    }
    return _with_instances(vendor, allocation, instances, slots)


def _slots(profile: VendorProfile, pod: Pod, containers: Sequence[int]) -> Mapping[int, int]:
    """By container, the slot of the device list where its grants stand; empty: each at its own.

    The annotation counts slots, and HAMi writes none for a container that asks for no device.
    ``containers`` are those with grants, in order.
    """
    key = profile.pod_annotations.allocated
    slots = decode_pod_devices(pod.annotations.get(key, ""), annotation=key, vendor=profile.key)
    filled = () if isinstance(slots, Malformed) else [n for n, slot in enumerate(slots) if slot]
    holding = dict.fromkeys(containers)
    return dict(zip(holding, filled, strict=True)) if len(holding) == len(filled) else {}


def _contradiction(entry: MigAllocation, granted: Mapping[tuple[int, int], DeviceId]) -> str | None:
    place = (entry.container_index, entry.device_index)
    where = f"container {place[0]} device {place[1]}"
    if place not in granted:
        return f"{where} has no grant"
    if granted[place] != entry.gpu_uuid:
        return f"{where} is on {granted[place]}, not on {entry.gpu_uuid}"
    return None


def _with_instances(
    vendor: VendorKey,
    allocation: PodAllocation,
    instances: Mapping[tuple[int, int], MigInstance],
    slots: Mapping[int, int],
) -> PodAllocation:
    containers = []
    for number, container in enumerate(allocation.containers):
        position, grants = 0, []
        for grant in container.grants:
            completed = grant
            if grant.vendor == vendor:
                instance = instances.get((slots.get(number, number), position))
                if instance is not None:
                    completed = replace(grant, extra=grant.extra.with_(MIG_INSTANCE, instance))
                position += 1
            grants.append(completed)
        containers.append(replace(container, grants=tuple(grants)))
    return replace(allocation, containers=tuple(containers))


def _numbered(vendor: VendorKey, allocation: PodAllocation) -> Iterator[tuple[int, int, Grant]]:
    """The vendor's grants with their container's index and their position in it."""
    for number, container in enumerate(allocation.containers):
        own = [grant for grant in container.grants if grant.vendor == vendor]
        for position, grant in enumerate(own):
            yield number, position, grant
