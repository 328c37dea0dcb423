"""Which pods still have processes, by their cgroups: a deleted pod may run on for a while.

kubelet names a pod's cgroup after its uid, below ``kubepods`` and its quality of service:
``kubepods/burstable/pod<uid>`` with the cgroupfs driver, and with systemd's
``kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid, _ for ->.slice``. Below that
every container has one of its own, named after its id. The tree may lie deeper
(``--cgroup-root``, kind), and cgroup v1 has one per controller.
(The two drivers: https://kubernetes.io/docs/setup/production-environment/container-runtimes/.)
"""

from __future__ import annotations

import errno
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hami.domain.units import PodUid

DEPTH = 7
"""How deep ``kubepods`` may lie: controller (v1), then what a container or a user nests it in."""

_ROOT = re.compile(r"kubepods|(?:.+-)?kubepods\.slice")
_QOS = re.compile(r"(?:.+-)?(?:guaranteed|burstable|besteffort)(?:\.slice)?")
_POD = re.compile(r"(?:.+-)?pod(?P<uid>[0-9A-Za-z_-]+?)(?:\.slice)?")
_GONE = frozenset({errno.ENOENT, errno.ENODEV})
"""A cgroup that was removed while it was read answers ENODEV to whoever has it open."""


@dataclass(frozen=True, slots=True)
class CgroupUnreadable:
    """Nobody can say what runs; ``problem`` is for people."""

    problem: str


class CgroupPlace(msgspec.Struct, frozen=True, gc=False):
    """Where a process runs; ``container_id`` is the runtime's, or empty outside every container."""

    pod_uid: PodUid
    container_id: str


def place_of(text: str) -> CgroupPlace | None:
    """The pod and container of a process, by its ``/proc/<pid>/cgroup``; None: it is in no pod.

    The outermost cgroup of a pod counts, which is kubelet's: a container can make others below its
    own. Where the reader has a cgroup namespace of its own the paths begin with ``/..``, and the
    tree's root is missing.
    """
    found = None
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        if (place := _place(rest.partition(":")[2].split("/"))) is not None:
            found = place
            if number == "0":
                break
    return found


def _place(parts: Sequence[str]) -> CgroupPlace | None:
    root = next((at for at, part in enumerate(parts) if _ROOT.fullmatch(part)), -1)
    if root < 0 and parts[1:2] != [".."]:
        return None
    for at, part in enumerate(parts[root + 1 :], root + 1):
        if match := _POD.fullmatch(part):
            container = parts[at + 1] if at + 1 < len(parts) else ""
            id = container.removesuffix(".scope").rpartition("-")[2]
            return CgroupPlace(PodUid(_plain(match["uid"])), id)
        if root >= 0 and not _QOS.fullmatch(part):
            return None
    return None


class PodCgroups:
    """Looks below ``root``, where the host's ``/sys/fs/cgroup`` is mounted. Blocks.

    ``on_problem`` gets a sentence for each thing that cannot be read, once as long as it lasts.
    """

    def __init__(self, root: Path, on_problem: Callable[[str], None]) -> None:
        self._root = root
        self._on_problem = on_problem
        self._found: Sequence[Path] = ()
        self._told: frozenset[str] = frozenset()

    def busy(self, uids: Collection[PodUid]) -> frozenset[PodUid]:
        """Those of ``uids`` that have a process, or of which nobody can say."""
        if not uids:
            return frozenset()
        pods = self._pods()
        if isinstance(pods, CgroupUnreadable):
            self._tell({pods.problem})
            return frozenset(uids)
        problems: set[str] = set()
        busy = set()
        for uid in uids:
            for folder in pods.get(_plain(uid), ()):
                populated = _populated(folder)
                if isinstance(populated, CgroupUnreadable):
                    problems.add(f"pod {uid} counts as running: {populated.problem}")
                if populated:
                    busy.add(uid)
        self._tell(problems)
        return frozenset(busy)

    def pids(self, uid: PodUid, container_id: str = "") -> frozenset[int] | CgroupUnreadable:
        """The processes of a pod, or of one container of it; none for one that is not there.

        ``container_id`` is the runtime's, without its ``containerd://``.
        """
        [found] = self.pids_of([(uid, container_id)])
        return found

    def all_pids(self) -> frozenset[int] | CgroupUnreadable:
        """The processes of all pods."""
        pods = self._pods()
        if isinstance(pods, CgroupUnreadable):
            return pods
        found: set[int] = set()
        for uid in pods:
            of_pod = self._pids(pods, PodUid(uid), "")
            if isinstance(of_pod, CgroupUnreadable):
                return of_pod
            found |= of_pod
        return frozenset(found)

    def pids_of(
        self, containers: Sequence[tuple[PodUid, str]]
    ) -> list[frozenset[int] | CgroupUnreadable]:
        """The same for many, in their order, with one look at the tree of pods."""
        pods = self._pods()
        if isinstance(pods, CgroupUnreadable):
            return [pods] * len(containers)
        return [self._pids(pods, uid, container_id) for uid, container_id in containers]

    def _pids(
        self, pods: Mapping[str, Sequence[Path]], uid: PodUid, container_id: str
    ) -> frozenset[int] | CgroupUnreadable:
        found: set[int] = set()
        for folder in pods.get(_plain(uid), ()):
            try:
                for inner in _containers(folder, container_id) if container_id else (folder,):
                    found.update(_processes(inner))
            except OSError as error:
                return CgroupUnreadable(_text(folder, error))
        if 0 in found:
            # The kernel's word for a process that our own PID namespace does not show.
            return CgroupUnreadable(
                f"processes of pod {uid} have no number here: run the agent with hostPID: true"
            )
        return frozenset(found)

    def _pods(self) -> dict[str, list[Path]] | CgroupUnreadable:
        """Every pod's cgroups by its uid, in one pass over ``kubepods``."""
        try:
            try:
                return _listed(self._found or self._look())
            except FileNotFoundError:
                # kubelet made its tree anew, or it was made after we looked.
                return _listed(self._look())
        except OSError as error:
            return CgroupUnreadable(_text(self._root, error))
        except _NothingThereError:
            return CgroupUnreadable(
                f"{self._root} has no cgroup kubepods: mount the host's /sys/fs/cgroup there, or "
                "name where it is with --cgroup-root; until then no slice is released"
            )

    def _look(self) -> Sequence[Path]:
        self._found = tuple(_roots(self._root, DEPTH))
        if not self._found:
            raise _NothingThereError
        return self._found

    def _tell(self, problems: Collection[str]) -> None:
        for problem in sorted(set(problems) - self._told):
            self._on_problem(problem)
        self._told = frozenset(problems)


class _NothingThereError(Exception):
    """No kubelet's tree."""


def _roots(folder: Path, depth: int) -> Iterator[Path]:
    """Kubelet's trees, of every controller; what is below one of them is not searched."""
    try:
        inner = list(_folders(folder))
    except OSError as error:
        if error.errno in _GONE or isinstance(error, PermissionError):
            return
        raise
    for entry in inner:
        if _ROOT.fullmatch(entry.name):
            yield entry
        elif depth > 1:
            yield from _roots(entry, depth - 1)


def _listed(roots: Sequence[Path]) -> dict[str, list[Path]]:
    pods: dict[str, list[Path]] = defaultdict(list)
    for root in roots:
        for entry in _folders(root):
            if _QOS.fullmatch(entry.name):
                try:
                    inner = list(_folders(entry))
                except FileNotFoundError:
                    continue
            else:
                inner = [entry]
            for folder in inner:
                if match := _POD.fullmatch(folder.name):
                    pods[_plain(match["uid"])].append(folder)
    return pods


def _containers(pod: Path, container_id: str) -> Iterator[Path]:
    """``<id>``, ``cri-containerd-<id>.scope`` or ``crio-<id>.scope``; more than one with CRI-O."""
    for folder in _folders(pod):
        name = folder.name.removesuffix(".scope")
        if name == container_id or name.endswith(f"-{container_id}"):
            yield folder


def _populated(pod: Path) -> bool | CgroupUnreadable:
    try:
        for line in (pod / "cgroup.events").read_text().splitlines():
            if line.startswith("populated "):
                return line != "populated 0"
    except FileNotFoundError:
        pass  # cgroup v1 has no such file; nor has a cgroup that is gone
    except OSError as error:
        return error.errno not in _GONE and CgroupUnreadable(_text(pod, error))
    try:
        return any(True for _ in _processes(pod))
    except OSError as error:
        return CgroupUnreadable(_text(pod, error))


def _processes(folder: Path) -> Iterator[int]:
    """In this cgroup and below; a cgroup that is removed meanwhile has none.

    Raises:
        OSError: it is there and cannot be read.
    """
    with _unless_gone():
        yield from map(int, (folder / "cgroup.procs").read_text().split())
    with _unless_gone():
        for inner in _folders(folder):
            yield from _processes(inner)


@contextmanager
def _unless_gone() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE:
            raise


def _folders(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)


def _plain(uid: str) -> str:
    """Systemd's names cannot hold a dash."""
    return uid.replace("_", "-")


def _text(folder: Path, error: OSError) -> str:
    return f"cannot read {error.filename or folder}: {error.strerror or error}"
