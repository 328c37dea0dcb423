"""What a process that runs on every node need not keep in memory.

Both are requests to the system: where it does not know them, nothing happens.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_M_ARENA_MAX = -8
"""glibc's, in malloc.h."""


def keep_one_arena() -> None:
    """All threads take memory from one heap; by default each of them begins one of its own.

    gRPC has a thread for each processor, up to 16, and they do little. Call it before there are
    threads.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


@dataclass(frozen=True, slots=True)
class LibraryCode:
    """Where the code of the libraries lies that are loaded now, as pairs of addresses.

    Make it while there are no other threads. None of these libraries is ever unloaded: Python
    keeps every extension module, and the linker what one of them needs.
    """

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def loaded(cls) -> Self:
        """Nothing where the system does not say what is mapped."""
        try:
            return cls(tuple(mapped_code(Path("/proc/self/smaps").read_text("utf-8", "replace"))))
        except OSError:
            return cls(())

    def release(self) -> None:
        """Let go of the pages. Those that are needed again come back from the system's cache.

        Most of a library's code that was ever run was run once, when the process began. It is
        some 10 MiB of the agent's.
        """
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for begin, end in self.ranges:
            advise(begin, end - begin, mmap.MADV_DONTNEED)


def mapped_code(smaps: str) -> Iterator[tuple[int, int]]:
    """What is mapped from a file to be run and not written; and nobody did: no breakpoint is lost.

    ``smaps`` is what proc(5) calls ``/proc/<pid>/smaps``.
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
