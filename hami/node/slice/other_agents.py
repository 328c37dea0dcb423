"""Containers that another agent answered for before this one came: HAMi's, before a migration.

Their environment is in kubelet's checkpoint and cannot be changed. They start as they were
answered, if that names the very devices that their pod's allocation gives them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hami.domain.slices import ContainerEdits
from hami.domain.units import DeviceId
from hami.node.kubelet.checkpoint import CheckpointEntry
from hami.node.pod.pods import Granted, NoPod, NotGranted, find_granted
from hami.node.pod.refusal_causes import RefusalCause
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.live_slices import Prepared

STARTED = "ForeignSlice"


async def start_foreign(entry: CheckpointEntry, around: AgentContext) -> Prepared | NotGranted:
    """Let the container start as it was answered, or say why it must not."""
    granted = await find_granted(entry.pod_uid, entry.container, around.pods, around.granting)
    if isinstance(granted, NoPod):
        return NotGranted(
            f"container {entry.container}: {granted.problem}",
            RefusalCause.POD_UNKNOWN,
            ended=granted.ended,
        )
    if isinstance(granted, NotGranted):
        return granted
    if problem := other_devices(entry.edits, granted, around.inventory.devices):
        return NotGranted(
            f"pod {granted.pod.full_name}, container {entry.container}: {problem}; delete the pod, "
            "so that it is made anew",
            RefusalCause.BAD_ALLOCATION,
        )
    around.events.record(
        granted.pod,
        STARTED,
        f"container {entry.container} starts as another agent answered for it, before this one "
        "came; its limits cannot be changed until the pod is made anew",
        warning=False,
    )
    return Prepared(granted, None)


def other_devices(edits: ContainerEdits, granted: Granted, known: Collection[DeviceId]) -> str:
    """How another agent's answer differs from the grants; empty if it does not."""
    wanted = {grant.device_id for grant in granted.grants}
    named = _named(edits, {*known, *wanted})
    if named == wanted:
        return ""
    return (
        f"another agent gave it {', '.join(sorted(named)) or 'no device'}, its allocation "
        f"{', '.join(sorted(wanted))}"
    )


def _named(edits: ContainerEdits, ids: Iterable[DeviceId]) -> set[DeviceId]:
    """The devices that the answer names: by variable, annotation, CDI device or mount."""
    texts = [
        *edits.env.values(),
        *edits.annotations.values(),
        *edits.cdi_devices,
        *(mount.container_path for mount in edits.mounts),
    ]
    return {id for id in ids if any(id in text for text in texts)}
