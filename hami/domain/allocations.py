"""What a pod was given: grants per container, and what they use at the worst moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from hami.domain.devices import Grant
from hami.domain.units import DeviceId


class ContainerKind(Enum):
    """When a container runs.

    A plain init container runs alone (with the sidecars before it); a sidecar is an init
    container with ``restartPolicy: Always`` and runs as long as the apps do.
    """

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAllocation:
    """The grants of one container; ``grants`` is empty for one that asks for no device."""

    name: str
    kind: ContainerKind
    grants: tuple[Grant, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAllocation:
    """Every container of a pod in spec order, init containers first, on one node."""

    node: str
    containers: tuple[ContainerAllocation, ...]

    @property
    def grants(self) -> tuple[Grant, ...]:
        return tuple(grant for container in self.containers for grant in container.grants)

    def after_init(self) -> PodAllocation:
        """What remains once every plain init container has ended: sidecars and apps."""
        return replace(
            self,
            containers=tuple(
                replace(c, grants=()) if c.kind is ContainerKind.INIT else c
                for c in self.containers
            ),
        )


@dataclass(frozen=True, slots=True)
class Corrupt:
    """A vendor's own annotations contradict the allocation on these devices.

    What can be read stays charged, and these devices take no new pod (``UnknownUsage``).
    """

    device_ids: tuple[DeviceId, ...]
    problem: str
