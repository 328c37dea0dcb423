"""Cgroup trees as kubelet and the runtimes make them, of plain files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Layout = Callable[[Path, str, str], Path]
"""Makes a pod's cgroup path from a root, a uid and a quality of service (empty: guaranteed)."""


def cgroupfs(root: Path, uid: str, qos: str) -> Path:
    return root / "kubepods" / qos / f"pod{uid}"


def systemd(root: Path, uid: str, qos: str) -> Path:
    return _slices(root, "", uid, qos)


def kind(root: Path, uid: str, qos: str) -> Path:
    """The layout of a kubelet with ``--cgroup-root=/kubelet``."""
    return _slices(root / "kubelet.slice", "kubelet-", uid, qos)


def kind_from_outside(root: Path, uid: str, qos: str) -> Path:
    return kind(root / "system.slice" / "docker-0f3a.scope", uid, qos)


def cgroupfs_of_v1(root: Path, uid: str, qos: str) -> Path:
    return cgroupfs(root / "memory", uid, qos)


def rootless(root: Path, uid: str, qos: str) -> Path:
    inner = root / "user.slice" / "user-1000.slice" / "user@1000.service" / "k3s.scope"
    return cgroupfs(inner, uid, qos)


def _slices(root: Path, prefix: str, uid: str, qos: str) -> Path:
    name = f"{prefix}kubepods"
    folder = root / f"{name}.slice"
    if qos:
        name = f"{name}-{qos}"
        folder /= f"{name}.slice"
    return folder / f"{name}-pod{uid.replace('-', '_')}.slice"


def fill(folder: Path, *pids: int) -> Path:
    """Make a cgroup with these processes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return folder


def say_populated(pod: Path, populated: bool) -> None:
    """Write ``cgroup.events`` as cgroup v2 does."""
    (pod / "cgroup.events").write_text(f"populated {int(populated)}\nfrozen 0\n")
