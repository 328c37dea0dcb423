"""One slice made real before its container starts: verified, placed, enforced, written down.

Every step may be repeated after a crash at any point: the slice's record on disk comes first, its
CDI spec, without which the container cannot start, comes last.

A vendor's hook cannot be interrupted. So what is late is waited for before the same slice is
touched again, and nothing is enforced while ``hami_reconcile`` takes away what belongs to no slice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from hami.blocking.threads import TooLate
from hami.domain.devices import Grant
from hami.domain.errors import VendorFailed, shortened
from hami.domain.slices import ContainerEdits, Slice
from hami.domain.units import PodUid
from hami.node.disk.cdi import NoSpec
from hami.node.disk.store import OthersSlice
from hami.node.kubelet.checkpoint import CheckpointEntry
from hami.node.pod.pods import Granted, NoPod, NotGranted, find_granted
from hami.node.pod.refusal_causes import RefusalCause
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.live_slices import LiveSlice, Outcome, Overfull, Prepared
from hami.node.slice.reconciling import RECONCILE
from hami.node.slice.views import (
    enforced_record,
    new_record,
    page_limits,
    to_enforce,
    with_page,
)
from hami.slices.files import StoreFailed

ENFORCE = "hami_enforce"
ENFORCE_SECONDS = 20.0
"""The contract's limit for ``hami_enforce``."""
SLICE_ID = re.compile(r"[0-9a-f]{24}")
"""12 random bytes; it becomes a file's name."""


@dataclass(frozen=True, slots=True)
class _Renewed:
    """The slice is made, and its CDI spec differs from the one before."""


MakeRoom = Callable[[Collection[PodUid]], Awaitable[None]]
"""Releases what these pods no longer use, and returns when it has tried."""


async def prepare(entry: CheckpointEntry, around: AgentContext, make_room: MakeRoom) -> Outcome:
    """Make the slice of a checkpoint entry real. Callers take turns: one at a time per slice."""
    slice_id = entry.edits.cdi_device(around.kind)
    if not SLICE_ID.fullmatch(slice_id):
        return NotGranted(
            f"container {entry.container}: {shortened(slice_id)!r} is no slice id",
            RefusalCause.OTHERS_SLICE,
        )
    known = around.slices.get(slice_id)
    if known is not None and (stolen := _other_owner(known, entry)):
        return NotGranted(stolen, RefusalCause.OTHERS_SLICE)
    granted = await find_granted(entry.pod_uid, entry.container, around.pods, around.granting)
    if isinstance(granted, NoPod):
        if granted.certain or known is None:
            return NotGranted(
                f"container {entry.container}: {granted.problem}",
                RefusalCause.POD_UNKNOWN,
                ended=granted.ended,
            )
        return await _as_before(known, around, granted)
    if isinstance(granted, NotGranted):
        return granted
    pod = granted.pod
    if len(entry.ids) != len(granted.grants):
        return NotGranted(
            f"pod {pod.full_name}, container {entry.container}: kubelet gave it "
            f"{len(entry.ids)} of {entry.resource}, its allocation {len(granted.grants)}",
            RefusalCause.BAD_ALLOCATION,
        )
    if _grows(granted, known) and (full := await _overfull(granted, around, make_room)):
        return NotGranted(_crowded(granted, full), RefusalCause.NO_ROOM)
    outcome = await _made(slice_id, granted, known, around)
    if isinstance(outcome, _Renewed):
        # A runtime may still serve the spec that it read before; it sees the new one next time.
        return NotGranted(
            f"pod {pod.full_name}, container {entry.container}: its slice was made anew and its "
            "CDI spec has changed; the next start takes it",
            RefusalCause.SPEC_CHANGED,
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
        return NotGranted(_crowded(granted, full), RefusalCause.NO_ROOM)
    outcome = await _made(known.id, granted, known, around)
    return Prepared(granted, None) if isinstance(outcome, _Renewed) else outcome


async def hold_pages(around: AgentContext) -> None:
    """Open the limits page of every slice that lives: see :mod:`hami.slices.open_pages`."""

    async def hold(live: LiveSlice) -> None:
        # What is wrong with it, its next start or resize says to those whom it concerns.
        with suppress(StoreFailed):
            await around.pages.run(around.store.hold_page, live.id)

    await asyncio.gather(*map(hold, around.slices))


async def _made(
    slice_id: str, granted: Granted, known: LiveSlice | None, around: AgentContext
) -> Prepared | _Renewed | NotGranted:
    """Enforce the slice. It stands in the table first, so that nobody else takes its place.

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
        return NotGranted(f"{who}: {error}", cause_of(error))
    try:
        slice = to_enforce(record, granted, state_dir)
        edits = await enforce(slice, granted.generation, around)
        # To open the page may take as long as a lease of the container on it.
        await around.pages.run(
            around.store.write_limits, slice_id, page_limits(granted, edits.page)
        )
        whole = with_page(around.vendor.profile.key, slice_id, state_dir, edits)
        outcome = await around.disk.run(around.folders.write_slice, around.kind, slice_id, whole)
        record = enforced_record(record, granted)
        await around.disk.run(around.store.save, record)
    except (StoreFailed, VendorFailed, TooLate, NoSpec) as error:
        return NotGranted(f"{who}: {error}", cause_of(error))
    around.slices.put(LiveSlice(record, granted))
    if outcome == "changed":
        return _Renewed()
    return Prepared(granted, edits, last=is_last(granted, around))


def cause_of(error: Exception) -> RefusalCause:
    """The word for an error of a disk, a vendor or its hook."""
    match error:
        case OthersSlice():
            return RefusalCause.OTHERS_SLICE
        case StoreFailed():
            return RefusalCause.DISK
        case TooLate():
            return RefusalCause.LATE
        case _:
            return RefusalCause.VENDOR


def is_last(granted: Granted, around: AgentContext) -> bool:
    """Whether nothing of this vendor is left to prepare in the pod."""
    return around.slices.complete(granted, around.vendor.profile.key)


async def _undone(slice_id: str, around: AgentContext, *, ours: bool) -> None:
    """Take a slice that could not be begun off the table; the next start clears up the rest."""
    around.slices.drop(slice_id)
    if ours:
        with suppress(StoreFailed):  # the same disk, and the refusal says what is wrong with it
            await around.disk.run(around.store.remove, slice_id)


def _grows(granted: Granted, known: LiveSlice | None) -> bool:
    """Whether the slice takes more of a device than it holds: at a start, at a resize."""
    return known is None or _either(granted, known) != known.grants


def _either(granted: Granted, known: LiveSlice) -> tuple[Grant, ...]:
    """The larger of what it has and what it shall have: meanwhile it may use either."""
    new, old = granted.grants, known.grants
    if [grant.device_id for grant in new] != [grant.device_id for grant in old]:
        return (*new, *old)
    return tuple(
        msgspec.structs.replace(
            had,
            memory_mib=max(had.memory_mib, has.memory_mib),
            cores=max(had.cores, has.cores),
        )
        for had, has in zip(old, new, strict=True)
    )


async def enforce(slice: Slice, generation: int, around: AgentContext) -> ContainerEdits:
    """Call ``hami_enforce``; what the container needs for its slice.

    Raises:
        VendorFailed: the vendor cannot do it.
        TooLate: it takes too long and goes on, or something else of it does.
    """
    hooks = around.hooks
    await hooks.over(ENFORCE_SECONDS, RECONCILE)
    key = (ENFORCE, slice.id, generation)
    if not hooks.under_way(*key):
        # One of another generation would be answered with that one's edits.
        await hooks.over(ENFORCE_SECONDS, ENFORCE, slice.id)
    return await hooks.call(key, ENFORCE_SECONDS, around.vendor.enforce, slice, around.config.now)


async def _overfull(granted: Granted, around: AgentContext, make_room: MakeRoom) -> Overfull | None:
    """Which device has no room, also after its holders were asked to make some."""
    full = _look(granted, around)
    if full is not None and full.pods:
        await make_room(full.pods)
        full = _look(granted, around)
    return full


def _look(granted: Granted, around: AgentContext) -> Overfull | None:
    return around.slices.overfull(granted, around.inventory.devices, around.vendor.profile.modes)


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
    """What is wrong if kubelet's checkpoint names another container for this slice id.

    A slice id belongs to one container for ever.
    """
    pod = known.record.pod
    if (pod.uid, known.record.container) == (entry.pod_uid, entry.container):
        return ""
    return (
        f"slice {known.id} belongs to pod {pod.full_name}, container {known.record.container}; "
        f"kubelet's checkpoint names the pod with UID {entry.pod_uid}, container {entry.container}"
    )


async def _as_before(known: LiveSlice, around: AgentContext, found: NoPod) -> Prepared | NotGranted:
    """Start a slice that was verified and made before, while the API server cannot be asked."""
    who = f"container {known.record.container}"
    if known.record.state == "enforced":
        try:
            written = await around.disk.run(around.folders.written)
        except StoreFailed as error:
            return NotGranted(f"{who}: {error}", RefusalCause.DISK)
        if known.id in written:
            return Prepared(known.granted, None, last=is_last(known.granted, around))
    return NotGranted(f"{who}: {found.problem}", RefusalCause.POD_UNKNOWN)
