"""The slice of a container, by its cgroup and by what it has mounted.

kubelet names a process's pod in its cgroup, and a container cannot leave that. Which of the pod's
containers it is, the slice itself says: the limits page that the process sees is one of our files,
by device and inode. No API server has to answer for that, it is right from the container's first
moment on, and no container can mount the page of another. Only one that hides its page, or whose
mounts cannot be read, is found by its id: the API server knows its name, late; or else the pod has
no other slice that could be meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hami.domain.slices import SEEN_AT
from hami.domain.units import VendorKey
from hami.monitor.files.held_slice import HeldSlice
from hami.monitor.processes.process import ProcessIdentity
from hami.slices.cgroups import CgroupPlace
from hami.slices.mounts import Missing, Mounted, slice_mount

LOOK_EVERY = 10.0
"""Seconds between looks at the mounts of one container, at most."""

NameOf = Callable[[CgroupPlace], str]
"""The name of a container as the API server has it; empty while it is not known."""


@dataclass(slots=True)
class _Seen:
    """What is known of one container: its slice, and whether that was ``mounted`` at any time."""

    slice_id: str
    mounted: bool
    covered: bool
    due: float


class Owners:
    """Remembers what it has found for as long as ``keep`` names it. Blocks; one caller at a time.

    ``proc`` is where the node's processes are.
    """

    def __init__(self, proc: Path, name_of: NameOf) -> None:
        self._proc = proc
        self._name_of = name_of
        self._seen: dict[tuple[VendorKey, CgroupPlace], _Seen] = {}

    def owner(
        self,
        vendor: VendorKey,
        process: ProcessIdentity,
        of_pod: Sequence[HeldSlice],
        now: float,
    ) -> HeldSlice | None:
        """Whose of the pod's slices the process is; ``now`` in seconds of any clock.

        None: it is in none of them.
        """
        if process.place is None:
            return None
        key = (vendor, process.place)
        seen = self._seen.get(key)
        if seen is not None and now < seen.due:
            for held in of_pod:
                if held.id == seen.slice_id:
                    return held
        seen = self._seen[key] = self._look(vendor, process, of_pod, now, seen)
        return next((held for held in of_pod if held.id == seen.slice_id), None)

    def covered(self, vendor: VendorKey, place: CgroupPlace) -> bool:
        """Whether its processes see something else where their limits page should be."""
        seen = self._seen.get((vendor, place))
        return seen is not None and seen.covered

    def keep(self, places: set[tuple[VendorKey, CgroupPlace]]) -> None:
        """Forget all others."""
        for key in self._seen.keys() - places:
            del self._seen[key]

    def _look(
        self,
        vendor: VendorKey,
        process: ProcessIdentity,
        of_pod: Sequence[HeldSlice],
        now: float,
        before: _Seen | None,
    ) -> _Seen:
        assert process.place is not None
        # Not all containers at one tick.
        due = now + LOOK_EVERY * (1 + hash(process.place) % 100 / 100) / 2
        if before is not None and not any(held.id == before.slice_id for held in of_pod):
            before = None
        target = PurePosixPath(f"{SEEN_AT}/{vendor.lower()}/limits")
        missing: Missing | None = None
        for held in of_pod if before is None else [s for s in of_pod if s.id == before.slice_id]:
            found = slice_mount(process.pid, target, held.page_path, proc=self._proc)
            if isinstance(found, Mounted):
                return _Seen(held.id, mounted=True, covered=False, due=due)
            missing = found if isinstance(found, Missing) else missing
        if before is not None:
            hidden = before.mounted and missing is not None
            return _Seen(before.slice_id, before.mounted, hidden, due)
        meant = self._meant(vendor, process, of_pod)
        if meant is None:
            return _Seen("", mounted=False, covered=False, due=due)
        hidden = missing is not None and bool(missing.beside) and not meant.is_in_environment
        return _Seen(meant.id, mounted=False, covered=hidden, due=due)

    def _meant(
        self, vendor: VendorKey, process: ProcessIdentity, of_pod: Sequence[HeldSlice]
    ) -> HeldSlice | None:
        assert process.place is not None
        if name := self._name_of(process.place):
            return next((held for held in of_pod if held.record.container == name), None)
        others = {
            seen.slice_id
            for (key, place), seen in self._seen.items()
            if key == vendor and place != process.place
        }
        free = [held for held in of_pod if held.id not in others]
        return free[0] if len(of_pod) == 1 and free else None
