"""One node's ticks, step by step: what was measured goes in, the table and the pages come out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from hami.domain.devices import Device
from hami.domain.kubernetes.objects import Pod
from hami.domain.measurements import (
    MeasuredDevice,
    MeasuredProcess,
    MeasuredSlice,
    Measurement,
)
from hami.domain.units import DeviceId, PodUid
from hami.monitor.compat.region_files import RegionFolder
from hami.monitor.files.recorded_slice import recorded_slice
from hami.monitor.files.slices_on_disk import SlicesOnDisk
from hami.monitor.measuring.vendor_measuring import VendorAnswer, boot_time
from hami.monitor.processes.process_table import CLOCK_TICKS
from hami.monitor.table import NodeTable, SliceFigures, Stranger
from hami.monitor.tick.foreign import ForeignSlices
from hami.monitor.tick.node_round import NodeRound
from hami.slices.cgroups import CgroupPlace
from hami.vendors.registry import Vendors

from ..builders import a_plugin
from .world import NVIDIA, NodeSlice, NodeSlices, ProcTree

GPUS = tuple(DeviceId(f"GPU-{number}") for number in range(4))


class Ticks:
    """``tick`` takes what the vendor measured; every process began long before, unless it says."""

    def __init__(self, folder: Path, gpus: Sequence[str] = GPUS) -> None:
        self.slices = NodeSlices(folder / "slices")
        self.proc = ProcTree(folder / "proc")
        self.problems: list[str] = []
        self.names: dict[CgroupPlace, str] = {}
        self.pods: dict[PodUid, Pod] = {}
        self.devices = tuple(
            Device(id=DeviceId(gpu), vendor=NVIDIA, index=n) for n, gpu in enumerate(gpus)
        )
        vendors = Vendors.of({"nvidia": a_plugin(vendors=(NVIDIA,))})
        self.disk = SlicesOnDisk(
            folder / "slices",
            {NVIDIA: partial(recorded_slice, vendors=vendors)},
            self.problems.append,
        )
        self.round = NodeRound(
            "node-1",
            [NVIDIA],
            self.disk,
            folder / "proc",
            lambda place: self.names.get(place, ""),
            self.problems.append,
            ForeignSlices(RegionFolder(folder / "hook"), lambda _: None, self.problems.append),
            pod_of=self.pods.get,
        )
        self.answer = VendorAnswer(vendor=NVIDIA)

    def tick(
        self,
        *processes: MeasuredProcess,
        slices: Sequence[MeasuredSlice] = (),
        devices: Sequence[MeasuredDevice] | None = None,
        asked_at: float | None = None,
    ) -> NodeTable:
        self.answer = VendorAnswer(
            vendor=NVIDIA,
            devices=self.devices,
            measurement=Measurement(
                devices=tuple(
                    [MeasuredDevice(id=device.id, utilisation=0.0) for device in self.devices]
                    if devices is None
                    else devices
                ),
                processes=processes,
                slices=tuple(slices),
                seconds=0.5,
            ),
            asked_at=boot_time() if asked_at is None else asked_at,
            measured_at=1.0,
            fresh=True,
        )
        self.round.look()
        return self.round.finish([self.answer], 0.0)

    def held(self) -> NodeTable:
        """A tick at which the vendor did not answer."""
        late = VendorAnswer(
            vendor=NVIDIA,
            devices=self.answer.devices,
            measurement=self.answer.measurement,
            asked_at=self.answer.asked_at,
            measured_at=self.answer.measured_at,
        )
        self.round.look()
        return self.round.finish([late], 0.0)

    def process(self, of: NodeSlice, pid: int, **more: object) -> int:
        """A process in the slice's container; the inode of its pid namespace."""
        arguments = {"container_id": f"c{of.id}", "namespace": of.id, **more}
        return self.proc.add(pid, pod_uid=of.pod_uid, page=of.limits, **arguments)  # type: ignore[arg-type]

    def look_at_mounts_again(self) -> None:
        """As when time has passed."""
        for seen in self.round._vendors[NVIDIA].attribution._owners._seen.values():
            seen.due = 0.0

    def close(self) -> None:
        self.round.close()
        self.slices.close()


def used(
    pid: int, memory: int | None, percent: float | None = None, gpu: str = GPUS[0]
) -> MeasuredProcess:
    return MeasuredProcess(
        device_id=DeviceId(gpu), pid=pid, memory_bytes=memory, utilisation=percent
    )


def figures(table: NodeTable, of: NodeSlice) -> SliceFigures:
    [found] = [one for one in table.slices if one.id == of.id]
    return found


def strangers(table: NodeTable) -> list[tuple[int, str]]:
    def key(one: Stranger) -> tuple[int, str]:
        return one.pid, one.pod_uid

    return sorted(map(key, table.strangers))


def began(at: float) -> int:
    """The start time of a process, in clock ticks."""
    return int(at * CLOCK_TICKS)
