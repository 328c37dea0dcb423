"""What runs on one node, as one round of measuring (a tick) found it. Values only, no I/O.

Memory is in bytes and compute in percent of one physical device, as a float where it is measured.
``None`` stands for what nobody could say; 0 is a figure. Moments are Unix seconds, 0 for never.
What a container says of itself (charged bytes, waiting time, its processes' flags) is shown as it
says it, in range, and proves nothing.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hami.domain.units import CorePercent, DeviceId, PodUid, VendorKey

Source = Literal["hami", "hami-core"]
"""Whose file a slice was read from: our limits page, or the region that HAMi's library maps."""


class DeviceFigures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A device as its vendor measures it, whoever uses it.

    ``memory_utilisation`` is the percentage of time in which the memory controller was busy.
    ``stale``: the figures are from an earlier tick, because the vendor's newest answer is late,
    failed, or left this device out.
    """

    vendor: VendorKey
    id: DeviceId
    index: int
    model: str
    memory_total_bytes: int
    memory_used_bytes: int | None = None
    utilisation: float | None = None
    memory_utilisation: float | None = None
    stale: bool = False


class MigIdentity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a container has of a device in MIG mode; ids as the driver gave them.

    ``index`` is its place among what the container was granted; it may have several of one device.
    """

    index: int
    device_id: DeviceId
    uuid: str
    profile: str
    gpu_instance_id: int
    compute_instance_id: int


class SliceDevice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One device of a slice; ``index`` is its place in the container.

    Attributes:
        memory_limit_bytes: 0: no limit.
        used_bytes: what the driver accounts to the slice's processes, else ``charged_bytes``.
        charged_bytes: what the library in the container has counted.
        context_bytes, module_bytes, buffer_bytes: parts of ``charged_bytes``, as far as the
            library tells them apart: contexts, loaded code, what the program allocated.
        internal_bytes: what the driver accounts beyond what was charged; None without its figure.
        guarantee: what is booked; 0: nothing is.
        limit: the most that the slice may have while others leave it; 100: all.
        share: what the monitor handed out for now; None: nothing, so ``guarantee`` is the cap.
        utilisation: of the whole device, by this slice.
        waited_seconds: for how long its threads have waited for their turn, since the slice began.
        last_active_at: when it was last seen to compute.
    """

    index: int
    device_id: DeviceId
    memory_limit_bytes: int
    used_bytes: int
    charged_bytes: int
    context_bytes: int = 0
    module_bytes: int = 0
    buffer_bytes: int = 0
    internal_bytes: int | None = None
    guarantee: CorePercent = CorePercent(0)
    limit: CorePercent = CorePercent(100)
    share: float | None = None
    utilisation: float | None = None
    waited_seconds: float = 0.0
    last_active_at: float = 0.0


class ProcessFigures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One process of a slice.

    ``pid`` is the host's, 0 while it is not known; ``slot`` is its place in the usage region, -1
    for a process that has none. ``used_bytes`` and ``utilisation`` are by device, in the order of
    the slice's devices; an empty ``utilisation`` is not known. ``bypass``: the program got a
    function of the driver that the library does not stand before.
    """

    pid: int
    slot: int
    used_bytes: tuple[int, ...]
    utilisation: tuple[float, ...] = ()
    bypass: bool = False


class SliceFigures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one container has of one vendor, and does with it.

    ``id`` is unique on the node. ``created_at`` tells a container's newest slice from those before
    it. ``library`` is the version of the files that the container's library writes. ``priority``: 0
    goes before 1. ``policy``: when compute is limited. ``covered``: a process of the container sees
    another file where its limits page should be. ``problem`` is for people: what of the slice's
    files could not be read or makes no sense; the figures are then those that could.
    """

    id: str
    vendor: VendorKey
    namespace: str
    pod: str
    pod_uid: PodUid
    container: str
    generation: int
    created_at: float
    library: str
    devices: tuple[SliceDevice, ...]
    processes: tuple[ProcessFigures, ...] = ()
    mig: tuple[MigIdentity, ...] = ()
    priority: int = 1
    policy: Literal["default", "force", "disable"] = "default"
    source: Source = "hami"
    covered: bool = False
    problem: str = ""


class Stranger(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process on a device that belongs to no slice.

    ``pod_uid`` is empty where it runs in no pod; ``namespace`` and ``pod`` also where the pod is
    not known.
    """

    vendor: VendorKey
    device_id: DeviceId
    pid: int
    used_bytes: int | None = None
    pod_uid: PodUid = PodUid("")
    namespace: str = ""
    pod: str = ""


class VendorFigures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How well a vendor is measured; ``stale``: its newest answer is late or failed."""

    vendor: VendorKey
    measured_at: float = 0.0
    stale: bool = False


class NodeTable(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that one tick found; ``tick_seconds`` is how long that took."""

    node: str
    taken_at: float
    tick_seconds: float = 0.0
    devices: tuple[DeviceFigures, ...] = ()
    slices: tuple[SliceFigures, ...] = ()
    strangers: tuple[Stranger, ...] = ()
    vendors: tuple[VendorFigures, ...] = ()
