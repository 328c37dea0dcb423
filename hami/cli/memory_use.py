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


def keep_one_arena() -> None:
    """Let all threads allocate from one heap; by default glibc gives each thread its own.

    gRPC has a thread for each processor, up to 16, and they do little. Call this before there are
    threads.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


@dataclass(frozen=True, slots=True)
class LibraryCode:
    """The address ranges of the code of the libraries that are loaded now.

    Make it while there are no other threads. None of these libraries is ever unloaded: Python keeps
    every extension module, and the linker keeps what a module needs.
    """

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def loaded(cls) -> Self:
        """The ranges of this process; none where the system does not say what is mapped."""
        try:
            return cls(tuple(mapped_code(Path("/proc/self/smaps").read_text("utf-8", "replace"))))
        except OSError:
            return cls(())

    def release(self) -> None:
        """Give the pages back (madvise(2)); a page that is needed again comes from the page cache.

        Most of a library's code that ever ran, ran once, when the process began. That is some 10
        MiB of the agent's memory.
        """
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for begin, end in self.ranges:
            advise(begin, end - begin, mmap.MADV_DONTNEED)


def mapped_code(smaps: str) -> Iterator[tuple[int, int]]:
    """Executable mappings of files without private changes, so that no breakpoint is lost.

    ``smaps`` is the text of ``/proc/<pid>/smaps`` (proc(5)).
    """
    begin = end = 0
    for line in smaps.splitlines():
        first, _, rest = line.partition(" ")
        words = rest.split()
        if not first.endswith(":"):
            # Such as: 7f5e0000-7f6a0000 r-xp 00001000 08:01 1234 /usr/lib/libc.so.6
            is_code = words[0] == "r-xp" and len(words) > 4 and words[4].startswith("/")
            begin, end = (int(address, 16) for address in first.split("-")) if is_code else (0, 0)
        elif first == "Anonymous:" and words[0] == "0" and end:
            yield begin, end
