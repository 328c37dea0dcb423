"""Frees memory that a process on every node need not keep.

Both functions ask the operating system; where it lacks the call, nothing happens.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_M_ARENA_MAX = -8
"""``M_ARENA_MAX`` in glibc's malloc.h (mallopt(3))."""
_CODE, _CONSTANTS = "r-xp", "r--p"
"""Rights of a private mapping (proc(5))."""


def keep_one_arena() -> None:
    """Let all threads allocate from one heap; by default glibc gives each thread its own.

    gRPC has a thread for each processor, up to 16, and they do little. Call this before there are
    threads.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


@dataclass(frozen=True, slots=True)
class LibraryPages:
    """The address ranges of the libraries that are loaded now: their code and their constants.

    Make it while there are no other threads. None of these libraries is ever unloaded: Python keeps
    every extension module, and the linker keeps what a module needs.
    """

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def loaded(cls) -> Self:
        """The ranges of this process; none where the system does not say what is mapped."""
        try:
            return cls(tuple(library_pages(Path("/proc/self/smaps").read_text("utf-8", "replace"))))
        except OSError:
            return cls(())

    def release(self) -> None:
        """Give the pages back (madvise(2)); a page that is needed again comes from the page cache.

        Most of a library's code that ever ran, ran once, when the process began; then, too, the
        linker read its tables. That is some 25 MiB of the agent's memory.
        """
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for begin, end in self.ranges:
            advise(begin, end - begin, mmap.MADV_DONTNEED)


@dataclass(slots=True)
class _Mapping:
    begin: int
    end: int
    rights: str
    path: str
    changed_kib: int = 0


def library_pages(smaps: str) -> Iterator[tuple[int, int]]:
    """Mappings of libraries' code and constants that are as in the file.

    A mapping that the linker or a debugger has changed is left out, swapped out or not: the file
    does not have the changes. So is a file without code: it is no library, and may be unmapped.

    ``smaps`` is the text of ``/proc/<pid>/smaps`` (proc(5)).
    """
    mappings = list(_mappings(smaps))
    libraries = {mapping.path for mapping in mappings if mapping.rights == _CODE}
    for mapping in mappings:
        fixed = mapping.rights in (_CODE, _CONSTANTS) and not mapping.changed_kib
        if fixed and mapping.path in libraries and mapping.path.startswith("/"):
            yield mapping.begin, mapping.end


def _mappings(smaps: str) -> Iterator[_Mapping]:
    mapping = None
    for line in smaps.splitlines():
        first, _, rest = line.partition(" ")
        words = rest.split(maxsplit=4)
        if not first.endswith(":"):
            # Such as: 7f5e0000-7f6a0000 r-xp 00001000 08:01 1234 /usr/lib/libc.so.6
            if mapping is not None:
                yield mapping
            begin, end = (int(address, 16) for address in first.split("-"))
            mapping = _Mapping(begin, end, words[0], words[4] if len(words) > 4 else "")
        elif mapping is not None and first in ("Anonymous:", "Swap:"):
            mapping.changed_kib += int(words[0])
    if mapping is not None:
        yield mapping
