"""What a slice had is undone, and what belongs to no slice is removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hami.domain.devices import Grant
from hami.domain.errors import HamiError
from hami.domain.extra import NO_EXTRA
from hami.domain.slices import Slice
from hami.domain.units import DeviceId
from hami_nvidia.devices.discovery import discover
from hami_nvidia.handover import library
from hami_nvidia.handover.enforce import Answer, NotEnforced, read_record
from hami_nvidia.handover.hardware import Hardware
from hami_nvidia.mig.claims import claims_of
from hami_nvidia.schedule.mig_placement import MIG_INSTANCE, MIG_MODE, MigInstance


def release(slice: Slice, hardware: Hardware) -> Path | None:
    """Undo ``enforce``; also of a slice that was released or never enforced.

    Returns: a directory that HAMi's library shared with the container, for whoever made it.

    Raises:
        HamiError: something of it is still there.
    """
    record = read_record(slice.state_dir)
    claims = claims_of(slice)
    known = record.instances if len(record.instances) == len(claims) else (None,) * len(claims)
    for claim, identity in zip(claims, known, strict=True):
        hardware.instances.release(claim, identity)
    hardware.made.forget(slice)
    return Path(record.shared) if record.shared else None


def reconcile(live: Sequence[Slice], hardware: Hardware, answer: Answer) -> None:
    """At the agent's start and again and again: library and CDI specs there, leftovers away.

    Raises:
        HamiError: what went wrong, after everything was tried.
    """
    settings = hardware.settings
    used = {Path(path) for slice in live if (path := read_record(slice.state_dir).library)}
    whole = [_whole(slice) for slice in live]
    steps: list[Callable[[], object]] = []
    if settings.mode != MIG_MODE:
        steps.append(lambda: library.install(settings))
        steps.append(lambda: library.remove_unused(settings, used))
    steps.append(lambda: answer.keep(hardware))
    if settings.mode == MIG_MODE or any(map(claims_of, whole)):
        steps.append(lambda: _reconcile_instances(whole, hardware))
    problems = [problem for step in steps if (problem := _attempted(step))]
    if problems:
        raise NotEnforced("; ".join(problems))


def _whole(slice: Slice) -> Slice:
    """One whose grants nobody can read any more still has what our own record says it has."""
    if slice.grants:
        return slice
    made = read_record(slice.state_dir).instances
    return replace(
        slice,
        grants=tuple(
            Grant(
                device_id=each.gpu,
                vendor=slice.vendor,
                extra=NO_EXTRA.with_(
                    MIG_INSTANCE, MigInstance(profile=each.profile, placement=each.placement)
                ),
            )
            for each in made
        ),
    )


def _reconcile_instances(live: Sequence[Slice], hardware: Hardware) -> None:
    """GPUs of the mode are ours to cut; of others nothing is touched, but claims are known."""
    gpus: list[DeviceId] = []
    if hardware.settings.mode == MIG_MODE:
        offered = discover(hardware.nvml, hardware.settings).devices
        gpus = [device.id for device in offered if device.mode == MIG_MODE]
    hardware.made.keep({slice.pod_uid for slice in live})
    for slice in live:
        if made := read_record(slice.state_dir).instances:
            hardware.made.remember(slice, made)
    for text in hardware.instances.reconcile(gpus, live):
        hardware.report(text)


def _attempted(step: Callable[[], object]) -> str:
    try:
        step()
    except HamiError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}; the agent must be able to write there"
    return ""
