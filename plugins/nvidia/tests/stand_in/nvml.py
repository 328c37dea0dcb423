"""NVML without hardware: GPUs from a file, MIG, NVLinks, errors and faults included.

It keeps what a driver keeps, refuses what a driver refuses, and calls a new instance what the last
one at its place was called: id and MIG UUID follow from the place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, count

from hami_nvidia.nvml.interface import (
    Ancestor,
    BusyRates,
    Gpu,
    GpuInstance,
    GpuLost,
    InstanceProfile,
    InUse,
    MemoryInUse,
    MigDevice,
    MigMode,
    NotSupported,
    NvLink,
    NvmlAway,
    NvmlFailed,
    NvmlUnreadable,
    Recovery,
    RunningProcess,
    Span,
    UtilisationSample,
    Watch,
    XidEvent,
)
from hami_simgpu.gpus import simulated_uuid

from hami.domain.units import DeviceId, MemoryMiB

from .spec import NvmlSimulation, SimulatedGpu
from .state import (
    SimulatedCompute,
    SimulatedInstance,
    SimulatedState,
    StateFile,
)

_POLL_SECONDS = 0.02


class SimulatedNvml:
    """See :class:`hami_nvidia.nvml.interface.Nvml`. ``state`` lets a test change the hardware."""

    def __init__(self, simulation: NvmlSimulation) -> None:
        self.state = StateFile(simulation.state)
        self._gpus = {simulated.gpu.uuid: simulated for simulated in simulation.gpus}
        self._wait_seconds = simulation.wait_seconds

    def gpus(self) -> Sequence[Gpu | NvmlUnreadable]:
        state = self._state("gpus")
        return [
            NvmlUnreadable(index=known.gpu.index, problem=f"GPU {known.gpu.index}: {lost}")
            if (lost := state.gpu(known.gpu.uuid).lost)
            else self._gpu(state, known)
            for known in self._gpus.values()
        ]

    def probe(self, gpu: DeviceId) -> Recovery:
        state = self._asked("probe", gpu)
        return state.gpu(gpu).recovery

    def busy(self, device: DeviceId) -> bool:
        state = self._state("busy")
        if device not in self._gpus:
            return device in state.busy
        self._answering(state, device)
        return bool(
            {device, *(mig.uuid for mig in self._mig_devices(state, device))} & {*state.busy}
        )

    def memory(self, device: DeviceId) -> MemoryInUse | None:
        """Nobody has any of it."""
        state = self._state("memory")
        sizes = {gpu: known.gpu.memory_bytes for gpu, known in self._gpus.items()}
        for gpu in self._gpus:
            if not state.gpu(gpu).lost:
                parts = self._mig_devices(state, gpu)
                sizes |= {part.uuid: part.memory_mib << 20 for part in parts}
        if device in self._gpus:
            self._answering(state, device)
        if device not in sizes:
            raise NvmlFailed(f"NVML: {device}: Not Found")
        total = sizes[device]
        return None if total is None else MemoryInUse(used=0, total=total)

    def busy_rates(self, gpu: DeviceId) -> BusyRates | None:
        return None if self._is_cut(self._asked("busy_rates", gpu), gpu) else BusyRates(0, 0)

    def running(self, gpu: DeviceId) -> Sequence[RunningProcess]:
        """Process 1 is on a GPU that is busy, and computes nothing."""
        state = self._asked("running", gpu)
        found = {gpu, *(mig.uuid for mig in self._mig_devices(state, gpu))} & {*state.busy}
        return [RunningProcess(pid=1, memory_bytes=0)] if found else []

    def utilisation(self, gpu: DeviceId, since_us: int) -> Sequence[UtilisationSample] | None:
        return None if self._is_cut(self._asked("utilisation", gpu), gpu) else ()

    def mig_mode(self, gpu: DeviceId) -> MigMode | None:
        return self._mode(self._asked("mig_mode", gpu), self._gpus[gpu])

    def set_mig(self, gpu: DeviceId, *, enabled: bool) -> None:
        with self._changing("set_mig", gpu) as state:
            if self._mode(state, self._gpus[gpu]) is None:
                raise NotSupported(f"NVML: {gpu}: set its MIG mode: Not Supported")
            own = state.gpu(gpu)
            own.mig_pending = enabled
            late = own.resets_late or self._mode(state, self._gpus[gpu]) == MigMode(
                enabled=enabled, pending=enabled
            )
            held = gpu in (*state.busy, *state.held_open)
            if not late and not held:
                own.mig, own.instances = enabled, []
        if not late and held:
            raise InUse(f"NVML: {gpu}: set its MIG mode: In use by another client")

    def instance_profiles(self, gpu: DeviceId) -> Sequence[InstanceProfile]:
        state = self._asked("instance_profiles", gpu)
        return self._gpus[gpu].profiles if self._is_cut(state, gpu) else ()

    def instances(self, gpu: DeviceId) -> Sequence[GpuInstance]:
        state = self._asked("instances", gpu)
        return [
            GpuInstance(
                id=instance.id,
                profile_id=instance.profile_id,
                span=instance.span,
                compute_ids=tuple(compute.id for compute in instance.compute),
            )
            for instance in state.gpu(gpu).instances
        ]

    def create_instance(self, gpu: DeviceId, profile: InstanceProfile, span: Span) -> int:
        what = f"NVML: {gpu}: create a MIG instance {profile.name} at {span.start}"
        with self._changing("create_instance", gpu) as state:
            if not self._is_cut(state, gpu) or profile not in self._gpus[gpu].profiles:
                raise NotSupported(f"{what}: Not Supported")
            if span not in profile.spans:
                raise NvmlFailed(f"{what}: Invalid Argument")
            own = state.gpu(gpu)
            alike = [each for each in own.instances if each.profile_id == profile.id]
            if len(alike) >= profile.count or any(
                span.start < each.start + each.size and each.start < span.start + span.size
                for each in own.instances
            ):
                raise NvmlFailed(f"{what}: Insufficient Resources")
            number = _instance_id(span, self._gpus[gpu], {each.id for each in own.instances})
            own.instances = sorted(
                [*own.instances, SimulatedInstance(number, profile.id, span.start, span.size)],
                key=lambda each: each.id,
            )
        return number

    def create_compute(self, gpu: DeviceId, instance: int) -> int:
        with self._changing("create_compute", gpu) as state:
            whole = self._instance(state, gpu, instance)
            if whole.compute:
                raise NvmlFailed(
                    f"NVML: {gpu}: create a compute instance of {instance}: Insufficient Resources"
                )
            uuid = DeviceId(simulated_uuid("MIG", gpu, instance, 0))
            whole.compute = [SimulatedCompute(0, uuid)]
        return 0

    def destroy_compute(self, gpu: DeviceId, instance: int, compute: int) -> None:
        what = f"NVML: {gpu}: destroy compute instance {compute} of {instance}"
        with self._changing("destroy_compute", gpu) as state:
            whole = self._instance(state, gpu, instance)
            found = [part for part in whole.compute if part.id == compute]
            if not found:
                raise NvmlFailed(f"{what}: Not Found")
            if found[0].uuid in state.busy:
                raise InUse(f"{what}: In use by another client")
            whole.compute = [part for part in whole.compute if part.id != compute]

    def destroy_instance(self, gpu: DeviceId, instance: int) -> None:
        with self._changing("destroy_instance", gpu) as state:
            whole = self._instance(state, gpu, instance)
            if whole.compute:
                raise InUse(f"NVML: {gpu}: destroy MIG instance {instance}: In use")
            own = state.gpu(gpu)
            own.instances = [each for each in own.instances if each is not whole]

    def mig_devices(self, gpu: DeviceId) -> Sequence[MigDevice]:
        return self._mig_devices(self._asked("mig_devices", gpu), gpu)

    def ancestor(self, one: DeviceId, other: DeviceId) -> Ancestor:
        self._answering(self._asked("ancestor", one), other)
        same = self._gpus[one].gpu.numa == self._gpus[other].gpu.numa
        return Ancestor.CPU if same else Ancestor.SYSTEM

    def links(self, gpu: DeviceId) -> Sequence[NvLink]:
        """None in MIG mode, as on hardware."""
        state = self._asked("links", gpu)
        if self._is_cut(state, gpu):
            return ()
        ended = state.gpu(gpu).ended_links
        return [link for place, link in enumerate(self._gpus[gpu].links) if place not in ended]

    def watch(self, gpus: Sequence[DeviceId]) -> Watch:
        state = self._state("watch")
        refused = {
            gpu: f"NVML: {gpu}: watch its errors: {lost}"
            for gpu in gpus
            if (lost := state.gpu(gpu).lost)
        }
        return _SimulatedWatch(self.state, frozenset(gpus), refused, self._wait_seconds)

    def close(self) -> None:
        """There is no driver to let go of."""

    def _gpu(self, state: SimulatedState, known: SimulatedGpu) -> Gpu:
        """As NVML, it does not count the cores of a GPU that is cut."""
        mode = self._mode(state, known)
        cut = mode is not None and mode.enabled
        return replace(known.gpu, mig=mode, cores=None if cut else known.gpu.cores)

    def _state(self, request: str) -> SimulatedState:
        state = self.state.read()
        _check(state, request)
        return state

    def _asked(self, request: str, gpu: DeviceId) -> SimulatedState:
        state = self._state(request)
        self._answering(state, gpu)
        return state

    @contextmanager
    def _changing(self, request: str, gpu: DeviceId) -> Iterator[SimulatedState]:
        with self.state.changing() as state:
            _check(state, request)
            self._answering(state, gpu)
            yield state

    def _answering(self, state: SimulatedState, gpu: DeviceId) -> None:
        if gpu not in self._gpus:
            raise NvmlFailed(f"NVML: {gpu}: Not Found")
        if lost := state.gpu(gpu).lost:
            raise GpuLost(f"NVML: {gpu}: {lost}")

    def _mode(self, state: SimulatedState, known: SimulatedGpu) -> MigMode | None:
        first, now = known.gpu.mig, state.gpu(known.gpu.uuid)
        if first is None:
            return None
        enabled = first.enabled if now.mig is None else now.mig
        return MigMode(
            enabled=enabled, pending=enabled if now.mig_pending is None else now.mig_pending
        )

    def _is_cut(self, state: SimulatedState, gpu: DeviceId) -> bool:
        mode = self._mode(state, self._gpus[gpu])
        return mode is not None and mode.enabled

    def _instance(self, state: SimulatedState, gpu: DeviceId, id: int) -> SimulatedInstance:
        for instance in state.gpu(gpu).instances:
            if instance.id == id:
                return instance
        raise NvmlFailed(f"NVML: {gpu}: MIG instance {id}: Not Found")

    def _mig_devices(self, state: SimulatedState, gpu: DeviceId) -> Sequence[MigDevice]:
        profiles = {profile.id: profile for profile in self._gpus[gpu].profiles}
        return [
            MigDevice(
                uuid=compute.uuid,
                gpu_instance=instance.id,
                compute_instance=compute.id,
                profile=profiles[instance.profile_id].name,
                memory_mib=MemoryMiB(profiles[instance.profile_id].memory_mib),
            )
            for instance in state.gpu(gpu).instances
            for compute in instance.compute
        ]


class _SimulatedWatch:
    """Polls the file: the errors come from other processes."""

    def __init__(
        self,
        state: StateFile,
        gpus: frozenset[DeviceId],
        refused: Mapping[DeviceId, str],
        most_seconds: float,
    ) -> None:
        self.refused = refused
        self._state, self._gpus, self._most_seconds = state, gpus, most_seconds
        self._seen = state.read().event_count

    def wait(self, seconds: float) -> XidEvent | None:
        deadline = time.monotonic() + min(seconds, self._most_seconds)
        while True:
            state = self._state.read()
            _check(state, "wait")
            for event in state.events:
                if event.number > self._seen and (event.uuid is None or event.uuid in self._gpus):
                    self._seen = event.number
                    return XidEvent(
                        xid=event.xid,
                        uuid=event.uuid,
                        gpu_instance=event.gpu_instance,
                        compute_instance=event.compute_instance,
                    )
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(_POLL_SECONDS, left))

    def close(self) -> None:
        """There is nothing to free."""


def _check(state: SimulatedState, request: str) -> None:
    if state.away:
        raise NvmlAway(f"NVML cannot be initialised: {state.away}")
    if text := state.failing.get(request):
        raise NvmlFailed(f"NVML: {request}: {text}")


def _instance_id(span: Span, of: SimulatedGpu, taken: set[int]) -> int:
    """As drivers number instances: 0 is the whole GPU, 1 and 2 its halves, 3 to 6 its quarters."""
    whole = _power_of_two(max(s.start + s.size for profile in of.profiles for s in profile.spans))
    size = _power_of_two(span.size)
    usual = whole // size - 1 + span.start // size
    return next(number for number in chain([usual], count()) if number not in taken)


def _power_of_two(number: int) -> int:
    """The least that is not below ``number``."""
    return int(2 ** (number - 1).bit_length())
