"""How each device is now: where it is, and whether its GPU answers and can be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hami.domain.devices import Device
from hami.domain.units import DeviceId
from hami_nvidia.devices.discovery import unusable
from hami_nvidia.mig.static_devices import cut_gpus
from hami_nvidia.nvml.interface import Gpu, GpuLost, Nvml, NvmlAway, NvmlFailed, Recovery, XidEvent
from hami_nvidia.settings.node_settings import NodeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A GPU, or a MIG device of it by its ids."""

    gpu: DeviceId
    gpu_instance: int | None = None
    compute_instance: int | None = None

    def is_hit_by(self, event: XidEvent) -> bool:
        """An error of nobody in particular is everybody's, one of a GPU is all its instances'."""
        if event.uuid is None:
            return True
        if event.uuid != self.gpu:
            return False
        if self.gpu_instance is None or event.gpu_instance is None:
            return True
        same = event.gpu_instance == self.gpu_instance
        return same and event.compute_instance in (None, self.compute_instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``problem`` is empty for a device that is well; ``lost``: its GPU does not answer.

    ``place`` is None for a device whose errors cannot be followed.
    """

    place: Place | None = None
    recovery: Recovery = Recovery.UNKNOWN
    problem: str = ""
    lost: bool = False


def survey(
    nvml: Nvml, devices: Sequence[Device], settings: NodeSettings
) -> Mapping[DeviceId, Finding]:
    """A finding for each of the devices.

    Raises:
        NvmlAway: there is no driver to ask.
    """
    gpus = {gpu.uuid: gpu for gpu in nvml.gpus() if isinstance(gpu, Gpu)}
    places = {uuid: Place(gpu=uuid) for uuid in gpus}
    if any(device.id not in gpus for device in devices):
        places |= _mig_places(nvml, list(gpus.values()))
    answers = {
        uuid: _ask(nvml, uuid)
        for uuid in sorted({places[d.id].gpu for d in devices if d.id in places})
    }
    findings = {}
    for device in devices:
        place = places.get(device.id)
        if place is None:
            problem = f"the driver does not name {device.id} any more"
            findings[device.id] = Finding(problem=problem, lost=True)
        elif answers[place.gpu].problem or device.id not in gpus:
            findings[device.id] = _at(place, answers[place.gpu])
        else:
            problem = unusable(gpus[place.gpu], settings)
            answer = Finding(problem=problem) if problem else answers[place.gpu]
            findings[device.id] = _at(place, answer)
    return findings


def _at(place: Place, answer: Finding) -> Finding:
    """A lost GPU cannot tell its errors."""
    return Finding(
        place=None if answer.lost else place,
        recovery=answer.recovery,
        problem=answer.problem,
        lost=answer.lost,
    )


def _ask(nvml: Nvml, gpu: DeviceId) -> Finding:
    try:
        return Finding(recovery=nvml.probe(gpu))
    except NvmlAway:
        raise
    except NvmlFailed as failed:
        return Finding(problem=str(failed), lost=isinstance(failed, GpuLost))


def _mig_places(nvml: Nvml, gpus: Sequence[Gpu]) -> Mapping[DeviceId, Place]:
    """A GPU that fails now has no MIG devices that could be well."""
    places: dict[DeviceId, Place] = {}
    for gpu in gpus:
        try:
            parts = [part for cut in cut_gpus(nvml, [gpu]) for part in cut.parts]
        except NvmlAway:
            raise
        except NvmlFailed:
            continue
        places |= {
            part.uuid: Place(
                gpu=gpu.uuid,
                gpu_instance=part.gpu_instance,
                compute_instance=part.compute_instance,
            )
            for part in parts
        }
    return places
