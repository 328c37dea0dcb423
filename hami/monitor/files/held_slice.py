"""One slice with its files open: whose it is, what its page says, what its processes say."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from hami.domain.slices import Slice
from hami.domain.units import VendorKey
from hami.monitor.files.observed_words import Observation, ObservedWords
from hami.slices.c_layout import MAX_DEVICES
from hami.slices.files import MalformedFile, read_bounded
from hami.slices.limits_page import PAGE_SIZE, PageLimits, page_revision, read_page
from hami.slices.open_pages import open_page
from hami.slices.record import SliceRecord, decode_record
from hami.slices.usage_region import RegionUsage, SlotUsage, UsageReader, is_held, open_region

META, LIMITS, USAGE = "meta.json", "limits", "usage"
_LONGEST_META = 2 << 20
_LIMITS_PART = 4096
"""Bytes of a page before the monitor's own: header and both copies."""
_NOTHING = RegionUsage()

AsSlice = Callable[[SliceRecord, Path], Slice]


@dataclass(slots=True)
class _OpenPage:
    """A page that a container may have mapped; ``place`` is its device and inode."""

    fd: int
    place: tuple[int, int]
    words: ObservedWords


class HeldSlice:
    """Owns its descriptors. Blocks; one caller at a time.

    ``problem`` is for people: what of the files cannot be read; what was read before stands.
    """

    def __init__(self, id: str, path: Path, record: SliceRecord, slice: Slice) -> None:
        self.id = id
        self.path = path
        self.page_path = path / LIMITS
        self.record = record
        self.slice = slice
        self.limits: PageLimits | None = None
        self.region: RegionUsage = _NOTHING
        self.problem = ""
        self._meta = b""
        self._pages: list[_OpenPage] = []
        self._page_then, self._revision = b"", 0
        self._usage_fd = -1
        self._usage_place = (0, 0)
        self._reader = UsageReader()

    @property
    def is_in_environment(self) -> bool:
        """Whether its container has its limits in its environment, and no page."""
        return self.record.identity == "lock"

    def open_files(self, folder: int) -> None:
        """Open what is new in the slice's directory, and let go of what is there no more.

        A page that was replaced stays open beside the new one: what runs has it mapped until its
        container's next start.

        Raises:
            OSError: a file is not there or cannot be opened.
        """
        place = _place(os.stat(LIMITS, dir_fd=folder, follow_symlinks=False))
        if place not in [page.place for page in self._pages]:
            fd = open_page(LIMITS, folder, wait=False)
            for former in self._pages[1:]:
                os.close(former.fd)
            page = _OpenPage(fd, _place(os.fstat(fd)), ObservedWords(fd))
            self._pages = [page, *self._pages[:1]]
            self._page_then, self._revision = b"", 0
        if _place(os.stat(USAGE, dir_fd=folder)) != self._usage_place or self._usage_fd < 0:
            fd = open_region(USAGE, within=folder)
            if self._usage_fd >= 0:
                os.close(self._usage_fd)
            self._usage_fd, self._usage_place = fd, _place(os.fstat(fd))

    def read(self, buffer: bytearray) -> None:
        """Read page and region, as far as they make sense; ``buffer`` as of ``UsageReader``."""
        self.problem = self._read_page() or self._read_region(buffer)

    def live_slots(self, running: Collection[SlotUsage]) -> list[SlotUsage]:
        """Those of its region whose process has not ended: ``running`` are known not to have."""
        known = {slot.slot for slot in running}
        return [slot for slot in self.region.slots if slot.slot in known or self._lives(slot.slot)]

    def _lives(self, slot: int) -> bool:
        """Where that cannot be asked, what the slot says stands."""
        try:
            return is_held(self._usage_fd, slot)
        except OSError:
            return True

    def write(self, seen: Observation) -> None:
        """Tell its processes what was seen of them.

        Raises:
            OSError: the disk does not take it; the next tick tries again.
        """
        for page in self._pages:
            # As it was when it was read: it may have changed since, and shares are not for that.
            newest = page is self._pages[0]
            revision = self._revision if newest else _revision(os.pread(page.fd, _LIMITS_PART, 0))
            page.words.write(seen, revision)

    def handed_before(self) -> list[int]:
        """The shares on its page, by its devices' places; none where they cannot be read."""
        count = len(self.limits.devices) if self.limits is not None else 0
        try:
            return self._pages[0].words.shares(count) if self._pages else [0] * count
        except (OSError, struct.error):
            return [0] * count

    def close(self) -> None:
        for page in self._pages:
            os.close(page.fd)
        self._pages.clear()
        if self._usage_fd >= 0:
            os.close(self._usage_fd)
            self._usage_fd = -1

    def _read_page(self) -> str:
        if not self._pages:
            return "it has no limits page"
        fd = self._pages[0].fd
        try:
            part = os.pread(fd, _LIMITS_PART, 0)
            if part == self._page_then:
                return ""
            data = os.pread(fd, PAGE_SIZE + 1, 0)
        except OSError as error:
            return f"{self.page_path}: {error.strerror}"
        found = read_page(data)
        if isinstance(found, MalformedFile):
            return str(found)
        self.limits, self._page_then = found, data[:_LIMITS_PART]
        self._revision = _revision(self._page_then)
        return ""

    def _read_region(self, buffer: bytearray) -> str:
        if self._usage_fd < 0:
            return "it has no usage region"
        try:
            devices = MAX_DEVICES if self.limits is None else len(self.limits.devices)
            found = self._reader.read(self._usage_fd, buffer, devices)
        except OSError as error:
            return f"{self.path / USAGE}: {error.strerror}"
        if isinstance(found, MalformedFile):
            self.region = _NOTHING
            return str(found)
        self.region = found
        return f"{found.refused} slots make no sense" if found.refused else ""


def read_record(folder: int, id: str, vendor: VendorKey) -> SliceRecord | MalformedFile:
    """What the slice's record says now.

    Raises:
        OSError: it is not there or cannot be read.
    """
    return decode_record(read_bounded(folder, META, _LONGEST_META), id, vendor)


def _revision(part: bytes) -> int:
    """0 of a page that was cut short."""
    return page_revision(part) if len(part) == _LIMITS_PART else 0


def _place(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
