"""Dynamic MIG: instances made for a slice, found again after a restart, destroyed with it.

A GPU in mode ``mig`` is the agent's: it turns MIG on while the GPU is idle, and an instance that
no slice has is destroyed, unless a process uses it. An id of NVML says little, because the next
instance may get it: what is destroyed is checked by profile, placement and MIG UUID first.
Instances and profiles: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import msgspec

from hami.domain.errors import HamiError
from hami.domain.slices import Slice
from hami.domain.units import DeviceId
from hami_nvidia.mig.allowlist import profile_named
from hami_nvidia.mig.claims import Claims, InstanceClaim, claims_of
from hami_nvidia.nvml.interface import (
    Gpu,
    GpuInstance,
    InstanceProfile,
    InUse,
    Nvml,
    NvmlAway,
    NvmlFailed,
    Span,
)
from hami_nvidia.schedule.mig_placement import MigPlacement


class InstanceRefused(HamiError):
    """An instance that cannot be made or destroyed as the GPU is now; asking again may help."""


class InstanceIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that exists: what the scheduler chose, and what the driver calls it."""

    gpu: DeviceId
    profile: str
    placement: MigPlacement
    mig_uuid: DeviceId
    gpu_instance: int
    compute_instance: int


class Instances:
    """The MIG instances of this node. Any thread; one change of a GPU at a time."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._lock = Lock()
        self._locks: defaultdict[DeviceId, Lock] = defaultdict(Lock)
        self._claims: defaultdict[DeviceId, Claims] = defaultdict(Claims)
        self._absent: frozenset[InstanceClaim] = frozenset()

    def ensure(self, claim: InstanceClaim) -> InstanceIdentity:
        """The instance of a claim, made if it is not there; the same each time.

        What was made is taken back when it cannot be finished.

        Raises:
            InstanceRefused: somebody else has the place, or the GPU has no such instance.
            NvmlFailed: NVML cannot do it.
        """
        with self._changing(claim.gpu) as claims:
            if (other := claims.against(claim)) is not None:
                raise InstanceRefused(
                    f"{_told(claim)}: {other.instance.profile} at "
                    f"{other.instance.placement.start} still belongs to {other.owner.name}; it is "
                    f"free when that container has ended and was cleaned up"
                )
            held = claim in claims
            claims.add(claim)
            try:
                return self._ensure(claim, held=held)
            except BaseException:
                if not held:
                    claims.remove(claim)
                raise

    def release(self, claim: InstanceClaim, identity: InstanceIdentity | None) -> None:
        """Destroy the instance of a claim, unless another slice has it too; may be said twice.

        ``identity`` is what :meth:`ensure` said, None if that is not known.

        Raises:
            InstanceRefused: a process still uses it; ask again.
            NvmlFailed: NVML cannot do it.
        """
        with self._changing(claim.gpu) as claims:
            claims.remove(claim)
            placement = claim.instance.placement
            if claims.holders(placement.start, placement.size):
                return
            try:
                found = self._find(claim)
                if found is not None and self._is(found, claim.gpu, identity):
                    self._destroy_idle(claim.gpu, found, _told(claim))
            except (HamiError, OSError):
                # Nobody may have the place while what is in it is still used.
                claims.add(claim)
                raise

    def reconcile(self, gpus: Sequence[DeviceId], live: Sequence[Slice]) -> tuple[str, ...]:
        """Make these GPUs ready, keep what the live slices have, destroy what nobody has.

        A claim that no live slice has, twice in a row, is dropped: its slice was released while we
        looked. Returns what could not be done, for people; the next time it may.

        Raises:
            NvmlAway: there is no driver.
        """
        used = {grant.device_id for slice in live for grant in slice.grants}
        self._reclaim({claim for slice in live for claim in claims_of(slice)})
        reports: list[str] = []
        for gpu in gpus:
            try:
                with self._changing(gpu) as claims:
                    if self._is_on(gpu, reports, used=gpu in used):
                        self._destroy_unclaimed(gpu, claims, reports)
            except NvmlAway:
                raise
            except NvmlFailed as failed:
                reports.append(str(failed))
        return tuple(reports)

    def _reclaim(self, held: set[InstanceClaim]) -> None:
        absent: set[InstanceClaim] = set()
        with self._lock:
            known = set(self._claims)
        for gpu in known | {claim.gpu for claim in held}:
            with self._changing(gpu) as claims:
                for claim in held:
                    if claim.gpu == gpu:
                        claims.add(claim)
                absent |= claims.all - held
                for claim in absent & self._absent:
                    claims.remove(claim)
        self._absent = frozenset(absent)

    @contextmanager
    def _changing(self, gpu: DeviceId) -> Iterator[Claims]:
        with self._lock:
            lock, claims = self._locks[gpu], self._claims[gpu]
        with lock:
            yield claims

    def _ensure(self, claim: InstanceClaim, *, held: bool) -> InstanceIdentity:
        profile, span = self._chosen(claim)
        for found in self._nvml.instances(claim.gpu):
            if found.profile_id == profile.id and found.span == span:
                if held or self._may_take(claim.gpu, found):
                    return self._complete(claim, found)
                self._destroy_foreign(claim, found)
            elif _overlap(found.span, span):
                self._destroy_foreign(claim, found)
        made = self._nvml.create_instance(claim.gpu, profile, span)
        try:
            return self._complete(
                claim, GpuInstance(id=made, profile_id=profile.id, span=span, compute_ids=())
            )
        except NvmlFailed as failed:
            self._take_back(claim.gpu, made, failed)
            raise

    def _chosen(self, claim: InstanceClaim) -> tuple[InstanceProfile, Span]:
        span = _span(claim)
        kinds = self._nvml.instance_profiles(claim.gpu)
        if not kinds:
            raise InstanceRefused(
                f"{_told(claim)}: MIG is off on {claim.gpu}; the agent turns it on when the GPU is "
                f"idle"
            )
        profile = profile_named(claim.instance.profile, kinds)
        if profile is None or span not in profile.spans:
            raise InstanceRefused(
                f"{_told(claim)}: {claim.gpu} has no such instance; delete the pod, so that it is "
                f"scheduled anew"
            )
        return profile, span

    def _may_take(self, gpu: DeviceId, found: GpuInstance) -> bool:
        """An instance that nobody claims and that is as we make them, idle."""
        return len(found.compute_ids) <= 1 and not self._is_used(gpu, found)

    def _destroy_foreign(self, claim: InstanceClaim, found: GpuInstance) -> None:
        """What stands in the way of a claim, and is nobody's as far as we know."""
        holders = self._claims[claim.gpu].holders(found.span.start, found.span.size)
        other = next((holder for holder in holders if holder != claim), None)
        if other is not None:
            raise InstanceRefused(
                f"{_told(claim)}: GPU instance {found.id}, at {found.span.start}, is in the way "
                f"and belongs to {other.owner.name}; it is free when that container has ended"
            )
        self._destroy_idle(claim.gpu, found, _told(claim))

    def _complete(self, claim: InstanceClaim, found: GpuInstance) -> InstanceIdentity:
        """With its compute instance, which is missing when we were killed half-way."""
        compute = (
            found.compute_ids[0]
            if found.compute_ids
            else self._nvml.create_compute(claim.gpu, found.id)
        )
        for device in self._nvml.mig_devices(claim.gpu):
            if (device.gpu_instance, device.compute_instance) == (found.id, compute):
                return InstanceIdentity(
                    gpu=claim.gpu,
                    profile=claim.instance.profile,
                    placement=claim.instance.placement,
                    mig_uuid=device.uuid,
                    gpu_instance=found.id,
                    compute_instance=compute,
                )
        raise NvmlFailed(
            f"NVML: {claim.gpu}: GPU instance {found.id} was made and the driver names no MIG "
            f"device for it; look for errors of the driver in the kernel's log"
        )

    def _take_back(self, gpu: DeviceId, made: int, failed: NvmlFailed) -> None:
        try:
            for left in self._nvml.instances(gpu):
                if left.id == made:
                    self._destroy(gpu, left)
        except NvmlFailed as again:
            failed.add_note(f"what was made of it is still there: {again}")

    def _find(self, claim: InstanceClaim) -> GpuInstance | None:
        """What is at the claim's place and of its kind.

        A GPU that the driver does not count any more has none; one that is lost may.
        """
        listed = self._nvml.gpus()
        if all(isinstance(gpu, Gpu) and gpu.uuid != claim.gpu for gpu in listed):
            return None
        mode = self._nvml.mig_mode(claim.gpu)
        if mode is None or not mode.enabled:
            return None
        kinds = self._nvml.instance_profiles(claim.gpu)
        profile, span = profile_named(claim.instance.profile, kinds), _span(claim)
        for found in self._nvml.instances(claim.gpu):
            if profile is not None and found.profile_id == profile.id and found.span == span:
                return found
        return None

    def _is(self, found: GpuInstance, gpu: DeviceId, identity: InstanceIdentity | None) -> bool:
        """Whether this is what ``ensure`` made; without an identity the place must do."""
        if identity is None:
            return True
        uuids = {d.uuid for d in self._nvml.mig_devices(gpu) if d.gpu_instance == found.id}
        return found.id == identity.gpu_instance and (not uuids or identity.mig_uuid in uuids)

    def _is_on(self, gpu: DeviceId, reports: list[str], *, used: bool) -> bool:
        """Whether the GPU is in MIG mode, after turning it on if that hurts nobody."""
        mode = self._nvml.mig_mode(gpu)
        if mode is None:
            reports.append(f"{gpu} cannot be cut into MIG instances; keep it back (filterdevices)")
            return False
        if mode.enabled:
            if not mode.pending:
                reports.append(f"{gpu}: the next reset turns MIG off; undo it: nvidia-smi -mig 1")
            return True
        if used or self._is_busy(gpu):
            reports.append(f"{gpu} is in use, so MIG is turned on later")
            return False
        try:
            # Also one that is pending: what had the GPU open the last time may have ended.
            self._nvml.set_mig(gpu, enabled=True)
        except InUse as failed:
            reports.append(
                f"{failed}: something has it open that does not compute, as monitors do (DCGM); "
                f"MIG is turned on when that has ended, or by a reset"
            )
            return False
        mode = self._nvml.mig_mode(gpu)
        if mode is None or not mode.enabled:
            reports.append(f"{gpu} needs a reset to turn MIG on: nvidia-smi --gpu-reset, or reboot")
            return False
        return True

    def _destroy_unclaimed(self, gpu: DeviceId, claims: Claims, reports: list[str]) -> None:
        for found in self._nvml.instances(gpu):
            if claims.holders(found.span.start, found.span.size):
                continue
            try:
                self._destroy_idle(gpu, found, "cleaning up")
            except InstanceRefused as refused:
                reports.append(str(refused))

    def _destroy_idle(self, gpu: DeviceId, found: GpuInstance, why: str) -> None:
        if self._is_used(gpu, found):
            raise InstanceRefused(
                f"{why}: a process still uses GPU instance {found.id} of {gpu}, at "
                f"{found.span.start}; end it (nvidia-smi names it), or wait"
            )
        self._destroy(gpu, found)

    def _destroy(self, gpu: DeviceId, found: GpuInstance) -> None:
        for compute in found.compute_ids:
            self._nvml.destroy_compute(gpu, found.id, compute)
        self._nvml.destroy_instance(gpu, found.id)

    def _is_used(self, gpu: DeviceId, found: GpuInstance) -> bool:
        return any(
            self._is_busy(device.uuid)
            for device in self._nvml.mig_devices(gpu)
            if device.gpu_instance == found.id
        )

    def _is_busy(self, device: DeviceId) -> bool:
        """In doubt it is."""
        try:
            return self._nvml.busy(device)
        except NvmlAway:
            raise
        except NvmlFailed:
            return True


def _told(claim: InstanceClaim) -> str:
    return (
        f"MIG instance {claim.instance.profile} at {claim.instance.placement.start} of {claim.gpu} "
        f"for {claim.owner.name}"
    )


def _span(claim: InstanceClaim) -> Span:
    return Span(start=claim.instance.placement.start, size=claim.instance.placement.size)


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.start + other.size and other.start < one.start + one.size
