"""Many names to their numbers at once.

A dict costs four cache misses a name, which is most of a decision on 50 000 nodes. Here the names'
hashes are looked up as one array, and only what that does not find goes through the dict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

_SHIFTS = (0, 20, 40)
"""Each round looks at other bits of the hash, for names that lost their place in the former."""


class NameIndex:
    """An immutable index over ``numbers``; names that it does not know are -1.

    Two names count as one when their 64-bit hashes are equal. Python keys its hash per process,
    so nobody can prepare such names, and by chance it takes billions of nodes.
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        self._hashes = _hashes(list(numbers))
        self._values = np.fromiter(numbers.values(), np.int64, len(numbers))
        self._mask = (4 << max(len(numbers), 1).bit_length()) - 1
        self._rounds: list[tuple[int, Numbers]] = []
        left = np.arange(len(numbers))
        for shift in _SHIFTS:
            if not len(left):
                break
            places = self._places(self._hashes[left], shift)
            slots = np.full(self._mask + 1, -1)
            slots[places] = left
            self._rounds.append((shift, slots))
            left = left[slots[places] != left]

    def find(self, names: Sequence[str]) -> Numbers:
        """The number of each name, in order."""
        hashes = _hashes(names)
        found = np.full(len(names), -1)
        for shift, slots in self._rounds:
            entries = slots[self._places(hashes, shift)]
            hits = (entries >= 0) & (self._hashes[entries] == hashes)
            found[hits] = self._values[entries[hits]]
        for index in np.flatnonzero(found < 0).tolist():
            found[index] = self._numbers.get(names[index], -1)
        return found

    def _places(self, hashes: Numbers, shift: int) -> Numbers:
        return (hashes >> shift) & self._mask


def _hashes(names: Sequence[str]) -> Numbers:
    return np.fromiter(map(hash, names), np.int64, len(names))
