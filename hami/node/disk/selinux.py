"""The label without which SELinux keeps containers away from files of the host."""

from __future__ import annotations

import os
from pathlib import Path

CONTAINER_LABEL = "system_u:object_r:container_file_t:s0"
"""Any container may use it: no categories, unlike what a runtime gives a volume of one pod."""

_ATTRIBUTE = "security.selinux"


def selinux_is_on(root: Path = Path("/")) -> bool:
    """Whether this kernel enforces or would: permissive counts, it can change at any time.

    A container does not see ``/sys/fs/selinux``; that the kernel has the file system at all, and it
    has not when SELinux was off at boot, is visible everywhere.
    """
    if (root / "sys/fs/selinux/enforce").exists():
        return True
    try:
        return "selinuxfs" in (root / "proc/filesystems").read_text().split()
    except OSError:
        return False


def label_for_containers(fd: int) -> str:
    """Label an open file or directory; what is made in a labelled directory inherits it.

    Returns: what went wrong, for the log: a file system mounted with a label of its own takes none
    and needs none, so this decides nothing.
    """
    try:
        os.setxattr(fd, _ATTRIBUTE, CONTAINER_LABEL.encode() + b"\0")
    except OSError as error:
        return f"cannot set the SELinux label {CONTAINER_LABEL}: {error.strerror}"
    return ""
