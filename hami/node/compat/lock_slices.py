"""Slices of the identity mode ``lock``: made at Allocate, looked after until their pod is gone.

The container gets them by the answer to Allocate, in HAMi's words, so they have no CDI spec; they
have a record like any other, by which they are released, reconciled and recognised.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from hami.blocking.threads import TooLate
from hami.domain.errors import VendorFailed, shortened
from hami.domain.kubernetes.objects import Pod
from hami.domain.slices import ContainerEdits
from hami.domain.units import PodUid
from hami.node.disk.store import StoreFailed
from hami.node.kubelet.checkpoint import CheckpointEntry
from hami.node.pod.pods import Granted, NoPod, NotGranted
from hami.node.pod.refusal_causes import RefusalCause
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.live_slices import LiveSlice, Prepared
from hami.node.slice.preparing import cause_of, enforce, is_last, prepare
from hami.node.slice.views import new_record, page_limits, to_enforce


async def make_locked(
    slice_id: str, granted: Granted, around: AgentContext
) -> ContainerEdits | NotGranted:
    """Enforce it, for the first time or before another start of its container."""
    known = around.slices.get(slice_id)
    record = (
        known.record
        if known is not None
        else new_record(
            slice_id,
            around.vendor.profile.key,
            granted,
            at=around.clock(),
            identity="lock",
        )
    )
    around.slices.put(LiveSlice(record, granted))
    try:
        state_dir = await around.disk.run(around.store.create, record)
        slice = to_enforce(record, granted, state_dir)
        edits = await enforce(slice, granted.generation, around)
        await around.disk.run(around.store.write_limits, slice_id, page_limits(granted, edits.page))
        if record.state != "enforced":
            record = msgspec.structs.replace(record, state="enforced")
            await around.disk.run(around.store.save, record)
    except (StoreFailed, VendorFailed, TooLate) as error:
        who = f"pod {granted.pod.full_name}, container {granted.container}"
        return NotGranted(f"{who}: {error}", cause_of(error))
    around.slices.put(LiveSlice(record, granted))
    return edits


async def start_locked(entry: CheckpointEntry, around: AgentContext) -> Prepared | NotGranted:
    """Whether the container of kubelet's record is the one that its slice was made for.

    HAMi's protocol guesses the pod at Allocate. Had it guessed wrong, because a lock expired, this
    is where kubelet says so, before the container starts: the slice id in our answer is in its
    record beside pod and container.
    """
    if entry.edits.cdi_device(around.kind):
        # From when this agent ran in the mode ``kubelet``: it starts with its CDI spec.
        return await prepare(entry, around, _nothing)
    slice_id = entry.locked_slice_id(around.kind)
    known = around.slices.get(slice_id)
    found = await around.pods.find(entry.pod_uid)
    whose = found.full_name if isinstance(found, Pod) else f"with UID {entry.pod_uid}"
    who = f"pod {whose}, container {entry.container}"
    over = found.finished if isinstance(found, Pod) else found.ended
    if known is None:
        return NotGranted(
            f"{who}: the record of its slice {shortened(slice_id)} is lost, so nobody can say for "
            "whom its devices were allocated; delete the pod, so that it is made anew",
            RefusalCause.OTHERS_SLICE,
            ended=over,
        )
    record = known.record
    if (record.pod.uid, record.container) != (entry.pod_uid, entry.container):
        return NotGranted(
            f"{who}: kubelet gave it the devices that were allocated for pod "
            f"{record.pod.full_name}, container {record.container}: the node lock had expired or "
            "was removed; delete both pods, so that they are made anew",
            RefusalCause.OTHERS_SLICE,
            ended=over,
        )
    if isinstance(found, NoPod):
        if not found.certain and record.state == "enforced":
            return Prepared(known.granted, None, last=is_last(known.granted, around))
        return NotGranted(
            f"container {entry.container}: {found.problem}", RefusalCause.POD_UNKNOWN, ended=over
        )
    if found.finished:
        return NotGranted(
            f"pod {found.full_name} has ended: nothing of it starts again",
            RefusalCause.POD_ENDED,
            ended=True,
        )
    granted = around.granting.granted(found, entry.container)
    if isinstance(granted, NotGranted):
        return granted
    had, has = _devices(known.granted), _devices(granted)
    if had != has:
        return NotGranted(
            f"{who}: it was started with {', '.join(had)}, its allocation now gives it "
            f"{', '.join(has)}; delete the pod, so that it is made anew",
            RefusalCause.BAD_ALLOCATION,
        )
    edits = await make_locked(slice_id, granted, around)
    if isinstance(edits, NotGranted):
        return edits
    return Prepared(granted, edits, last=is_last(granted, around))


async def _nothing(_pods: Collection[PodUid]) -> None:
    """A slice that is there needs no room to be made."""


def _devices(granted: Granted) -> list[str]:
    return sorted(grant.device_id for grant in granted.grants)
