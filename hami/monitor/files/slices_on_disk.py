"""Which slices there are on this node, of every vendor, and which of them changed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hami.domain.units import PodUid, VendorKey
from hami.monitor.files.held_slice import AsSlice, HeldSlice, read_record
from hami.slices.files import MalformedFile, opened_folder

SLICE_ID = re.compile(r"[0-9a-z]{1,63}")
RECENT_NS = 2_000_000_000
"""A folder that changed so lately is read again: two changes may have one time."""
AGAIN_NS = 10_000_000_000
"""How often a slice that cannot be read is tried again."""


@dataclass(slots=True)
class _Entry:
    """A folder that is there: ``held`` is None while nobody can say whose it is."""

    changed_ns: int
    held: HeldSlice | None = None
    problem: str = ""
    tried_ns: int = 0


class SlicesOnDisk:
    """Looks at ``<root>/<vendor>/<slice id>``. Blocks; one caller at a time.

    ``on_problem`` gets a sentence for each slice, and each vendor's folder, that cannot be read,
    once as long as it lasts.
    """

    def __init__(
        self,
        root: Path,
        vendors: Mapping[VendorKey, AsSlice],
        on_problem: Callable[[str], None],
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._folders = {
            key: _VendorFolder(root / key.lower(), key, as_slice, on_problem, clock_ns)
            for key, as_slice in vendors.items()
        }

    def look(self) -> None:
        """Take in what has come, changed and gone."""
        for folder in self._folders.values():
            folder.look()

    def of(self, vendor: VendorKey) -> list[HeldSlice]:
        """The vendor's slices that can be read, in the order of their ids."""
        return list(self._folders[vendor].held())

    def of_pod(self, vendor: VendorKey, uid: PodUid) -> list[HeldSlice]:
        return self._folders[vendor].of_pod(uid)

    def close(self) -> None:
        for folder in self._folders.values():
            folder.close()


class _VendorFolder:
    def __init__(
        self,
        path: Path,
        vendor: VendorKey,
        as_slice: AsSlice,
        on_problem: Callable[[str], None],
        clock_ns: Callable[[], int],
    ) -> None:
        self._path = path
        self._vendor = vendor
        self._as_slice = as_slice
        self._on_problem = on_problem
        self._clock_ns = clock_ns
        self._changed_ns = -1
        self._problem = ""
        self._entries: dict[str, _Entry] = {}
        self._held_then: list[HeldSlice] = []
        self._by_pod: dict[PodUid, list[HeldSlice]] = {}

    def held(self) -> Iterator[HeldSlice]:
        return (entry.held for entry in self._entries.values() if entry.held is not None)

    def of_pod(self, uid: PodUid) -> list[HeldSlice]:
        return self._by_pod.get(uid, [])

    def close(self) -> None:
        for name in list(self._entries):
            self._remove(name)

    def look(self) -> None:
        now = self._clock_ns()
        problem = ""
        try:
            with opened_folder(self._path) as folder:
                self._look_at_names(folder, now)
                for name in self._entries:
                    self._look_at(name, folder, now)
        except FileNotFoundError:
            self.close()  # the vendor has no slices
            self._changed_ns = -1
        except OSError as error:
            problem = f"{self._path} cannot be read: {error.strerror}"
        if problem and problem != self._problem:
            self._on_problem(problem)
        self._problem = problem
        held_now = list(self.held())
        if held_now != self._held_then:
            self._held_then = held_now
            self._by_pod = {}
            for held in held_now:
                self._by_pod.setdefault(held.record.pod.uid, []).append(held)

    def _look_at_names(self, folder: int, now: int) -> None:
        changed = os.fstat(folder).st_mtime_ns
        if changed == self._changed_ns and abs(now - changed) > RECENT_NS:
            return
        names = sorted(name for name in os.listdir(folder) if SLICE_ID.fullmatch(name))
        for gone in self._entries.keys() - names:
            self._remove(gone)
        self._entries = {name: self._entries.get(name) or _Entry(-1) for name in names}
        self._changed_ns = changed

    def _look_at(self, name: str, folder: int, now: int) -> None:
        """Read it again where anything about it may be another than at the last look."""
        entry = self._entries[name]
        try:
            changed = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns
        except OSError:
            return  # gone: the next look finds it so
        again = bool(entry.problem) and abs(now - entry.tried_ns) >= AGAIN_NS
        if changed == entry.changed_ns and abs(now - changed) > RECENT_NS and not again:
            return
        entry.tried_ns = now
        try:
            with opened_folder(Path(name), within=folder) as inner:
                problem = self._read(name, entry, inner)
        except OSError as error:
            problem = f"{error.filename or name}: {error.strerror}"
        entry.changed_ns = changed
        if problem and problem != entry.problem:
            self._on_problem(f"slice {self._path / name} cannot be read: {problem}")
        entry.problem = problem

    def _read(self, name: str, entry: _Entry, folder: int) -> str:
        record = read_record(folder, name, self._vendor)
        if isinstance(record, MalformedFile):
            return str(record)
        path = self._path / name
        if entry.held is None:
            entry.held = HeldSlice(name, path, record, self._as_slice(record, path))
        elif entry.held.record != record:
            entry.held.record, entry.held.slice = record, self._as_slice(record, path)
        try:
            entry.held.open_files(folder)
        except FileNotFoundError as error:
            # The agent makes them one after the other.
            return "" if record.state == "preparing" else f"{error.filename}: {error.strerror}"
        return ""

    def _remove(self, name: str) -> None:
        entry = self._entries.pop(name)
        if entry.held is not None:
            with suppress(OSError):
                entry.held.close()
