"""A slice made real, undone, and what belongs to nobody removed: the three hooks that act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hami.domain.devices import Grant
from hami.domain.errors import HamiError
from hami.domain.extra import NO_EXTRA
from hami.domain.slices import ContainerEdits, Slice
from hami.domain.units import DeviceId
from hami_nvidia.devices.discovery import discover
from hami_nvidia.handover import agent_cdi, device_list, kubelet_identity, library, lock_identity
from hami_nvidia.handover.hardware import Hardware
from hami_nvidia.handover.library import Library
from hami_nvidia.handover.record import EnforcedRecord, read_record, write_record
from hami_nvidia.mig.claims import claims_of
from hami_nvidia.mig.instances import InstanceIdentity
from hami_nvidia.schedule.mig_placement import MIG_INSTANCE, MIG_MODE, MigInstance
from hami_nvidia.settings.node_settings import NodeSettings

_MIG_DEVICE = "MIG-"


class NotEnforced(HamiError):
    """A slice that cannot be made real as the node is now."""


def enforce(slice: Slice, hardware: Hardware) -> ContainerEdits:
    """What the container gets. The same slice gets the same, as long as its devices live.

    Raises:
        HamiError: the container must not start; says what is missing and who must act.
    """
    if is_mig(slice):
        return _mig_edits(slice, hardware)
    if hardware.settings.mode == MIG_MODE:
        raise NotEnforced(
            f"its grants name whole GPUs, and this node is in mode {MIG_MODE}: its mode was "
            f"changed after the pod was scheduled; delete the pod, so that it is scheduled again"
        )
    return _shared_edits(slice, hardware)


def is_mig(slice: Slice) -> bool:
    """Its devices are MIG devices, made for it or by somebody else; hardware holds their limits."""
    return any(
        grant.extra.get(MIG_INSTANCE) is not None or grant.device_id.startswith(_MIG_DEVICE)
        for grant in slice.grants
    )


def static_edits(ids: Sequence[DeviceId], hardware: Hardware) -> ContainerEdits:
    """What a container gets with MIG devices that kubelet chose itself; without any limit."""
    settings = hardware.settings
    if settings.identity == "lock":
        return _locked_base(ids, hardware, ",".join(sorted(ids)))
    edits = kubelet_identity.device_edits(ids, hardware)
    if edits.cdi_devices:
        # The answer goes to kubelet as it is, and an image may ask NVIDIA's runtime for all GPUs.
        return replace(edits, env={**edits.env, device_list.VISIBLE_DEVICES: "void"})
    return edits


def release(slice: Slice, hardware: Hardware) -> None:
    """Undo :func:`enforce`; also of a slice that was released or never enforced.

    Raises:
        HamiError: something of it is still there.
    """
    record = read_record(slice.state_dir)
    claims = claims_of(slice)
    known = record.instances if len(record.instances) == len(claims) else (None,) * len(claims)
    for claim, identity in zip(claims, known, strict=True):
        hardware.instances.release(claim, identity)
    hardware.made.forget(slice)
    shared = record.shared
    if shared:
        try:
            lock_identity.remove_shared_directory(Path(shared), hardware.settings)
        except OSError as error:
            raise NotEnforced(
                f"{error.filename or shared} cannot be removed: {error.strerror}"
            ) from error


def reconcile(live: Sequence[Slice], hardware: Hardware) -> None:
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
    if _needs_specs(settings):
        steps.append(lambda: agent_cdi.write_specs((), hardware))
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
    return ""


def _shared_edits(slice: Slice, hardware: Hardware) -> ContainerEdits:
    """A part of each GPU, or all of it, held by the library."""
    settings = hardware.settings
    ids = [grant.device_id for grant in slice.grants]
    chosen = _library(slice, settings)
    if slice.identity == "lock":
        base = _locked_base(ids, hardware, slice.id)
        lock_identity.make_shared_directories(slice, settings)
        shared = str(lock_identity.shared_directory(slice, settings))
        _record(slice, EnforcedRecord(library=str(chosen.path), shared=shared))
        return lock_identity.with_limits(base, slice, settings, chosen)
    base = kubelet_identity.device_edits(ids, hardware)
    _record(slice, EnforcedRecord(library=str(chosen.path)))
    return kubelet_identity.with_limits(base, slice, hardware, chosen)


def _mig_edits(slice: Slice, hardware: Hardware) -> ContainerEdits:
    """MIG devices, with no limit but their own size."""
    made = _made(slice, hardware)
    ids = [each.mig_uuid for each in made] or [grant.device_id for grant in slice.grants]
    if slice.identity == "lock":
        base = _locked_base(ids, hardware, slice.id)
    else:
        base = kubelet_identity.device_edits(ids, hardware)
    return replace(base, pod_annotations=hardware.made.annotations(slice, made)) if made else base


def _made(slice: Slice, hardware: Hardware) -> Sequence[InstanceIdentity]:
    """The instances of its grants, made if they are not there; none for MIG devices as such."""
    claims = claims_of(slice)
    if not claims:
        return ()
    former = read_record(slice.state_dir).instances
    if hardware.settings.mode != MIG_MODE and not former:
        raise NotEnforced(
            f"its grants are MIG instances, and this node is not in mode {MIG_MODE}: its mode was "
            f"changed after the pod was scheduled; delete the pod, so that it is scheduled again"
        )
    if len(claims) != len(slice.grants):
        raise NotEnforced(
            f"container {slice.container} has {len(claims)} MIG reservations, requested "
            f"{len(slice.grants)} devices; delete the pod, so that it is scheduled again"
        )
    made = tuple(hardware.instances.ensure(claim) for claim in claims)
    _record(slice, EnforcedRecord(instances=made))
    return made


def _locked_base(ids: Sequence[DeviceId], hardware: Hardware, owner: str) -> ContainerEdits:
    if _needs_specs(hardware.settings):
        agent_cdi.write_specs(ids, hardware)
    return device_list.base_edits(ids, hardware.places, hardware.settings, owner)


def _needs_specs(settings: NodeSettings) -> bool:
    """Kubelet's answers name CDI devices of HAMi's kinds."""
    cdi = {"cdi-annotations", "cdi-cri"} & set(settings.list_strategies)
    return settings.identity == "lock" and bool(cdi)


def _library(slice: Slice, settings: NodeSettings) -> Library:
    """The version that this container had at its first start, else the newest."""
    newest = library.install(settings)
    former = read_record(slice.state_dir).library
    if former and Path(former).is_file():
        return replace(newest, path=Path(former))
    return newest


def _record(slice: Slice, record: EnforcedRecord) -> None:
    try:
        write_record(slice.state_dir, record)
    except OSError as error:
        raise NotEnforced(
            f"{slice.state_dir} cannot be written: {error.strerror}; free some space on the disk "
            f"of the slices"
        ) from error
