"""Sets of nodes as whole numbers: bit ``n`` is the n-th name that was met.

Thousands of pods wait with thousands of nodes each. So written a set takes 700 bytes, and what two
sets have in common takes a tenth of a microsecond. ``ANYWHERE`` has every node, also those to come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hami.policy.tables.node_names import NameBlock, NameIndex

ANYWHERE = -1

_KEPT = 64
"""Sets that are kept for the next who asks for the same."""


class NodeSets:
    """The numbering; it only grows, so whoever owns it begins a new one now and then."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._index: NameIndex | None = None
        self._met: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._names)

    def number(self, name: str) -> int:
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
            self._index = None
        return number

    def of(self, names: Sequence[str]) -> int:
        """The set of these nodes; kube-scheduler sends the same again and again."""
        if not isinstance(names, NameBlock):
            return self._find(names)
        key = names.fingerprint()
        if key not in self._met:
            _make_room(self._met)
            self._met[key] = self._find(names)
        return self._met[key]

    def _find(self, names: Sequence[str]) -> int:
        if self._index is None:
            self._index = NameIndex(self._numbers)
        numbers = self._index.find(names)
        for new in np.flatnonzero(numbers < 0).tolist():
            numbers[new] = self.number(names[new])
        flags = np.zeros(len(self._names), np.bool_)
        flags[numbers] = True
        return _packed(flags)

    def names(self, nodes: int, among: Iterable[str]) -> list[str]:
        """The nodes of a set that are ``among`` these."""
        among = among if isinstance(among, dict) else dict.fromkeys(among)
        if nodes == ANYWHERE:
            return list(among)
        if nodes < 0:
            nodes &= self.of(list(among))
        size = (nodes.bit_length() + 7) // 8
        octets = np.frombuffer(nodes.to_bytes(size, "little"), np.uint8)
        numbers = np.flatnonzero(np.unpackbits(octets, bitorder="little")).tolist()
        return [name for number in numbers if (name := self._names[number]) in among]


class Changes:
    """The last change of each node, by number; changes count up from 1."""

    def __init__(self) -> None:
        self._last: NDArray[np.int64] = np.zeros(64, np.int64)
        self._masks: dict[int, int] = {}

    def note(self, number: int, change: int) -> None:
        while number >= len(self._last):
            self._last = np.concatenate([self._last, np.zeros_like(self._last)])
        self._last[number] = change
        self._masks.clear()

    def since(self, change: int) -> int:
        """The nodes that changed after ``change``."""
        if change not in self._masks:
            _make_room(self._masks)
            self._masks[change] = _packed(self._last > change)
        return self._masks[change]


def _make_room(kept: dict[Any, int]) -> None:
    if len(kept) >= _KEPT:
        kept.clear()


def _packed(flags: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")
