"""A node for the monitor: slices on disk, and processes below a ``/proc`` of the test's own."""

from __future__ import annotations

import fcntl
import itertools
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hami.domain.kubernetes.objects import Metadata, Pod
from hami.domain.units import PodUid, VendorKey
from hami.node.disk.store import SliceStore
from hami.slices.c_layout import LimitsPageC, ObservedC, SlotC, UsageC
from hami.slices.limits_page import PAGE_SIZE, DeviceLimit, PageLimits, Policy
from hami.slices.record import RecordedGrant, SliceRecord

NVIDIA = VendorKey("NVIDIA")
GIB = 1 << 30


def uid_of(number: int) -> PodUid:
    return PodUid(f"0000{number:04x}-aaaa-bbbb-cccc-000000000000")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSlice:
    """A slice on disk; ``observed`` is what the monitor has written into its page.

    ``holders``: the descriptors by which its slots are locked, as its processes hold them.
    """

    id: str
    pod_uid: PodUid
    container: str
    path: Path
    holders: list[int] = field(default_factory=list)

    @property
    def limits(self) -> Path:
        return self.path / "limits"

    @property
    def observed(self) -> ObservedC:
        data = self.limits.read_bytes()
        assert len(data) == PAGE_SIZE
        return LimitsPageC.from_buffer_copy(data).observed

    def charge(
        self, slot: int, pid: int, *by_device: int, locked: bool = True, **fields: int
    ) -> None:
        """Write into the usage region, as a process of the container does, which holds its slot."""
        with (self.path / "usage").open("r+b") as file:
            region = UsageC.from_buffer_copy(file.read())
            region.slots[slot] = SlotC(pid=pid, **({"generation": 1} | fields))
            for device, amount in enumerate(by_device):
                region.charged[device][slot] = amount
            file.seek(0)
            file.write(bytes(region))
        if locked:
            self.lock(slot)

    def lock(self, slot: int, kind: int = fcntl.F_WRLCK) -> None:
        """``F_UNLCK``: as when the process in the slot has ended."""
        if not self.holders:
            self.holders.append(os.open(self.path / "usage", os.O_RDWR | os.O_CLOEXEC))
        asked = struct.pack("hhqqi0q", kind, os.SEEK_SET, slot, 1, 0)
        fcntl.fcntl(self.holders[0], fcntl.F_OFD_SETLK, asked)

    def bucket(self, device: int = 0, **fields: int) -> None:
        with (self.path / "usage").open("r+b") as file:
            region = UsageC.from_buffer_copy(file.read())
            for name, value in fields.items():
                setattr(region.buckets[device], name, value)
            file.seek(0)
            file.write(bytes(region))


@dataclass
class NodeSlices:
    """The slices of one node below ``root``."""

    root: Path
    stores: dict[VendorKey, SliceStore] = field(default_factory=dict)
    numbers: itertools.count = field(default_factory=lambda: itertools.count(1))
    made: list[NodeSlice] = field(default_factory=list)

    def store(self, vendor: VendorKey = NVIDIA) -> SliceStore:
        if vendor not in self.stores:
            self.stores[vendor] = SliceStore(self.root, vendor, tmpfs=False, selinux=False)
        return self.stores[vendor]

    def add(
        self,
        *devices: str,
        pod: int | None = None,
        pod_uid: str = "",
        container: str = "main",
        memory: int = GIB,
        cores: int = 0,
        cores_limit: int = 0,
        policy: Policy = "default",
        priority: int = 1,
        vendor: VendorKey = NVIDIA,
    ) -> NodeSlice:
        number = next(self.numbers)
        uid = PodUid(pod_uid) or uid_of(number if pod is None else pod)
        id = f"{number:024x}"
        record = SliceRecord(
            slice_id=id,
            vendor=vendor,
            pod=Pod(metadata=Metadata(name=f"pod-{number}", namespace="team", uid=uid)),
            container=container,
            generation=1,
            state="enforced",
            created_at=1.0,
            grants=tuple(
                RecordedGrant(device_id=device, memory_mib=memory >> 20, cores=cores)
                for device in devices
            ),
        )
        path = self.store(vendor).create(record)
        made = NodeSlice(id=id, pod_uid=uid, container=container, path=path)
        self.made.append(made)
        limits = [
            DeviceLimit(uuid=device, memory_bytes=memory, cores=cores, cores_limit=cores_limit)
            for device in devices
        ]
        self.limit(made, limits, policy=policy, priority=priority, vendor=vendor)
        return made

    def limit(
        self,
        of: NodeSlice,
        devices: Sequence[DeviceLimit],
        *,
        policy: Policy = "default",
        priority: int = 1,
        vendor: VendorKey = NVIDIA,
    ) -> None:
        page = PageLimits(generation=1, devices=tuple(devices), policy=policy, priority=priority)
        self.store(vendor).write_limits(of.id, page)

    def close(self) -> None:
        for store in self.stores.values():
            store.close()
        for made in self.made:
            while made.holders:
                os.close(made.holders.pop())


class ProcTree:
    """A ``/proc``: made-up processes, and real ones that are said to run in a container."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)

    def add(
        self,
        pid: int,
        *,
        pod_uid: str = "",
        container_id: str = "",
        page: Path | None = None,
        inner_pid: int = 0,
        start_time: int = 1,
        cgroup: str | None = None,
        namespace: str = "",
    ) -> int:
        """``namespace``: a name that processes of one pid namespace share; its inode is returned."""
        folder = self.root / str(pid)
        (folder / "ns").mkdir(parents=True)
        (folder / "stat").write_text(_stat(pid, start_time))
        (folder / "status").write_text(
            f"Name:\tx\nPid:\t{pid}\nNSpid:\t{pid}\t{inner_pid or pid}\n"
        )
        spaces = self.root / "namespaces"
        spaces.mkdir(exist_ok=True)
        space = spaces / (namespace or "host")
        space.touch()
        os.link(space, folder / "ns" / "pid")
        (folder / "ns" / "time").symlink_to("/proc/self/ns/time")
        self._place(folder, pod_uid, container_id, page, cgroup)
        return space.stat().st_ino

    def lend(self, pid: int, *, pod_uid: str, container_id: str, page: Path | None = None) -> None:
        """A process of this machine, which from here looks like one of a container."""
        folder = self.root / str(pid)
        folder.mkdir()
        for name in ("stat", "status", "ns"):
            (folder / name).symlink_to(f"/proc/{pid}/{name}")
        self._place(folder, pod_uid, container_id, page, None)

    def _place(
        self,
        folder: Path,
        pod_uid: str,
        container_id: str,
        page: Path | None,
        cgroup: str | None,
    ) -> None:
        place = f"kubepods.slice/kubepods-pod{pod_uid.replace('-', '_')}.slice"
        inside = f"/{place}/cri-containerd-{container_id}.scope" if pod_uid else "/system.slice"
        (folder / "cgroup").write_text(f"0::{cgroup if cgroup is not None else inside}\n")
        target = "/run/hami/nvidia/limits"
        mounted = ""
        if page is not None:
            seen = folder / "root" / target.lstrip("/")
            seen.parent.mkdir(parents=True)
            os.link(page, seen)
            mounted = f"30 29 8:1 {page} {target} ro - ext4 /dev/sda1 rw\n"
        else:
            (folder / "root").mkdir()
        root = "29 28 0:1 / / rw - overlay overlay rw\n"
        (folder / "mountinfo").write_text(root + mounted)

    def end(self, pid: int) -> None:
        folder = self.root / str(pid)
        folder.rename(self.root / f"gone-{pid}-{folder.stat().st_ino}")
        gone = next(self.root.glob(f"gone-{pid}-*"))
        for path in sorted(gone.rglob("*"), reverse=True):
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            else:
                path.rmdir()
        gone.rmdir()


def _stat(pid: int, start_time: int) -> str:
    return f"{pid} (a ) b) S 1 {' '.join('0' for _ in range(17))} {start_time} 0 0\n"
