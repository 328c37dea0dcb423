"""The slices that live on this node, of one vendor: what the disk says, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hami.domain.allocations import ContainerAllocation
from hami.domain.devices import Grant
from hami.domain.slices import Identity, Slice
from hami.domain.units import PodUid, VendorKey
from hami.node.disk.record import RecordedGrant, SliceRecord
from hami.node.pod.granting import Granted
from hami.node.slice.container import literal_env, recorded_pod
from hami.node.slice.occupancy import PodSlices


@dataclass(frozen=True, slots=True)
class LiveSlice:
    """A slice and what it was made from."""

    record: SliceRecord
    granted: Granted

    @property
    def id(self) -> str:
        return self.record.slice_id

    @property
    def pod_uid(self) -> PodUid:
        return self.record.pod.uid

    @property
    def grants(self) -> tuple[Grant, ...]:
        return self.granted.grants


class LiveSlices:
    """By id and by pod. Owned by the agent's loop."""

    def __init__(self) -> None:
        self._by_id: dict[str, LiveSlice] = {}
        self._by_pod: dict[PodUid, dict[str, LiveSlice]] = {}

    def __iter__(self) -> Iterator[LiveSlice]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, slice_id: str) -> LiveSlice | None:
        return self._by_id.get(slice_id)

    def put(self, live: LiveSlice) -> None:
        """New, or in the place of one with this id."""
        self._by_id[live.id] = live
        self._by_pod.setdefault(live.pod_uid, {})[live.id] = live

    def drop(self, slice_id: str) -> None:
        live = self._by_id.pop(slice_id, None)
        if live is None:
            return
        of_pod = self._by_pod[live.pod_uid]
        del of_pod[slice_id]
        if not of_pod:
            del self._by_pod[live.pod_uid]

    def of_pod(self, uid: PodUid) -> list[LiveSlice]:
        return list(self._by_pod.get(uid, {}).values())

    @property
    def pods(self) -> list[PodUid]:
        return list(self._by_pod)

    def with_(self, granted: Granted) -> PodSlices:
        """What the pod has, and this container beside it."""
        return _together([*(live.granted for live in self.of_pod(granted.pod.uid)), granted])

    def others(self, uid: PodUid) -> list[PodSlices]:
        """What every other pod has."""
        return [
            _together([live.granted for live in slices.values()])
            for pod, slices in self._by_pod.items()
            if pod != uid
        ]


def _together(granted: list[Granted]) -> PodSlices:
    """The containers in spec order, each with its own vendor's grants, the newest granted last."""
    newest = granted[-1]
    held = {one.container: one.grants for one in granted}
    containers: list[ContainerAllocation] = [
        replace(container, grants=held[container.name])
        for container in newest.allocation.containers
        if container.name in held
    ]
    return PodSlices(uid=newest.pod.uid, name=newest.pod.full_name, containers=tuple(containers))


def as_slice(live: LiveSlice, state_dir: Path) -> Slice:
    """As the vendor's hooks know it."""
    pod = live.record.pod
    return Slice(
        id=live.id,
        vendor=live.record.vendor,
        pod_uid=pod.uid,
        namespace=pod.namespace,
        pod=pod.name,
        container=live.record.container,
        kind=live.granted.kind,
        grants=live.grants,
        state_dir=state_dir,
        identity=live.record.identity,
    )


def to_enforce(record: SliceRecord, granted: Granted, state_dir: Path) -> Slice:
    """The same before a start, with what the pod itself says of its container."""
    pod = granted.pod
    container = next(c for c, _ in pod.each_container() if c.name == granted.container)
    return replace(
        as_slice(LiveSlice(record, granted), state_dir),
        container_env=literal_env(container),
        pod_annotations=pod.annotations,
    )


def new_record(
    slice_id: str,
    vendor: VendorKey,
    granted: Granted,
    *,
    at: float,
    identity: Identity = "kubelet",
) -> SliceRecord:
    """Of a slice that is about to be made; ``at`` in Unix seconds."""
    return SliceRecord(
        slice_id=slice_id,
        vendor=vendor,
        pod=recorded_pod(granted.pod),
        container=granted.container,
        generation=granted.generation,
        state="preparing",
        created_at=at,
        grants=recorded_grants(granted),
        identity=identity,
    )


def recorded_grants(granted: Granted) -> tuple[RecordedGrant, ...]:
    return tuple(
        RecordedGrant(device_id=g.device_id, memory_mib=g.memory_mib, cores=g.cores)
        for g in granted.grants
    )
