"""A pod's whole allocation, all vendors and containers, as pod annotations and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from hami.domain.allocations import ContainerAllocation, PodAllocation
from hami.domain.devices import Grant
from hami.domain.errors import Malformed, shortened
from hami.domain.kubernetes.objects import Pod
from hami.domain.profile import VendorProfile
from hami.domain.units import VendorKey
from hami.wire import keys
from hami.wire.codecs.cores_limits import (
    NO_LIMIT,
    decode_cores_limits,
    encode_cores_limits,
)
from hami.wire.codecs.pod_devices import containers_of, encode_pod_devices, read_pod_devices


class DecodedAllocation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a pod's annotations say it was given. One vendor's fault hides no other vendor.

    ``allocation`` has every container of the pod, with the grants that could be read. ``unplaced``
    are grants in slots for which the pod has no container; they are in use nevertheless.
    ``problems`` say what could not be read or placed. ``unreadable`` are the vendors concerned:
    more of their devices may be in use. ``missing`` are the vendors for which no annotation names a
    device; whether one should depends on what the pod asks for.
    """

    allocation: PodAllocation
    unplaced: tuple[Grant, ...] = ()
    problems: tuple[Malformed, ...] = ()
    unreadable: frozenset[VendorKey] = frozenset()
    missing: frozenset[VendorKey] = frozenset()


def decode_allocation(
    pod: Pod,
    node: str,
    profiles: Iterable[VendorProfile],
    asking: Mapping[VendorKey, Sequence[bool]],
) -> DecodedAllocation:
    """Read the ``...-allocated`` annotation of every profile; a container's grants by vendor key.

    ``asking``: by vendor, for each container in spec order, whether it asks for that vendor's
    devices. From this follows which container a slot belongs to.
    """
    containers = list(pod.each_container())
    grants: list[list[Grant]] = [[] for _ in containers]
    unplaced: list[Grant] = []
    problems: list[Malformed] = []
    unreadable: set[VendorKey] = set()
    missing: set[VendorKey] = set()
    for profile in sorted(profiles, key=lambda profile: profile.key):
        annotation = profile.pod_annotations.allocated
        text = pod.annotations.get(annotation)
        if text is None:
            missing.add(profile.key)
            continue
        slots, problem = read_pod_devices(text, annotation=annotation, vendor=profile.key)
        owners = containers_of(slots, asking[profile.key])
        beyond: list[Grant] = []
        for owner, slot in zip(owners, slots, strict=True):
            (beyond if owner is None else grants[owner]).extend(slot)
        unplaced.extend(beyond)
        if problem is None and beyond:
            problem = _beyond(annotation, beyond)
        if problem is not None:
            problems.append(problem)
            unreadable.add(profile.key)
        elif not any(slots):
            missing.add(profile.key)
    limits = decode_cores_limits(pod.annotations.get(keys.ALLOCATED_CORES_LIMIT, ""), containers)
    if isinstance(limits, Malformed):
        problems.append(limits)
        limits = {}
    return DecodedAllocation(
        allocation=PodAllocation(
            node=node,
            containers=tuple(
                ContainerAllocation(
                    name=container.name,
                    kind=kind,
                    grants=tuple(held),
                    cores_limit=limits.get(container.name, NO_LIMIT),
                )
                for (container, kind), held in zip(containers, grants, strict=True)
            ),
        ),
        unplaced=tuple(unplaced),
        problems=tuple(problems),
        unreadable=frozenset(unreadable),
        missing=frozenset(missing),
    )


def _beyond(annotation: str, grants: list[Grant]) -> Malformed:
    return Malformed(
        annotation=annotation,
        position="",
        text=shortened(encode_pod_devices([grants])),
        problem="devices of more containers than the pod has, or than ask for them",
    )


def encode_allocation(
    allocation: PodAllocation, profiles: Iterable[VendorProfile]
) -> dict[str, str]:
    """Write the two device lists of each vendor that has a grant, and the limits of compute.

    Raises:
        ValueError: a grant whose vendor has no profile here, or that could not be read back.
    """
    annotations: dict[str, str] = {}
    by_key = {profile.key: profile for profile in profiles}
    for vendor in sorted({grant.vendor for grant in allocation.grants}):
        if vendor not in by_key:
            raise ValueError(f"grant of vendor {vendor}, which is none of {sorted(by_key)}")
        # By vendor key, not by the devices' model: every container has a slot, so that the
        # reader's index is the container's.
        text = encode_pod_devices(
            [[g for g in c.grants if g.vendor == vendor] for c in allocation.containers]
        )
        written = by_key[vendor].pod_annotations
        if written.to_allocate:
            annotations[written.to_allocate] = text
        annotations[written.allocated] = text
    if limits := encode_cores_limits(allocation.containers):
        annotations[keys.ALLOCATED_CORES_LIMIT] = limits
    return annotations


def decision_annotations(node: str, now: datetime) -> dict[str, str]:
    """Annotations that say which node was chosen, and when; ``now`` has a zone."""
    return {keys.NODE: node, keys.TIME: str(int(now.timestamp()))}


def bind_annotations(now: datetime) -> dict[str, str]:
    """Annotations that say that the bind begins; ``now`` has a zone.

    HAMi's plugins look for a pod in this phase.
    """
    return {keys.BIND_PHASE: "allocating", keys.BIND_TIME: str(int(now.timestamp()))}


def allocation_keys(profiles: Iterable[VendorProfile]) -> frozenset[str]:
    """Every pod annotation that only the scheduler may write; admission removes a tenant's."""
    core = (
        keys.NODE,
        keys.TIME,
        keys.BIND_PHASE,
        keys.BIND_TIME,
        keys.ALLOCATION_SIGNATURE,
        keys.ALLOCATED_CORES_LIMIT,
        keys.SCHEDULER_TERM,
        keys.RESIZES,
    )
    vendors = (
        key
        for written in (profile.pod_annotations for profile in profiles)
        for key in (written.to_allocate, written.allocated, *written.also_written)
        if key
    )
    return frozenset((*core, *vendors))
