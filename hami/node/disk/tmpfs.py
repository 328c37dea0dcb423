"""A tmpfs of its own for what a container can write: it cannot fill more than that.

The runtime mounts from the host's tree, so the mount must be seen there: an agent in a container
needs the slices' directory with ``mountPropagation: Bidirectional``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from pathlib import Path

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_CAP_SYS_ADMIN = 1 << 21
_ESCAPED = re.compile(r"\\([0-7]{3})")


def mount_tmpfs(target: Path, *, size: int, inodes: int) -> None:
    """Mount an empty tmpfs on a directory; ``inodes`` counts its root too.

    Raises:
        OSError: it is not mounted.
    """
    options = f"size={size},nr_inodes={inodes},mode=0711"
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    libc = ctypes.CDLL(None, use_errno=True)
    mount = libc.mount
    mount.argtypes = (
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_ulong,
        ctypes.c_char_p,
    )
    if mount(b"hami", os.fsencode(target), b"tmpfs", flags, options.encode()) != 0:
        raise _last_error(target)


def unmount(target: Path) -> None:
    """Take away what is mounted on a directory; whoever has it open keeps it. Nothing: fine.

    Raises:
        OSError: it is still mounted.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    unmount2 = libc.umount2
    unmount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
    if unmount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
        error = _last_error(target)
        if error.errno not in (errno.EINVAL, errno.ENOENT):  # not mounted; not there
            raise error


def mounts_below(folder: Path, table: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """What is mounted on ``folder`` or below it, the deepest first.

    Raises:
        OSError: the table cannot be read.
    """
    real = folder.resolve()
    found = [line.point for line in _mounts(table) if line.point.is_relative_to(real)]
    return sorted(found, key=lambda point: len(point.parts), reverse=True)


def why_not_mount(folder: Path, proc: Path = Path("/proc/self")) -> str:
    """What keeps a tmpfs below ``folder`` from being mounted and seen by the runtime, or empty."""
    try:
        status = (proc / "status").read_text()
        mounts = _mounts(proc / "mountinfo")
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    if effective is None or not int(effective[1], 16) & _CAP_SYS_ADMIN:
        return "the agent does not have the capability SYS_ADMIN"
    real = folder.resolve()
    around = [line for line in mounts if real.is_relative_to(line.point)]
    nearest = max(around, key=lambda line: len(line.point.parts), default=None)
    if nearest is None or not nearest.shared:
        where = nearest.point if nearest else real
        return (
            f"the mount {where} is not shared with the host, so the runtime would not see it; set "
            "mountPropagation: Bidirectional"
        )
    return ""


class _Mount:
    """A line of ``/proc/self/mountinfo`` (proc(5)): where, and whether it propagates."""

    __slots__ = ("point", "shared")

    def __init__(self, fields: list[str]) -> None:
        # Blanks, tabs, line ends and backslashes are written in octal.
        text = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
        self.point = Path(text)
        optional = fields[6 : fields.index("-", 6)]
        self.shared = any(field.startswith("shared:") for field in optional)


def _mounts(table: Path) -> list[_Mount]:
    text = table.read_text(encoding="utf-8", errors="surrogateescape")
    return [_Mount(line.split(" ")) for line in text.splitlines() if " - " in line]


def _last_error(target: Path) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code), str(target))
