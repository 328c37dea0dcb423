"""One slice made real before its container starts: verified, placed, enforced, written down.

Every step may be repeated after a crash at any point: the slice's record on disk comes first, its
CDI spec, without which the container cannot start, comes last.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from hami.domain.devices import Grant
from hami.domain.errors import HamiError, VendorFailed, shortened
from hami.domain.slices import ContainerEdits
from hami.domain.units import PodUid
from hami.node.device.threads import TooLate
from hami.node.disk.cdi import slice_spec
from hami.node.disk.files import StoreFailed
from hami.node.disk.record import SliceRecord
from hami.node.disk.store import OthersSlice
from hami.node.kubelet.checkpoint import CheckpointEntry
from hami.node.pod.granting import Granted, NotGranted
from hami.node.pod.pods import NoPod
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.container import page_limits, recorded_pod, with_page
from hami.node.slice.enforcing import enforced
from hami.node.slice.live_slices import LiveSlice, new_record, recorded_grants, to_enforce
from hami.node.slice.occupancy import Overfull, overfull

SLICE_ID = re.compile(r"[0-9a-f]{24}")
"""12 random bytes; it becomes a file's name."""


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


Outcome = Prepared | NotGranted

MakeRoom = Callable[[Collection[PodUid]], Awaitable[None]]
"""Releases what these pods no longer use, and answers when that has been tried."""


async def prepare(
    entry: CheckpointEntry, around: AgentContext, make_room: MakeRoom
) -> Prepared | NotGranted:
    """Make the slice of a checkpoint entry real. Not to be run twice at once for one slice."""
    slice_id = entry.slice_id(around.kind)
    if not SLICE_ID.fullmatch(slice_id):
        return NotGranted(f"container {entry.container}: {shortened(slice_id)!r} is no slice id")
    known = around.slices.get(slice_id)
    if known is not None and (stolen := _other_owner(known, entry)):
        return NotGranted(stolen)
    found = await around.pods.find(entry.pod_uid)
    if isinstance(found, NoPod):
        if found.certain or known is None:
            return NotGranted(f"container {entry.container}: {found.problem}", ended=found.ended)
        return await _as_before(known, around, found)
    if found.finished:
        return NotGranted(
            f"pod {found.full_name} has ended: nothing of it starts again", ended=True
        )
    granted = around.granting.granted(found, entry.container)
    if isinstance(granted, NotGranted):
        return granted
    if len(entry.ids) != len(granted.grants):
        return NotGranted(
            f"pod {found.full_name}, container {entry.container}: kubelet gave it "
            f"{len(entry.ids)} of {entry.resource}, its allocation {len(granted.grants)}"
        )
    if _grows(granted, known) and (full := await _overfull(granted, around, make_room)):
        return NotGranted(_crowded(granted, full))
    outcome = await _made(slice_id, granted, known, around)
    if isinstance(outcome, _Renewed):
        # A runtime may still serve the spec that it read before; it sees the new one next time.
        return NotGranted(
            f"pod {found.full_name}, container {entry.container}: its slice was made anew and its "
            "CDI spec has changed; the next start takes it"
        )
    return outcome


async def resize(
    granted: Granted, known: LiveSlice, around: AgentContext, make_room: MakeRoom
) -> Prepared | NotGranted:
    """Give a slice that lives other limits on the devices that it has.

    Its processes see them at their next call. What the CDI spec says of them counts from the next
    start on.
    """
    if _grows(granted, known) and (full := await _overfull(granted, around, make_room)):
        return NotGranted(_crowded(granted, full))
    outcome = await _made(known.id, granted, known, around)
    return Prepared(granted, None) if isinstance(outcome, _Renewed) else outcome


async def hold_pages(around: AgentContext) -> None:
    """Of every slice that lives, as at an agent's start: see :mod:`hami.node.disk.open_pages`."""

    async def hold(live: LiveSlice) -> None:
        # What is wrong with it, its next start or resize says to those whom it concerns.
        with suppress(StoreFailed):
            await around.pages.run(around.store.hold_page, live.id)

    await asyncio.gather(*map(hold, around.slices))


async def _made(
    slice_id: str, granted: Granted, known: LiveSlice | None, around: AgentContext
) -> Prepared | _Renewed | NotGranted:
    """Enforce it; the table has it from the first moment, so that nobody else takes its place.

    What it was before stays its record until everything else is done: a resize that does not come
    to its end, because a step fails or the agent is killed, is begun again.
    """
    record = (
        new_record(slice_id, around.vendor.profile.key, granted, at=around.clock())
        if known is None
        else known.record
    )
    held = granted if known is None else replace(granted, grants=_either(granted, known))
    around.slices.put(LiveSlice(record, held))
    who = f"pod {granted.pod.full_name}, container {granted.container}"
    try:
        state_dir = await around.disk.run(around.store.create, record)
    except StoreFailed as error:
        if known is None:
            await _undone(slice_id, around, ours=not isinstance(error, OthersSlice))
        return NotGranted(f"{who}: {error}")
    try:
        slice = to_enforce(record, granted, state_dir)
        edits = await enforced(slice, granted.generation, around)
        # To open the page may take as long as a lease of the container on it.
        await around.pages.run(
            around.store.write_limits, slice_id, page_limits(granted, edits.page)
        )
        outcome = await around.disk.run(_write_spec, slice_id, edits, state_dir, around)
        record = _completed(record, granted)
        await around.disk.run(around.store.save, record)
    except (StoreFailed, VendorFailed, TooLate, _NoSpecError) as error:
        return NotGranted(f"{who}: {error}")
    around.slices.put(LiveSlice(record, granted))
    if outcome == "changed":
        return _Renewed()
    return Prepared(granted, edits)


async def _undone(slice_id: str, around: AgentContext, *, ours: bool) -> None:
    """It could not even be begun: it holds no place. The next start clears up the rest."""
    around.slices.drop(slice_id)
    if ours:
        with suppress(StoreFailed):  # the same disk, and the refusal says what is wrong with it
            await around.disk.run(around.store.remove, slice_id)


def _grows(granted: Granted, known: LiveSlice | None) -> bool:
    """It takes more of a device than it holds; a start is no other than a resize in that."""
    return known is None or _either(granted, known) != known.grants


def _either(granted: Granted, known: LiveSlice) -> tuple[Grant, ...]:
    """Room for what it has and for what it is to have, while it may be held to one or the other."""
    new, old = granted.grants, known.grants
    if [grant.device_id for grant in new] != [grant.device_id for grant in old]:
        return (*new, *old)
    return tuple(
        replace(
            had,
            memory_mib=max(had.memory_mib, has.memory_mib),
            cores=max(had.cores, has.cores),
        )
        for had, has in zip(old, new, strict=True)
    )


def _write_spec(
    slice_id: str, edits: ContainerEdits, state_dir: Path, around: AgentContext
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


def _completed(record: SliceRecord, granted: Granted) -> SliceRecord:
    return msgspec.structs.replace(
        record,
        pod=recorded_pod(granted.pod),
        generation=granted.generation,
        grants=recorded_grants(granted),
        state="enforced",
    )


async def _overfull(granted: Granted, around: AgentContext, make_room: MakeRoom) -> Overfull | None:
    """Looks again after those that hold the device have been asked to make room."""
    full = _look(granted, around)
    if full is not None and full.pods:
        await make_room(full.pods)
        full = _look(granted, around)
    return full


def _look(granted: Granted, around: AgentContext) -> Overfull | None:
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


def _other_owner(known: LiveSlice, entry: CheckpointEntry) -> str:
    """A slice id is one container's for ever; kubelet's record says otherwise, or was forged."""
    pod = known.record.pod
    if (pod.uid, known.record.container) == (entry.pod_uid, entry.container):
        return ""
    return (
        f"slice {known.id} belongs to pod {pod.full_name}, container {known.record.container}; "
        f"kubelet's checkpoint names the pod with UID {entry.pod_uid}, container {entry.container}"
    )


async def _as_before(known: LiveSlice, around: AgentContext, found: NoPod) -> Prepared | NotGranted:
    """Nobody can be asked: what was verified and made before still stands, if it is whole."""
    if known.record.state == "enforced":
        written = await around.disk.run(around.folders.written)
        if known.id in written:
            return Prepared(known.granted, None)
    return NotGranted(f"container {known.record.container}: {found.problem}")
