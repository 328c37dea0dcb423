"""What a container leaves on its node while it runs: a cgroup, a mount table, its files.

The layout is that of the cgroupfs driver, ``kubepods/pod<uid>/<container id>``, and of ``/proc``:
an agent that looks there with ``--cgroup-root`` and ``--proc-root`` finds what it would find.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from hami.domain.units import PodUid
from hami_lab.kubelet.runtime.create import StartedContainer

_MOUNT = "{number} 1 0:1 {root} {target} ro,relatime - tmpfs tmpfs ro\n"


class Traces:
    """Below ``folder``: ``cgroup`` and ``proc``."""

    def __init__(self, folder: Path) -> None:
        self.cgroups = folder / "cgroup"
        self.proc = folder / "proc"
        (self.cgroups / "kubepods").mkdir(parents=True, exist_ok=True)
        self.proc.mkdir(parents=True, exist_ok=True)

    def leave(self, started: StartedContainer) -> None:
        """A container has started."""
        group = self._pod(started.pod_uid) / started.id
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text(f"{started.pid}\n")
        process = self.proc / str(started.pid)
        root = process / "root"
        root.mkdir(parents=True)
        lines = []
        for number, mount in enumerate(started.mounts, start=2):
            lines.append(
                _MOUNT.format(
                    number=number,
                    root=_escaped(mount.host_path),
                    target=_escaped(mount.container_path),
                )
            )
            _show(Path(mount.host_path), root / mount.container_path.lstrip("/"))
        (process / "mountinfo").write_text("".join(lines))

    def clear(self, started: StartedContainer) -> None:
        """It has ended; its pod's cgroup goes with the last container."""
        shutil.rmtree(self.proc / str(started.pid), ignore_errors=True)
        pod = self._pod(started.pod_uid)
        shutil.rmtree(pod / started.id, ignore_errors=True)
        with suppress(OSError):
            pod.rmdir()

    def _pod(self, uid: PodUid) -> Path:
        return self.cgroups / "kubepods" / f"pod{uid}"


def _show(host: Path, inside: Path) -> None:
    """The same file under another name, as a bind mount is; what cannot be linked is left out."""
    if not host.is_file():
        return
    inside.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        os.link(host, inside)


def _escaped(path: str) -> str:
    """Blanks as in a mount table."""
    return path.replace("\\", "\\134").replace(" ", "\\040")
