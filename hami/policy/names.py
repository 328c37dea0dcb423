"""Many names to their numbers at once.

kube-scheduler sends thousands of node names, in another order each time. As Python strings each of
them is allocated, hashed and looked up, cache miss by cache miss, which is most of a decision. Here
they stay one block of bytes: a name is a row of 8-byte words in it, rows are hashed and compared as
arrays, and only those names become strings that somebody asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Words = NDArray[np.uint64]

LONGEST = 256
"""Characters of a name in a block; Kubernetes' names have at most 253."""

_QUOTE, _COMMA, _SPACE = 0x22, 0x2C, 0x20
_BETWEEN = '","'
_WORD = 8
_KEPT: Sequence[int] = tuple((1 << 8 * kept) - 1 for kept in range(_WORD + 1))
"""Masks for the first bytes of a word."""

_MIX = 0x9E3779B97F4A7C15
_ROUNDS = 6


class NameBlock(Sequence[str]):
    """Names as a JSON array has them, undecoded: no escapes, no spaces, ASCII alone.

    It compares equal to any sequence of the same names.
    """

    def __init__(self, block: bytes, starts: Numbers, ends: Numbers) -> None:
        self._block = block
        self._starts = starts
        self._ends = ends
        self._decoded: list[str] | None = None

    @classmethod
    def read(cls, array: bytes) -> NameBlock | None:
        """The names of a JSON array; None for one that is written in any other way."""
        if not (array.startswith(b'["') and array.endswith(b'"]')):
            return cls(b"", _NONE, _NONE) if array == b"[]" else None
        if b"\\" in array or not array.isascii():
            return None
        characters = np.frombuffer(array, np.uint8)
        quotes = (characters == _QUOTE).nonzero()[0]
        starts, ends = quotes[::2] + 1, quotes[1::2]
        if len(quotes) % 2 or characters.min() < _SPACE:
            return None
        between = starts[1:] - ends[:-1]
        commas = characters[ends[:-1] + 1] == _COMMA
        if len(between) and not ((between == len(_BETWEEN)).all() and commas.all()):
            return None
        if starts[0] != len('["') or ends[-1] != len(array) - len('"]'):
            return None
        if int((ends - starts).max()) > LONGEST:
            return None
        return cls(array, starts, ends)

    @classmethod
    def of(cls, names: Iterable[str]) -> NameBlock | None:
        """None where one of them is no plain text, or too long."""
        known = list(names)
        if not known:
            return cls(b"", _NONE, _NONE)
        block = cls.read(f'["{_BETWEEN.join(known)}"]'.encode())
        return block if block is not None and len(block) == len(known) else None

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return self.decoded()[index]
        if self._decoded is not None:
            return self._decoded[index]
        return self._block[self._starts[index] : self._ends[index]].decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.decoded())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.decoded() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def decoded(self) -> list[str]:
        """All names; decoded at the first call."""
        if self._decoded is None:
            text = self._block[2:-2].decode()
            self._decoded = text.split(_BETWEEN) if len(self) else []
        return self._decoded

    @property
    def widest(self) -> int:
        """Words that the longest name takes."""
        return int((self._ends - self._starts).max()) // _WORD + 1 if len(self) else 1

    def words(self, width: int) -> Words:
        """A row of ``width`` words for each name, zeros behind its end."""
        if not len(self):
            return np.zeros((0, width), np.uint64)
        padded = self._block + bytes(width * _WORD)
        # Every position of the block is the beginning of a row; most names begin at an odd one.
        every: Words = np.ndarray((len(self._block), width), "<u8", padded, 0, (1, _WORD))
        rows = every[self._starts]
        lengths = self._ends - self._starts
        shortest, longest = int(lengths.min()), int(lengths.max())
        for word in range(shortest // _WORD, width):
            if shortest == longest:
                rows[:, word] &= _kept(shortest - word * _WORD)
            else:
                kept = _KEPT_BYTES[np.minimum(np.maximum(lengths - word * _WORD, 0), _WORD)]
                rows[:, word] &= kept
        return rows


_NONE: Numbers = np.zeros(0, np.int64)


class NameIndex:
    """An immutable index over ``numbers``; names that it does not know are -1.

    Names are looked up by a hash and compared whole, so it does not matter what is hashed alike.
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        names = list(numbers)
        block = NameBlock.of(names)
        self._odd: dict[str, int] = {}
        if block is None:
            self._odd = {name: numbers[name] for name in names if NameBlock.of([name]) is None}
            names = [name for name in names if name not in self._odd]
            block = NameBlock.of(names)
            assert block is not None
        self._numbers = numbers
        self._width = block.widest
        rows = block.words(self._width)
        self._columns = [np.ascontiguousarray(rows[:, word]) for word in range(self._width)]
        self._values = np.fromiter((numbers[name] for name in names), np.int64, len(names))
        self._shift = np.uint64(64 - (4 * max(len(names), 1)).bit_length())
        self._factors = _odd_numbers(self._width)
        self._slots: list[Numbers] = []
        left = self._fill(rows)
        self._odd |= {names[index]: numbers[names[index]] for index in left.tolist()}

    def find(self, names: Sequence[str]) -> Numbers:
        """The number of each name, in order."""
        block = names if isinstance(names, NameBlock) else NameBlock.of(names)
        if block is None:
            get = self._numbers.get
            return np.fromiter((get(name, -1) for name in names), np.int64, len(names))
        found = np.full(len(block), -1)
        if not len(block) or not len(self._values):
            return self._find_odd(block, found, np.arange(len(block)))
        rows = block.words(max(self._width, block.widest))
        return self._find_odd(block, found, self._find_plain(rows, found))

    def _find_plain(self, rows: Words, found: Numbers) -> Numbers:
        """Write what is found into ``found``; the places of the others."""
        left: Numbers = np.arange(len(rows))
        known = rows[:, : self._width]
        too_long = rows[:, self._width :].any(axis=1) if rows.shape[1] > self._width else None
        hashes = self._hashes(known)
        for number, slots in enumerate(self._slots):
            entries = slots[self._places(hashes, number)]
            same = self._columns[0][entries] == known[:, 0]
            for word in range(1, self._width):
                same &= self._columns[word][entries] == known[:, word]
            if too_long is not None:
                same &= ~too_long[left]
            found[left[same]] = self._values[entries[same]]
            missed = ~same
            left = left[missed]
            if not len(left):
                break
            known, hashes = known[missed], hashes[missed]
        return left

    def _find_odd(self, block: NameBlock, found: Numbers, left: Numbers) -> Numbers:
        if self._odd:
            for index in left.tolist():
                found[index] = self._odd.get(block[index], -1)
        return found

    def _fill(self, rows: Words) -> Numbers:
        """Give each row a slot of its own in one of the rounds; what is left got none."""
        hashes = self._hashes(rows)
        left: Numbers = np.arange(len(rows))
        for number in range(_ROUNDS):
            if not len(left):
                break
            places = self._places(hashes[left], number)
            slots = np.zeros(1 << (64 - int(self._shift)), np.int64)
            slots[places] = left
            self._slots.append(slots)
            left = left[slots[places] != left]
        return left

    def _hashes(self, rows: Words) -> Words:
        hashes: Words = rows @ self._factors
        return hashes ^ (hashes >> np.uint64(29))

    def _places(self, hashes: Words, number: int) -> Numbers:
        """Each round looks at other bits, for names that lost their place in the former."""
        factor = np.uint64(pow(_MIX, 2 * number + 1, 1 << 64))
        return ((hashes * factor) >> self._shift).view(np.int64)


def _odd_numbers(count: int) -> Words:
    """Factors that nobody outside knows: Python keys its hash per process."""
    return np.array([hash(f"word {n}") & ((1 << 64) - 1) | 1 for n in range(count)], np.uint64)
