"""What a pod was given: the grants of each container."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec
from msgspec.structs import replace

from hami.domain.devices import Grant
from hami.domain.units import CorePercent, DeviceId


class ContainerKind(Enum):
    """When a container runs.

    A plain init container runs alone, or beside the sidecars that stand before it. A sidecar is an
    init container with ``restartPolicy: Always``; it runs as long as the apps do.
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
    """

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class ContainerAllocation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The grants of one container; ``grants`` is empty for a container that asks for no device.

    ``cores_limit``: how much of each of its devices it may have where others leave some idle; its
    grants say what it is guaranteed. 0: none is named, and its policy says.
    """

    name: str
    kind: ContainerKind
    grants: tuple[Grant, ...] = ()
    cores_limit: CorePercent = CorePercent(0)


class PodAllocation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Every container of a pod in spec order, init containers first, on one node."""

    node: str
    containers: tuple[ContainerAllocation, ...]

    @property
    def grants(self) -> tuple[Grant, ...]:
        return tuple(grant for container in self.containers for grant in container.grants)

    def after_init(self) -> PodAllocation:
        """What remains once every plain init container has ended: the sidecars and the apps."""
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

    What can be read stays charged. These devices take no new pod (``UnknownUsage``).
    """

    device_ids: tuple[DeviceId, ...]
    problem: str
