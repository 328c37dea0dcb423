"""What kubelet knows of plugins' devices: which there are, which are healthy, who holds which.

Pure. Two books are kept, as in kubelet: ``held`` is what finished allocations gave to containers,
``in_use`` is what may not be given away. They differ while an Allocate is under way, and when
somebody makes kubelet work ``in_use`` out anew just then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hami.domain.units import PodUid

NO_NUMA_NODE = -1
"""kubelet's key for devices without a topology."""

Reusable = dict[str, set[str]]
"""Ids by resource that a later container of the same pod may take over."""


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A device as its plugin lists it."""

    id: str
    healthy: bool
    numa: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """What one container holds of one resource; ``answer`` is Allocate's, byte for byte."""

    ids: Mapping[int, tuple[str, ...]]
    answer: bytes

    @property
    def flat(self) -> frozenset[str]:
        return frozenset(id for ids in self.ids.values() for id in ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEntry:
    """:class:`Held` with its owner."""

    pod_uid: PodUid
    container: str
    resource: str
    held: Held


@dataclass(frozen=True, slots=True)
class NotAllocated:
    """Why a container gets no devices; kubelet's words."""

    text: str


@dataclass(slots=True)
class Ledger:
    """The books of one node. A resource is known from its first registration on."""

    healthy: dict[str, set[str]] = field(default_factory=dict)
    unhealthy: dict[str, set[str]] = field(default_factory=dict)
    in_use: dict[str, set[str]] = field(default_factory=dict)
    _numa: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    _held: dict[PodUid, dict[str, dict[str, Held]]] = field(default_factory=dict)

    # What plugins say.

    def knows(self, resource: str) -> bool:
        """Whether some plugin answers for it, or did."""
        return resource in self.healthy or resource in self.in_use

    def listed(self, resource: str, devices: Iterable[ListedDevice]) -> None:
        """A device list has come; it replaces the former one."""
        self.healthy[resource], self.unhealthy[resource] = set(), set()
        self._numa[resource] = {}
        for device in devices:
            (self.healthy if device.healthy else self.unhealthy)[resource].add(device.id)
            self._numa[resource][device.id] = device.numa

    def disconnected(self, resource: str) -> None:
        """Its plugin is gone: every device counts as unhealthy."""
        lost = self.healthy.get(resource, set())
        self.healthy[resource] = set()
        self.unhealthy.setdefault(resource, set()).update(lost)

    def remove(self, resource: str) -> None:
        """Its plugin has been gone for too long."""
        self.healthy.pop(resource, None)
        self.unhealthy.pop(resource, None)

    # Who holds what.

    def recovered(self, entries: Iterable[HeldEntry], resources: Iterable[str]) -> None:
        """What a checkpoint tells after a restart: nothing is healthy until plugins register."""
        for entry in entries:
            self.hold(entry)
        self.rebuild()
        for resource in resources:
            self.healthy[resource], self.unhealthy[resource] = set(), set()

    def hold(self, entry: HeldEntry) -> None:
        containers = self._held.setdefault(entry.pod_uid, {})
        containers.setdefault(entry.container, {})[entry.resource] = entry.held

    def by_numa(self, resource: str, ids: Iterable[str]) -> Mapping[int, tuple[str, ...]]:
        """Ids as the checkpoint groups them."""
        numa = self._numa.get(resource, {})
        grouped: dict[int, list[str]] = {}
        for id in sorted(ids):
            for node in numa.get(id) or (NO_NUMA_NODE,):
                grouped.setdefault(node, []).append(id)
        return {node: tuple(found) for node, found in grouped.items()}

    def held_by(self, pod_uid: PodUid, container: str) -> Mapping[str, Held]:
        """By resource."""
        return self._held.get(pod_uid, {}).get(container, {})

    def entries(self) -> Iterator[HeldEntry]:
        for pod_uid, containers in self._held.items():
            for container, resources in containers.items():
                for resource, held in resources.items():
                    yield HeldEntry(
                        pod_uid=pod_uid, container=container, resource=resource, held=held
                    )

    def drop_all_but(self, active: Collection[PodUid]) -> None:
        """Take back what pods hold that are no longer active; ``in_use`` only then made anew."""
        gone = [uid for uid in self._held if uid not in active]
        for uid in gone:
            del self._held[uid]
        if gone:
            self.rebuild()

    def rebuild(self) -> None:
        """``in_use`` from finished allocations alone: an Allocate under way is forgotten."""
        self.in_use = {}
        for entry in self.entries():
            self.in_use.setdefault(entry.resource, set()).update(entry.held.flat)

    # What a container takes over from earlier ones of its pod.

    def lend(self, pod_uid: PodUid, container: str, reusable: Reusable) -> None:
        """A plain init container: what it holds is free for later containers of its pod."""
        for resource, held in self.held_by(pod_uid, container).items():
            reusable.setdefault(resource, set()).update(held.flat)

    def keep(self, pod_uid: PodUid, container: str, reusable: Reusable) -> None:
        """A container that stays: what it holds is nobody else's."""
        for resource, held in self.held_by(pod_uid, container).items():
            reusable.setdefault(resource, set()).difference_update(held.flat)

    # Allocating.

    def still_needed(
        self, pod_uid: PodUid, container: str, resource: str, count: int
    ) -> int | NotAllocated:
        """How many more it needs: all, or none when it holds them already."""
        former = self.held_by(pod_uid, container).get(resource)
        if former is not None and len(former.flat) != count:
            return NotAllocated(
                f'pod "{pod_uid}" container "{container}" changed request for resource '
                f'"{resource}" from {len(former.flat)} to {count}'
            )
        healthy = self.healthy.get(resource)
        if healthy is None:
            return NotAllocated(f"cannot allocate unregistered device {resource}")
        if not healthy:
            return NotAllocated(
                f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            )
        if former is not None and not former.flat <= healthy:
            return NotAllocated(
                "previously allocated devices are no longer healthy; cannot allocate unhealthy "
                f"devices {resource}"
            )
        return 0 if former is not None else count

    def take(self, resource: str, chosen: set[str], source: Collection[str], count: int) -> bool:
        """Add ids of ``source`` to ``chosen`` until there are ``count``; whether there are."""
        for id in sorted(set(source) - chosen):
            if len(chosen) == count:
                break
            chosen.add(id)
            self.in_use.setdefault(resource, set()).add(id)
        return len(chosen) == count

    def available(self, resource: str) -> set[str]:
        return self.healthy.get(resource, set()) - self.in_use.get(resource, set())
