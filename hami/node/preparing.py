"""One slice made real before its container starts: verified, placed, enforced, written down.

Every step may be repeated after a crash at any point: the slice's record on disk comes first, its
CDI spec, without which the container cannot start, comes last.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from hami.domain.errors import HamiError, shortened
from hami.domain.slices import ContainerEdits, Slice
from hami.domain.units import PodUid
from hami.node.cdi import slice_spec
from hami.node.checkpoint import Entry
from hami.node.container import literal_env, page_limits, recorded_pod, with_page
from hami.node.granting import Granted, Refused
from hami.node.occupancy import Overfull, overfull
from hami.node.pods import NoPod
from hami.node.store import RecordedGrant, SliceRecord, StoreFailed
from hami.node.surroundings import Surroundings
from hami.node.table import LiveSlice
from hami.node.threads import TooLate
from hami.vendor import VendorFailed

SLICE_ID = re.compile(r"[0-9a-f]{24}")
"""12 random bytes; it becomes a file's name."""
ENFORCE_SECONDS = 20.0
"""The contract's limit for ``hami_enforce``."""


class _NoSpecError(HamiError):
    """Another component's CDI spec is missing."""


@dataclass(frozen=True, slots=True)
class _Renewed:
    """It is made, and its CDI spec is another one than before."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The container may start; ``edits`` is None when it was prepared before, as it is."""

    granted: Granted
    edits: ContainerEdits | None


Outcome = Prepared | Refused

MakeRoom = Callable[[Collection[PodUid]], Awaitable[None]]
"""Releases what these pods no longer use, and answers when that has been tried."""


async def prepare(entry: Entry, around: Surroundings, make_room: MakeRoom) -> Prepared | Refused:
    """Make the slice of a checkpoint entry real. Not to be run twice at once for one slice."""
    slice_id = entry.slice_id(around.kind)
    if not SLICE_ID.fullmatch(slice_id):
        return Refused(f"container {entry.container}: {shortened(slice_id)!r} is no slice id")
    known = around.slices.get(slice_id)
    if known is not None and (stolen := _other_owner(known, entry)):
        return Refused(stolen)
    found = await around.pods.find(entry.pod_uid)
    if isinstance(found, NoPod):
        if found.certain or known is None:
            return Refused(f"container {entry.container}: {found.problem}", ended=found.certain)
        return await _as_before(known, around, found)
    if found.finished:
        return Refused(f"pod {found.full_name} has ended: nothing of it starts again", ended=True)
    granted = around.granting.granted(found, entry.container)
    if isinstance(granted, Refused):
        return granted
    if len(entry.ids) != len(granted.grants):
        return Refused(
            f"pod {found.full_name}, container {entry.container}: kubelet gave it "
            f"{len(entry.ids)} of {entry.resource}, its allocation {len(granted.grants)}"
        )
    if known is None and (full := await _overfull(granted, around, make_room)) is not None:
        return Refused(_crowded(granted, full))
    outcome = await _made(slice_id, granted, known, around)
    if isinstance(outcome, _Renewed):
        # A runtime may still serve the spec that it read before; it sees the new one next time.
        return Refused(
            f"pod {found.full_name}, container {entry.container}: its slice was made anew and its "
            "CDI spec has changed; the next start takes it"
        )
    return outcome


async def resize(
    granted: Granted, known: LiveSlice, around: Surroundings, make_room: MakeRoom
) -> Prepared | Refused:
    """Give a slice that lives other limits on the devices that it has.

    Its processes see them at their next call. What the CDI spec says of them counts from the next
    start on.
    """
    if (full := await _overfull(granted, around, make_room)) is not None:
        return Refused(_crowded(granted, full))
    outcome = await _made(known.id, granted, known, around)
    return Prepared(granted, None) if isinstance(outcome, _Renewed) else outcome


async def _made(
    slice_id: str, granted: Granted, known: LiveSlice | None, around: Surroundings
) -> Prepared | _Renewed | Refused:
    """Enforce it; the table has it from the first moment, so that nobody else takes its place."""
    record = _record(slice_id, granted, known, around)
    around.slices.put(LiveSlice(record, granted))
    try:
        state_dir = await around.disk.run(around.store.create, record)
        edits = await _enforced(slice_id, granted, state_dir, around)
        await around.disk.run(around.store.write_limits, slice_id, page_limits(granted, edits.page))
        outcome = await around.disk.run(_write_spec, slice_id, edits, state_dir, around)
        if record.state != "enforced":
            record = msgspec.structs.replace(record, state="enforced")
            await around.disk.run(around.store.save, record)
    except (StoreFailed, VendorFailed, TooLate, _NoSpecError) as error:
        if known is None and isinstance(error, StoreFailed):
            await _undone(slice_id, around)
        return Refused(f"pod {granted.pod.full_name}, container {granted.container}: {error}")
    around.slices.put(LiveSlice(record, granted))
    if outcome == "changed":
        return _Renewed()
    return Prepared(granted, edits)


async def _undone(slice_id: str, around: Surroundings) -> None:
    """Nothing of it could be written: it holds no place. The next start clears up the rest."""
    around.slices.drop(slice_id)
    try:
        await around.disk.run(around.store.remove, slice_id)
    except StoreFailed:
        return  # the same disk, and the refusal says what is wrong with it


async def _enforced(
    slice_id: str, granted: Granted, state_dir: Path, around: Surroundings
) -> ContainerEdits:
    vendor, config = around.vendor, around.config()
    container = next(c for c, _ in granted.pod.each_container() if c.name == granted.container)
    slice = Slice(
        id=slice_id,
        vendor=vendor.profile.key,
        pod_uid=granted.pod.uid,
        namespace=granted.pod.namespace,
        pod=granted.pod.name,
        container=granted.container,
        kind=granted.kind,
        grants=granted.grants,
        state_dir=state_dir,
        container_env=literal_env(container),
        pod_annotations=granted.pod.annotations,
    )
    return await around.hooks.call(
        ("hami_enforce", slice_id), ENFORCE_SECONDS, vendor.enforce, slice, config
    )


def _write_spec(
    slice_id: str, edits: ContainerEdits, state_dir: Path, around: Surroundings
) -> Literal["new", "same", "changed"]:
    vendor = around.vendor.profile.key
    theirs = []
    for name in edits.cdi_devices:
        found = around.folders.edits_of(name)
        if found is None:
            raise _NoSpecError(
                f"no CDI spec on this node defines {name}; write one, for NVIDIA with "
                "nvidia-ctk cdi generate"
            )
        theirs.append(found)
    whole = with_page(vendor, slice_id, state_dir, edits)
    return around.folders.write(slice_id, slice_spec(around.kind, slice_id, whole, theirs))


def _record(
    slice_id: str, granted: Granted, known: LiveSlice | None, around: Surroundings
) -> SliceRecord:
    pod = recorded_pod(granted.pod)
    if known is not None:
        return msgspec.structs.replace(known.record, pod=pod, generation=granted.generation)
    return SliceRecord(
        slice_id=slice_id,
        vendor=around.vendor.profile.key,
        pod=pod,
        container=granted.container,
        generation=granted.generation,
        state="preparing",
        created_at=around.clock(),
        grants=tuple(
            RecordedGrant(device_id=g.device_id, memory_mib=g.memory_mib, cores=g.cores)
            for g in granted.grants
        ),
    )


async def _overfull(granted: Granted, around: Surroundings, make_room: MakeRoom) -> Overfull | None:
    """Looks again after those that hold the device have been asked to make room."""
    full = _look(granted, around)
    if full is not None and full.pods:
        await make_room(full.pods)
        full = _look(granted, around)
    return full


def _look(granted: Granted, around: Surroundings) -> Overfull | None:
    slices = around.slices
    return overfull(
        slices.with_(granted), slices.others(granted.pod.uid), around.devices(), around.vendor.rules
    )


def _crowded(granted: Granted, full: Overfull) -> str:
    who = f"pod {granted.pod.full_name}, container {granted.container}"
    if not full.pods:
        return f"{who}: device {full.device} {full.problem}"
    holders = ", ".join(sorted(full.pods.values()))
    return (
        f"{who}: device {full.device} {full.problem}; it is held by pod {holders} until the last "
        "process of that has ended"
    )


def _other_owner(known: LiveSlice, entry: Entry) -> str:
    """A slice id is one container's for ever; kubelet's record says otherwise, or was forged."""
    pod = known.record.pod
    if (pod.uid, known.record.container) == (entry.pod_uid, entry.container):
        return ""
    return (
        f"slice {known.id} belongs to pod {pod.full_name}, container {known.record.container}; "
        f"kubelet's checkpoint names the pod with UID {entry.pod_uid}, container {entry.container}"
    )


async def _as_before(known: LiveSlice, around: Surroundings, found: NoPod) -> Prepared | Refused:
    """Nobody can be asked: what was verified and made before still stands, if it is whole."""
    if known.record.state == "enforced":
        written = await around.disk.run(around.folders.written)
        if known.id in written:
            return Prepared(known.granted, None)
    return Refused(f"container {known.record.container}: {found.problem}")
