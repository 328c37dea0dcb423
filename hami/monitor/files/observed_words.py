"""The monitor's words in a limits page (``struct hami_observed``): what it saw, heartbeat last.

Written by ``pwrite``, for the reason that :mod:`hami.slices.limits_page` gives: whoever sees what
one call wrote sees what the calls before it wrote. Words that do not change are not written again.
A monitor that is killed in between leaves a page whose heartbeat has not moved, or a slot without a
generation, and both mean that there is nothing to be read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence

import msgspec

from hami.slices.c_layout import MAX_DEVICES, MAX_SLOTS, LimitsPageC, ObservedC

_AT = LimitsPageC.observed.offset
_HEARTBEAT = _AT + ObservedC.heartbeat.offset
_SHARES = _AT + ObservedC.share.offset
_EVERY_SHARE = ObservedC.share.size
_RESERVED = ObservedC.reserved.size
"""Bytes between the revision and the devices, which are zero."""
_GENERATIONS = _AT + ObservedC.slot_generation.offset
_BYTES = _AT + ObservedC.bytes.offset
_WORD = struct.Struct("<Q")
_MOST = (1 << 64) - 1


class SlotBytes(msgspec.Struct, frozen=True, gc=False):
    """What the driver accounts to the process in a slot, by device; 0: it cannot tell."""

    generation: int
    bytes: tuple[int, ...]


class Observation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is told to one slice, by device, in its page's order.

    ``utilisation`` and ``shares`` in 1/100 percent, ``contention`` bits of ``enum
    hami_contention``; a share of 0 hands out nothing. A slot that is left out stays as it is: its
    generation says for whom its bytes are.
    """

    utilisation: Sequence[int]
    contention: Sequence[int]
    shares: Sequence[int]
    slots: Mapping[int, SlotBytes] = {}


Pwrite = Callable[[int, bytes, int], int]


class ObservedWords:
    """The words of one page. ``fd`` stays its owner's. Blocks; one caller at a time."""

    def __init__(self, fd: int, pwrite: Pwrite = os.pwrite) -> None:
        self._fd = fd
        self._pwrite = pwrite
        self._heartbeat = 0
        self._words = b""
        self._slots: dict[int, SlotBytes] = {}

    def shares(self, devices: int) -> list[int]:
        """What was handed out last, by whichever monitor.

        Raises:
            OSError: it cannot be read.
        """
        words = struct.Struct(f"<{devices}H")
        return list(words.unpack(os.pread(self._fd, words.size, _SHARES)))

    def write(self, seen: Observation, revision: int) -> None:
        """Write all of it, and beat; ``revision``: of the page that the shares were divided by.

        Raises:
            OSError: the page has not moved on; the next call writes everything that is missing.
        """
        for slot, held in seen.slots.items():
            if self._slots.get(slot) != held and 0 <= slot < MAX_SLOTS:
                self._write_slot(slot, held)
        pairs = [
            word
            for percent, bits in zip(seen.utilisation, seen.contention, strict=True)
            for word in (percent, bits)
        ]
        count = len(seen.shares)
        layout = f"<{count}H{_EVERY_SHARE - 2 * count}xQ{_RESERVED}x{len(pairs)}Q"
        words = struct.pack(layout, *seen.shares, revision, *pairs)
        if words != self._words:
            self._put(words, _SHARES)
            self._words = words
        self._beat()

    def _write_slot(self, slot: int, held: SlotBytes) -> None:
        """Without a generation meanwhile, so that nobody reads old bytes as new ones."""
        generation = _GENERATIONS + _WORD.size * slot
        self._slots.pop(slot, None)
        self._put(_WORD.pack(0), generation)
        for device, amount in enumerate(held.bytes[:MAX_DEVICES]):
            self._put(_WORD.pack(amount), _BYTES + _WORD.size * (device * MAX_SLOTS + slot))
        self._put(_WORD.pack(held.generation), generation)
        self._slots[slot] = held

    def _beat(self) -> None:
        """Go on from where a former monitor stopped: a reader must see the word change."""
        if not self._heartbeat:
            [self._heartbeat] = _WORD.unpack(os.pread(self._fd, _WORD.size, _HEARTBEAT))
        self._heartbeat = self._heartbeat % _MOST + 1
        self._put(_WORD.pack(self._heartbeat), _HEARTBEAT)

    def _put(self, data: bytes, position: int) -> None:
        written = 0
        while written < len(data):
            written += self._pwrite(self._fd, data[written:], position + written)
