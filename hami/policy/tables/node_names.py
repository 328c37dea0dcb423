"""Finds the numbers of many node names at once.

kube-scheduler sends thousands of node names, in another order each time. As Python strings, each
would be allocated, hashed and looked up, with a cache miss at each step; that is most of a
decision. Here the names stay one block of bytes. A name is a row of 8-byte words; rows are hashed
and compared as arrays. Only names that a caller asks for become strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Words = NDArray[np.uint64]
Mask = NDArray[np.bool_]

LONGEST = 256
"""The most characters of a name in a block; Kubernetes' names have at most 253."""

_QUOTE, _COMMA, _SPACE = 0x22, 0x2C, 0x20
_BETWEEN = '","'
_PLAIN = re.compile(rf"[ !#-\[\]-~\x7f]{{1,{LONGEST}}}")
"""What JSON writes unchanged, in ASCII: no quotes, backslashes or control characters."""

_ARRAY = re.compile(
    rb'\["[ !#-\[\]-\x7f]{0,%d}+(?:","[ !#-\[\]-\x7f]{0,%d}+)*+"\]' % (LONGEST, LONGEST)
)
"""What :meth:`NameBlock.read` takes, save none at all."""
_FEW = 8192
"""Bytes up to which that is seen sooner than by arrays."""

_WORD = 8
_KEPT = tuple((1 << 8 * kept) - 1 for kept in range(_WORD + 1))
"""Masks for the first bytes of a word."""

_MIX = 0x9E3779B97F4A7C15
_ROUNDS = 6
_ALL_BITS = (1 << 64) - 1


class NameBlock(Sequence[str]):
    """Names as an undecoded JSON array has them: no escapes, no spaces between, ASCII alone.

    A block is equal to any sequence of the same names.
    """

    def __init__(self, block: bytes, places: tuple[Numbers, Numbers] | None = None) -> None:
        """``places``: where each name begins and ends, as far as that is known already."""
        self._block = block
        self._known_places = places
        self._words: Words | None = None

    @classmethod
    def read(cls, array: bytes) -> NameBlock | None:
        """The names of a JSON array of strings; None for an array that is written differently."""
        if array == b"[]":
            return cls(b"", (np.zeros(0, np.int64), np.zeros(0, np.int64)))
        if len(array) <= _FEW:
            return cls(array) if _ARRAY.fullmatch(array) else None
        return cls._read_many(array)

    @classmethod
    def _read_many(cls, array: bytes) -> NameBlock | None:
        if b"\\" in array or not array.isascii():
            return None
        characters = np.frombuffer(array, np.uint8)
        quotes = (characters == _QUOTE).nonzero()[0]
        starts, ends = quotes[::2] + 1, quotes[1::2]
        if not len(starts) or len(starts) != len(ends) or characters.min() < _SPACE:
            return None
        if array[: starts[0]] != b'["' or array[ends[-1] :] != b'"]':
            return None
        if (starts[1:] - ends[:-1] != len(_BETWEEN)).any():
            return None
        if (characters[ends[:-1] + 1] != _COMMA).any() or (ends - starts).max() > LONGEST:
            return None
        return cls(array, (starts, ends))

    @property
    def _places(self) -> tuple[Numbers, Numbers]:
        if self._known_places is None:
            quotes = (np.frombuffer(self._block, np.uint8) == _QUOTE).nonzero()[0]
            self._known_places = quotes[::2] + 1, quotes[1::2]
        return self._known_places

    @property
    def _starts(self) -> Numbers:
        return self._places[0]

    @property
    def _ends(self) -> Numbers:
        return self._places[1]

    @classmethod
    def of(cls, names: Sequence[str]) -> NameBlock | None:
        """A block of these names; None where one of them is no plain text, or too long."""
        if not names:
            return cls.read(b"[]")
        block = cls.read(f'["{_BETWEEN.join(names)}"]'.encode(errors="surrogatepass"))
        return block if block is not None and len(block) == len(names) else None

    def __len__(self) -> int:
        if self._known_places is None:
            return self._block[2:-2].count(b'","') + 1
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return self.decoded()[index]
        return self._block[self._starts[index] : self._ends[index]].decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.decoded())

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or not _is_plain(name) or "," in name:
            return name in self.decoded()
        return f'"{name}"'.encode() in self._block

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return self.decoded() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def decoded(self) -> list[str]:
        """All names as strings.

        Made anew each time, because strings take much more memory than the block.
        """
        return self._block[2:-2].decode().split(_BETWEEN) if len(self) else []

    def as_object(self, values: Sequence[bytes], value: Numbers) -> bytes:
        """A JSON object with these keys; ``values[value[i]]`` is the JSON of the i-th value."""
        if not len(self):
            return b"{}"
        names = self._block[2:-2]
        if len(values) == 1:
            return b"".join(
                (b'{"', names.replace(b'","', b'":' + values[0] + b',"'), b'":', values[0], b"}")
            )
        parts = [b""] * (2 * len(self))
        parts[::2] = names.split(b'","')
        parts[1::2] = map([b'":' + text + b',"' for text in values].__getitem__, value.tolist())
        parts[-1] = b'":' + values[int(value[-1])] + b"}"
        return b'{"' + b"".join(parts)

    def fingerprint(self) -> tuple[int, int]:
        """A pair of numbers that depends on which names there are and not on their order.

        Two different sets of names practically never have the same pair.
        """
        rows = self.words(self.width)
        hashes = rows @ _odd_numbers(rows.shape[1])
        for _ in range(2):
            hashes = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(_MIX)
        return len(self), int((hashes ^ (hashes >> np.uint64(32))).sum())

    @property
    def width(self) -> int:
        """Words that the longest name takes; at least one."""
        return max(1, -(-int((self._ends - self._starts).max(initial=0)) // _WORD))

    def words(self, width: int) -> Words:
        """A row of ``width`` words for each name, zeros behind its end; must not be changed."""
        if self._words is None or self._words.shape[1] != width:
            self._words = self._rows(width)
        return self._words

    def _rows(self, width: int) -> Words:
        padded = self._block + bytes(width * _WORD)
        # Every position begins a row of its own here, most of them in the middle of a name.
        every = np.ndarray((len(self._block),), f"V{width * _WORD}", padded, 0, (1,))
        rows: Words = every[self._starts].view("<u8").reshape(len(self), width)
        lengths = self._ends - self._starts
        shortest, longest = int(lengths.min(initial=LONGEST)), int(lengths.max(initial=0))
        kept = np.array(_KEPT, np.uint64)
        for word in range(shortest // _WORD, width):
            begin = word * _WORD
            if shortest == longest:
                rows[:, word] &= kept[min(max(shortest - begin, 0), _WORD)]
            else:
                rows[:, word] &= kept[np.minimum(np.maximum(lengths - begin, 0), _WORD)]
        return rows


def _is_plain(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None


class NameIndex:
    """An immutable index over ``numbers``; an unknown name has the number -1.

    The index looks names up by a hash and then compares them whole, so equal hashes do no harm.
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        names = [name for name in numbers if _is_plain(name)]
        block = NameBlock.of(names)
        assert block is not None
        self._width = block.width
        rows = block.words(self._width)
        self._columns = [rows[:, word].copy() for word in range(self._width)]
        self._values = np.fromiter(map(numbers.__getitem__, names), np.int64, len(names))
        self._factors = _odd_numbers(self._width)
        self._shift = np.uint64(64 - (4 * max(len(names), 1)).bit_length())
        self._slots: list[Numbers] = []
        others = {names[index] for index in self._fill(rows).tolist()}
        self._others = {
            name: number
            for name, number in numbers.items()
            if name in others or not _is_plain(name)
        }

    def find(self, names: Sequence[str]) -> Numbers:
        """The number of each name, in order."""
        block = names if isinstance(names, NameBlock) else NameBlock.of(names)
        if block is None:
            block = NameBlock.of([name if _is_plain(name) else _NOBODY for name in names])
            assert block is not None
        found = self._find(block)
        if self._others:
            for index in np.flatnonzero(found < 0).tolist():
                found[index] = self._others.get(names[index], -1)
        return found

    def _find(self, block: NameBlock) -> Numbers:
        """:meth:`find` for the names that have a slot."""
        width = max(self._width, block.width)
        rows = block.words(width)
        known = rows[:, : self._width]
        found = np.full(len(rows), -1)
        # A name that is longer than all of ours is none of them.
        left = None if width == self._width else np.flatnonzero(~rows[:, self._width :].any(axis=1))
        for number, slots in enumerate(self._slots):
            at = known if left is None else known[left]
            entries = slots[self._places(self._hashes(at), number)]
            same = self._columns[0][entries] == at[:, 0]
            for word in range(1, self._width):
                same &= self._columns[word][entries] == at[:, word]
            if left is None:
                found = np.where(same, self._values[entries], -1)
                left = np.flatnonzero(~same)
            else:
                found[left[same]] = self._values[entries[same]]
                left = left[~same]
            if not len(left):
                break
        return found

    def _fill(self, rows: Words) -> Numbers:
        """Give each row a slot of its own in one of the rounds; returns the rows that got none."""
        left: Numbers = np.arange(len(rows))
        while len(left) and len(self._slots) < _ROUNDS:
            places = self._places(self._hashes(rows[left]), len(self._slots))
            slots = np.zeros(1 << (64 - int(self._shift)), np.int64)
            slots[places] = left
            self._slots.append(slots)
            left = left[slots[places] != left]
        return left

    def _hashes(self, rows: Words) -> Words:
        hashes: Words = rows @ self._factors
        return hashes

    def _places(self, hashes: Words, number: int) -> Numbers:
        """Each row's slot in this round. Each round uses other bits of the hash."""
        if number:
            hashes = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(_MIX + 2 * number)
        return (hashes >> self._shift).view(np.int64)


_NOBODY = ""
"""No node has this name; it stands for names that cannot be in a block."""


def _odd_numbers(count: int) -> Words:
    """Factors for hashing that nobody outside can guess: Python keys its hash per process."""
    return np.array([hash(f"word {n}") & _ALL_BITS | 1 for n in range(count)], np.uint64)
