"""Who has which MIG instance: the slices that were given one and have not been released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hami.domain.slices import Slice
from hami.domain.units import DeviceId, PodUid
from hami_nvidia.schedule.mig_placement import MIG_INSTANCE, MigInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A slice, and its pod for messages and for what containers of one pod may share."""

    slice_id: str
    pod_uid: PodUid
    name: str
    """``namespace/pod, container``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceClaim:
    """An instance of a GPU, as the scheduler chose it for a slice."""

    gpu: DeviceId
    instance: MigInstance
    owner: Owner


def claims_of(slice: Slice) -> tuple[InstanceClaim, ...]:
    """One for each grant that is a MIG instance, in the order of the grants."""
    owner = Owner(
        slice_id=slice.id,
        pod_uid=slice.pod_uid,
        name=f"{slice.namespace}/{slice.pod}, container {slice.container}",
    )
    return tuple(
        InstanceClaim(gpu=grant.device_id, instance=instance, owner=owner)
        for grant in slice.grants
        if (instance := grant.extra.get(MIG_INSTANCE)) is not None
    )


class Claims:
    """The claims on one GPU."""

    def __init__(self) -> None:
        self._claims: set[InstanceClaim] = set()

    def __contains__(self, claim: InstanceClaim) -> bool:
        return claim in self._claims

    @property
    def all(self) -> frozenset[InstanceClaim]:
        return frozenset(self._claims)

    def add(self, claim: InstanceClaim) -> None:
        self._claims.add(claim)

    def remove(self, claim: InstanceClaim) -> None:
        self._claims.discard(claim)

    def holders(self, start: int, size: int) -> Sequence[InstanceClaim]:
        """Every claim on any of these memory slices."""
        return [
            claim
            for claim in self._claims
            if claim.instance.placement.start < start + size
            and start < claim.instance.placement.start + claim.instance.placement.size
        ]

    def against(self, claim: InstanceClaim) -> InstanceClaim | None:
        """A claim that forbids this one.

        The containers of one pod may have the very same instance one after the other, as an init
        container and a later one.
        """
        placement = claim.instance.placement
        for other in self.holders(placement.start, placement.size):
            same_pod = other.owner.pod_uid == claim.owner.pod_uid
            if not (same_pod and other.instance == claim.instance):
                return other
        return None
