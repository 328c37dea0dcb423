"""Asks NVML what every GPU, process and MIG instance uses now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hami.domain.devices import Device
from hami.domain.measurements import (
    MeasuredDevice,
    MeasuredProcess,
    MeasuredSlice,
    Measurement,
)
from hami.domain.slices import Slice
from hami.domain.units import DeviceId
from hami_nvidia.measurement.sampled import means
from hami_nvidia.mig.claims import InstanceClaim, claims_of
from hami_nvidia.nvml.interface import GpuLost, Nvml, NvmlAway, NvmlFailed

SAMPLE_US = 1_000_000
"""The longest that a driver takes for one sample: within it, no newer one says nothing."""
ANEW_US = 30_000_000
"""How often a new session is begun while a GPU is lost: one that came back is found in no other."""


@dataclass(slots=True)
class _Followed:
    """How far a GPU's samples were read, and what came of the last of them."""

    until_us: int
    percents: Mapping[int, float] = field(default_factory=dict)
    seconds: float = 0.0


class Measuring:
    """One caller at a time. ``clock`` is Unix time in seconds, NVML's own for samples."""

    def __init__(self, nvml: Nvml, clock: Callable[[], float] = time.time) -> None:
        self._nvml = nvml
        self._clock = clock
        self._followed: dict[DeviceId, _Followed] = {}
        self._instances: dict[InstanceClaim, DeviceId] = {}
        self._anew_us = 0

    def measure(self, devices: Sequence[Device], slices: Sequence[Slice]) -> Measurement:
        """A GPU that does not answer is left out, with all that is on it.

        Raises:
            NvmlAway: there is no driver to ask.
        """
        known = {device.id for device in devices}
        claims = [
            (slice.id, claim)
            for slice in slices
            for claim in claims_of(slice)
            if claim.gpu in known
        ]
        figures: list[MeasuredDevice] = []
        processes: list[MeasuredProcess] = []
        lost = False
        for device in devices:
            try:
                figures.append(self._device(device.id))
                processes += self._processes(device.id)
            except NvmlAway:
                raise
            except NvmlFailed as failed:
                self._followed.pop(device.id, None)
                lost = lost or isinstance(failed, GpuLost)
        if lost:
            self._begin_anew()
        self._forget(known, {claim for _, claim in claims})
        return Measurement(
            devices=tuple(figures),
            processes=tuple(processes),
            slices=tuple(self._slice(slice_id, claim) for slice_id, claim in claims),
            seconds=max((one.seconds for one in self._followed.values()), default=0.0),
        )

    def _device(self, device: DeviceId) -> MeasuredDevice:
        memory, rates = self._nvml.memory(device), self._nvml.busy_rates(device)
        return MeasuredDevice(
            id=device,
            memory_used_bytes=None if memory is None else memory.used,
            memory_total_bytes=None if memory is None else memory.total,
            utilisation=None if rates is None else float(min(100, rates.compute)),
            memory_utilisation=None if rates is None else float(min(100, rates.memory)),
        )

    def _processes(self, device: DeviceId) -> list[MeasuredProcess]:
        """Those that are there, and those that computed and are gone already."""
        memory = {process.pid: process.memory_bytes for process in self._nvml.running(device)}
        percents = self._percents(device)
        nothing = None if percents is None else 0.0
        return [
            MeasuredProcess(
                device_id=device,
                pid=pid,
                memory_bytes=memory.get(pid, 0),
                utilisation=(percents or {}).get(pid, nothing),
            )
            for pid in {**memory, **(percents or {})}
        ]

    def _percents(self, device: DeviceId) -> Mapping[int, float] | None:
        """By pid, since the samples that were read before; None where nobody can say."""
        now_us = self._now_us()
        followed = self._followed.get(device)
        if followed is None or followed.until_us > now_us + SAMPLE_US:
            # New, or the clock was set back: what it calls later is long past.
            followed = self._followed[device] = _Followed(now_us - SAMPLE_US)
        samples = self._nvml.utilisation(device, followed.until_us)
        if samples is None:
            del self._followed[device]
            return None
        if samples:
            newest = max(sample.at_us for sample in samples)
            followed.percents = means(samples, followed.until_us)
            followed.seconds = (newest - followed.until_us) / 1_000_000
            followed.until_us = newest
        elif now_us - followed.until_us > SAMPLE_US:
            followed.percents, followed.until_us = {}, now_us - SAMPLE_US
        return followed.percents

    def _slice(self, slice_id: str, claim: InstanceClaim) -> MeasuredSlice:
        """How busy an instance is, NVML cannot say."""
        return MeasuredSlice(
            device_id=claim.gpu, slice_id=slice_id, memory_bytes=self._used_by_instance(claim)
        )

    def _used_by_instance(self, claim: InstanceClaim) -> int | None:
        """None while it is not there, or does not answer."""
        try:
            uuid = self._instances.get(claim) or self._instance(claim)
            memory = self._nvml.memory(uuid) if uuid else None
        except NvmlAway:
            raise
        except NvmlFailed:
            self._instances.pop(claim, None)
            return None
        if uuid is not None:
            self._instances[claim] = uuid
        return None if memory is None else memory.used

    def _instance(self, claim: InstanceClaim) -> DeviceId | None:
        place = claim.instance.placement
        ids = {
            instance.id
            for instance in self._nvml.instances(claim.gpu)
            if (instance.span.start, instance.span.size) == (place.start, place.size)
        }
        return next(
            (one.uuid for one in self._nvml.mig_devices(claim.gpu) if one.gpu_instance in ids),
            None,
        )

    def _begin_anew(self) -> None:
        now_us = self._now_us()
        if abs(now_us - self._anew_us) >= ANEW_US:
            self._anew_us = now_us
            self._nvml.close()

    def _now_us(self) -> int:
        return int(self._clock() * 1_000_000)

    def _forget(self, devices: set[DeviceId], claims: set[InstanceClaim]) -> None:
        self._followed = {id: one for id, one in self._followed.items() if id in devices}
        self._instances = {one: uuid for one, uuid in self._instances.items() if one in claims}
