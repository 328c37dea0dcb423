"""What we ask of NVML, NVIDIA's management library, as values: no handles, no error numbers.

``driver.DriverNvml`` answers, which asks the driver. GPUs and MIG devices are named by their UUIDs.
Every method blocks for a short while and may be called from any thread.

HamiError
└── NvmlFailed         one request failed
    ├── NvmlAway       there is no driver to ask; it may come back, so asking again is right
    ├── GpuLost        the GPU does not answer any more
    ├── InUse          somebody has the device open
    └── NotSupported   this GPU or driver cannot answer this; asking again is useless
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from hami.domain.errors import HamiError
from hami.domain.units import DeviceId, MemoryMiB


class NvmlFailed(HamiError):
    """NVML refused a request or could not carry it out; the text says which and on what."""


class NvmlAway(NvmlFailed):
    """NVML cannot be used now: no library, no driver, or a driver that was replaced."""


class NotSupported(NvmlFailed):
    """This GPU or this driver does not know what was asked."""


class GpuLost(NvmlFailed):
    """The GPU does not answer: it fell off the bus or needs a reset."""


class InUse(NvmlFailed):
    """Somebody has the device open: a program that computes, or one that only looks at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigMode:
    """Whether a GPU is cut into instances, now and after its next reset."""

    enabled: bool
    pending: bool


class Capability(NamedTuple):
    """CUDA's name for a generation of GPUs: 9.0 is Hopper."""

    major: int
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU that answers.

    ``memory_bytes`` is None where the GPU has no memory of its own (it shares the host's), ``mig``
    where it cannot be cut. ``minor`` names its file: ``/dev/nvidia<minor>``; ``pci_bus_id`` as
    NVML says it, ``00000000:0A:00.0``. ``numa`` is None where NVML does not know: sysfs does.
    ``cores`` and ``capability`` are None where the driver does not say, ``cores`` on a GPU that is
    cut.
    """

    uuid: DeviceId
    index: int
    minor: int
    name: str
    pci_bus_id: str
    memory_bytes: int | None
    mig: MigMode | None = None
    numa: int | None = None
    cores: int | None = None
    capability: Capability | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlUnreadable:
    """A GPU that the driver counts and that does not answer; its UUID is not known."""

    index: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Memory slices ``start`` to ``start + size - 1`` of a GPU."""

    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceProfile:
    """A kind of GPU instance that a GPU can be cut into.

    ``number`` is NVML's constant for the kind (0 is one slice), ``id`` what this driver calls it.
    ``name`` is NVIDIA's, without ``MIG``: ``1g.5gb``; ``count`` how many fit at most.
    """

    number: int
    id: int
    name: str
    slices: int
    memory_mib: MemoryMiB
    multiprocessors: int
    count: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstance:
    """A GPU instance that exists, with the ids of its compute instances."""

    id: int
    profile_id: int
    span: Span
    compute_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """What a program can use: a compute instance of a GPU instance.

    ``profile`` is ``1g.5gb``, or ``1c.2g.10gb`` where it has a part of the compute slices.
    """

    uuid: DeviceId
    gpu_instance: int
    compute_instance: int
    profile: str
    memory_mib: MemoryMiB


class Ancestor(IntEnum):
    """The nearest thing on PCIe that two GPUs share; the values are NVML's."""

    BOARD = 0
    SWITCH = 10
    SWITCHES = 20
    HOST_BRIDGE = 30
    CPU = 40
    SYSTEM = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """An NVLink that is up, and what is at its other end; ``switch``: an NVSwitch."""

    remote_bus_id: str
    switch: bool = False


class MemoryInUse(NamedTuple):
    """Bytes of a GPU or MIG device, whoever uses them."""

    used: int
    total: int


class BusyRates(NamedTuple):
    """Percent of the driver's last sample period in which anything computed, or moved memory."""

    compute: int
    memory: int


class RunningProcess(NamedTuple):
    """A process that has the device open; ``memory_bytes`` is None where the driver cannot tell."""

    pid: int
    memory_bytes: int | None


class UtilisationSample(NamedTuple):
    """How much of a GPU's time a process had, in percent; ``at_us``: Unix microseconds."""

    pid: int
    at_us: int
    percent: int


class Recovery(Enum):
    """What the driver says must be done before a GPU can be trusted again."""

    NONE = "none"
    RESET = "a reset of the GPU"
    REBOOT = "a reboot of the node"
    DRAIN = "its workloads to be drained"
    UNKNOWN = "unknown"
    """The driver is too old to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEvent:
    """A critical error. ``uuid`` is None where NVML does not say whose; the ids are a MIG's."""

    xid: int
    uuid: DeviceId | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Watch(Protocol):
    """A subscription to the errors of some GPUs, from the moment it was made."""

    @property
    def refused(self) -> Mapping[DeviceId, str]:
        """GPUs whose errors cannot be watched although they should be able to tell."""

    def wait(self, seconds: float) -> XidEvent | None:
        """The next error, or None after some time, at most ``seconds``.

        Raises:
            NvmlFailed: the watch is of no more use; make a new one.
        """

    def close(self) -> None:
        """End the subscription; fails never."""


class Nvml(Protocol):
    """Every method raises :class:`NvmlAway` while there is no driver, :class:`NvmlFailed` else."""

    def gpus(self) -> Sequence[Gpu | NvmlUnreadable]:
        """Every GPU that the driver counts, in the order of the indexes."""

    def probe(self, gpu: DeviceId) -> Recovery:
        """Ask the GPU something that only a working one can answer."""

    def busy(self, device: DeviceId) -> bool:
        """Whether a process runs on the GPU or one of its MIG devices, or on this MIG device."""

    def memory(self, device: DeviceId) -> MemoryInUse | None:
        """Of a GPU or MIG device; None for a GPU without memory of its own."""

    def busy_rates(self, gpu: DeviceId) -> BusyRates | None:
        """None where the driver cannot tell, as on a GPU that is cut."""

    def running(self, gpu: DeviceId) -> Sequence[RunningProcess]:
        """Whatever computes or draws on the GPU or its MIG devices, each process once."""

    def utilisation(self, gpu: DeviceId, since_us: int) -> Sequence[UtilisationSample] | None:
        """Of each process that computed after ``since_us``; None where nobody can tell (MIG, MPS).

        A process may have one sample, the mean of that time, or one for each sample period.
        """

    def mig_mode(self, gpu: DeviceId) -> MigMode | None:
        """None: this GPU cannot be cut."""

    def set_mig(self, gpu: DeviceId, *, enabled: bool) -> None:
        """Change the mode; whether it is in force at once is for :meth:`mig_mode` to say.

        One that only a reset can bring into force is no failure. After :class:`InUse` it is
        pending too, and asking again when nobody has the GPU open brings it into force.
        """

    def instance_profiles(self, gpu: DeviceId) -> Sequence[InstanceProfile]:
        """Every kind of instance that this GPU can be cut into; empty while MIG is off."""

    def instances(self, gpu: DeviceId) -> Sequence[GpuInstance]:
        """Every GPU instance that exists."""

    def create_instance(self, gpu: DeviceId, profile: InstanceProfile, span: Span) -> int:
        """A new GPU instance, without compute instances; its id."""

    def create_compute(self, gpu: DeviceId, instance: int) -> int:
        """One compute instance with all compute slices of a GPU instance; its id."""

    def destroy_compute(self, gpu: DeviceId, instance: int, compute: int) -> None:
        """Destroy a compute instance; refused while a process uses it."""

    def destroy_instance(self, gpu: DeviceId, instance: int) -> None:
        """Destroy a GPU instance that has no compute instances."""

    def mig_devices(self, gpu: DeviceId) -> Sequence[MigDevice]:
        """Every MIG device of a GPU; empty for one that is not cut."""

    def ancestor(self, one: DeviceId, other: DeviceId) -> Ancestor:
        """The nearest thing on PCIe that two GPUs share."""

    def links(self, gpu: DeviceId) -> Sequence[NvLink]:
        """The NVLinks that are up."""

    def watch(self, gpus: Sequence[DeviceId]) -> Watch:
        """Be told of critical errors of these GPUs."""

    def close(self) -> None:
        """Let go of the driver, so that it can be unloaded; the next request takes it again."""


def profile_name(slices: int, memory_mib: int, gpu_memory_bytes: int | None) -> str:
    """The name NVIDIA gives to an instance, for drivers that do not tell: ``3g.20gb``.

    The memory counts in eighths of the GPU, rounded up; the whole GPU in GiB, rounded up too.
    """
    if not gpu_memory_bytes:
        return f"{slices}g.{-(-memory_mib // 1024)}gb"
    eighths = -(-8 * (memory_mib << 20) // gpu_memory_bytes)
    total_gib = -(-gpu_memory_bytes // (1 << 30))
    return f"{slices}g.{(2 * eighths * total_gib + 8) // 16}gb"
