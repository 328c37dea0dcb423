"""What containers that run see of their slices, by their mounts; who answered for those without.

Everything here blocks.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from hami.domain.errors import Malformed
from hami.domain.slices import SEEN_AT
from hami.domain.units import DeviceId, VendorKey
from hami.kube.node_pod import NodePod
from hami.node.kubelet.checkpoint import CheckpointEntry
from hami.node.pod.pods import Granted
from hami.node.slice.other_agents import other_devices
from hami.node.slice.views import seen_limits
from hami.slices.cgroups import CgroupUnreadable, PodCgroups
from hami.slices.mounts import (
    Missing,
    Mounted,
    MountUnclear,
    mounted_slice,
    mounting,
    slice_mount,
)

_RUNTIME = "let the container runtime read CDI specs, or run the agent with --identity lock"
_ANEW = (
    "delete the pod, so that it is made anew, and the other device plugin, if there is one "
    "(event DevicePluginDisplaced on the node)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A container that runs; ``id`` as its status has it, ``containerd://<hex>``.

    ``page`` is its limits page on the node, None where it was granted something and has no slice.
    ``had_it``: it was seen with its slice before.
    """

    pod: NodePod
    name: str
    id: str
    granted: Granted
    page: Path | None
    had_it: bool


@dataclass(frozen=True, slots=True)
class Fine:
    """It has its slice."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Another plugin answered for it, and named the very devices of its allocation."""


@dataclass(frozen=True, slots=True)
class Without:
    """``problem`` says what it lacks, ``advice`` what to do about it."""

    problem: str
    advice: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """Nobody can say now."""


Seen = Fine | Foreign | Without | Unclear


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """Where to look. ``entries`` reads kubelet's record; ``kind`` is the CDI kind of slices."""

    vendor: VendorKey
    resource: str
    kind: str
    proc: Path
    cgroups: PodCgroups
    entries: Callable[[], Sequence[CheckpointEntry] | Malformed]

    def seen(
        self, containers: Sequence[Running], known: Collection[DeviceId], *, stop: bool
    ) -> list[Seen]:
        """Of each; one without its slice is stopped, where ``stop`` says so."""
        pids = self.cgroups.pids_of(
            [(each.pod.uid, each.id.rpartition("/")[2]) for each in containers]
        )
        entries = cache(self.entries)
        answers: list[Seen] = []
        for container, found in zip(containers, pids, strict=True):
            if isinstance(found, CgroupUnreadable) or not found:
                answers.append(Unclear())
                continue
            seen = (
                self._slice(min(found), container.page, had_it=container.had_it)
                if container.page is not None
                else self._without(min(found), container, known, entries)
            )
            if stop and isinstance(seen, Without):
                seen = Without(f"{seen.problem}; {_stopped(found)}", seen.advice)
            answers.append(seen)
        return answers

    def _slice(self, pid: int, page: Path, *, had_it: bool) -> Seen:
        match slice_mount(pid, self._seen_at, page, proc=self.proc):
            case Mounted():
                return Fine()
            case Missing() as missing:
                return Without(missing.problem, _advice(missing, had_it=had_it))
            case MountUnclear():
                return Unclear()

    def _without(
        self,
        pid: int,
        container: Running,
        known: Collection[DeviceId],
        entries: Callable[[], Sequence[CheckpointEntry] | Malformed],
    ) -> Seen:
        """One whose slice nobody here has made. It may have one whose record was lost."""
        has = mounted_slice(pid, self._seen_at, self.vendor.lower(), proc=self.proc)
        if isinstance(has, MountUnclear):
            return Unclear()
        if has:
            return Fine()
        record = entries()
        if isinstance(record, Malformed):
            return Unclear()
        whose = (container.pod.uid, container.name, self.resource)
        entry = next((e for e in record if (e.pod_uid, e.container, e.resource) == whose), None)
        if entry is None:
            return Without(f"kubelet gave it nothing of {self.resource}", _ANEW)
        if entry.edits.cdi_device(self.kind) or entry.locked_slice_id(self.kind):
            return Unclear()  # the next start makes it
        problem = other_devices(entry.edits, container.granted, known)
        return Without(problem, _ANEW) if problem else Foreign()

    @property
    def _seen_at(self) -> PurePosixPath:
        return PurePosixPath(seen_limits(self.vendor))


def slices_in_use(
    ids: Collection[str], vendor: VendorKey, cgroups: PodCgroups, proc: Path
) -> set[str]:
    """Those of these slices of which a pod's process has a file; all, where nobody can say."""
    pids = cgroups.all_pids() if ids else frozenset()
    if isinstance(pids, CgroupUnreadable):
        return set(ids)
    folders = {f"{vendor.lower()}/{id}": id for id in ids}
    return {folders[found] for found in mounting(pids, folders, proc=proc)}


def _advice(missing: Missing, *, had_it: bool) -> str:
    """What is mounted at ``/run`` alone may be the image's own business."""
    if missing.beside.startswith(SEEN_AT) or (had_it and missing.beside):
        return (
            f"the pod has a volume of its own at {missing.beside}, with which it hides its limits: "
            "take that volumeMount away"
        )
    if missing.link:
        return "take the link away; it is the image's or a volume's"
    if had_it:
        return (
            "it had its slice before, and somebody who may change its mounts took it away: take "
            "CAP_SYS_ADMIN from the pod"
        )
    return _RUNTIME


def _stopped(pids: Iterable[int]) -> str:
    """What came of it, in words."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except OSError as error:
            return f"it cannot be stopped ({error.strerror}; run the agent as root with hostPID)"
    return "it was stopped"
