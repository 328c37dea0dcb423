"""One process for what two would do against each other.

Of two agents of a vendor at one kubelet the later one takes the name from the other, and two with
the same slices would release each other's. Two monitors would count two heartbeats in one word.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hami.domain.errors import ConfigError
from hami.slices.files import make_folder, store_failures

HANDOVER = 10.0
"""Seconds for a former agent to end, as when a DaemonSet is rolled over."""
LOOK_EVERY = 0.05


@asynccontextmanager
async def alone(lock: Path, who: str, *, patience: float = HANDOVER) -> AsyncIterator[None]:
    """Hold the file's lock, which the kernel takes back however this process ends.

    ``who`` names the other one to people: ``another <who> on this node``.

    Raises:
        ConfigError: another process has it and does not end.
        StoreFailed: the file cannot be made.
    """
    fd = await asyncio.to_thread(_opened, lock)
    try:
        end = asyncio.get_running_loop().time() + patience
        while not _locked(fd):
            if asyncio.get_running_loop().time() >= end:
                raise ConfigError(
                    f"another {who} on this node: it holds {lock}; stop it, or "
                    "give this one directories of its own"
                )
            await asyncio.sleep(LOOK_EVERY)
        yield
    finally:
        os.close(fd)


def _opened(lock: Path) -> int:
    with store_failures("lock", lock):
        make_folder(lock.parent, 0o711)
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
