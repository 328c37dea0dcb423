"""The limits pages of live slices, kept open for writing.

Whoever may read a file and owns it, as root in a container does, can have a lease on it
(fcntl(2), F_SETLEASE): the next to open it for writing waits until the lease is given back, or 45
seconds (/proc/sys/fs/lease-break-time). A tenant could keep every resize off so. While somebody has
the file open for writing, the kernel gives no lease on it, so a page is open from its first moment
on. An agent that was started again opens it anew, and waits for that: from the moment it does, no
further lease is given, so that it waits for one at most, however many a tenant takes.
"""

from __future__ import annotations

import os

FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class PageFiles:
    """Descriptors by slice id. Blocks; called for one slice by several threads at once too."""

    def __init__(self, name: str) -> None:
        """``name`` is the page's, in the directory of its slice."""
        self._name = name
        self._held: dict[str, int] = {}

    def opened(self, slice_id: str, folder: int) -> int:
        """The page in ``folder``, the slice's directory; the descriptor stays ours.

        Raises:
            OSError: it is not there, is a symbolic link, or is not ours.
        """
        held = self._held.get(slice_id)
        if held is not None and self._is_in(folder, held):
            return held
        self.close(slice_id)
        fd = open_page(self._name, folder)
        first = self._held.setdefault(slice_id, fd)
        if first != fd:
            os.close(fd)
        return first

    def close(self, slice_id: str) -> None:
        fd = self._held.pop(slice_id, None)
        if fd is not None:
            os.close(fd)

    def close_all(self) -> None:
        for slice_id in list(self._held):
            self.close(slice_id)

    def _is_in(self, folder: int, fd: int) -> bool:
        """It is still the file of this name."""
        try:
            named = os.stat(self._name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(fd))


def open_page(name: str, folder: int, *, wait: bool = True) -> int:
    """The page, although nobody may write it: root can; its owner elsewhere allows it for a moment.

    Without ``wait`` a lease of somebody else is broken and not waited for: the next try gets it.

    Raises:
        OSError: it is not there, is a symbolic link, or is not ours; ``EAGAIN`` for a lease.
    """
    try:
        return _unleased(name, folder, wait=wait)
    except PermissionError:
        os.chmod(name, 0o644, dir_fd=folder)
    try:
        return _unleased(name, folder, wait=wait)
    finally:
        os.chmod(name, 0o444, dir_fd=folder)


def _unleased(name: str, folder: int, *, wait: bool) -> int:
    try:
        return os.open(name, FLAGS | os.O_NONBLOCK, dir_fd=folder)
    except BlockingIOError:
        if not wait:
            raise
        return os.open(name, FLAGS, dir_fd=folder)
