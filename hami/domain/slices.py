"""A grant made real on a node: what the node agent gives a vendor, and what the vendor returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from hami.domain.allocations import ContainerKind
from hami.domain.devices import Grant
from hami.domain.units import DeviceId, MemoryMiB, PodUid, VendorKey

SEEN_AT = "/run/hami"
"""A container finds one directory per vendor below this path, with ``limits`` and ``usage``."""

Identity = Literal["kubelet", "lock"]
"""How an agent finds the pod it serves: from kubelet's records, or by HAMi's node lock."""


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


def _no_reserve() -> Mapping[DeviceId, MemoryMiB]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The grants of one vendor to one container, under their own id.

    ``state_dir`` belongs to this slice alone, survives the agent's restart and is removed after
    ``hami_release``. With ``identity`` ``lock`` the edits go into the answer to kubelet's Allocate,
    in HAMi's format; otherwise into the slice's CDI spec. ``container_env`` are the literal values
    of the container's environment, ``pod_annotations`` the pod's, as they were last seen.
    """

    id: str
    vendor: VendorKey
    pod_uid: PodUid
    namespace: str
    pod: str
    container: str
    kind: ContainerKind
    grants: tuple[Grant, ...]
    state_dir: Path
    identity: Identity = "kubelet"
    container_env: Mapping[str, str] = field(default_factory=_nothing)
    pod_annotations: Mapping[str, str] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A bind mount; both paths are absolute."""

    host_path: str
    container_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device file; both paths are absolute; ``permissions`` are letters of ``rwm``."""

    host_path: str
    container_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """What only the vendor knows of a slice's limits page.

    ``policy``: when compute is limited. ``priority``: 0 goes before 1. ``context_reserve_mib``:
    memory that a context takes of a device, set aside before the context is made.
    """

    policy: Literal["default", "force", "disable"] = "default"
    priority: int = 1
    context_reserve_mib: Mapping[DeviceId, MemoryMiB] = field(default_factory=_no_reserve)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits:
    """What a container needs to use its slice and to stay inside it."""

    env: Mapping[str, str] = field(default_factory=_nothing)
    mounts: tuple[Mount, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=_nothing)
    pod_annotations: Mapping[str, str] = field(default_factory=_nothing)
    page: PageSettings = PageSettings()

    def cdi_device(self, kind: str) -> str:
        """The first CDI device of this kind (``<kind>=<device>``); empty if it names none."""
        for name in self.cdi_devices:
            found, _, device = name.partition("=")
            if found == kind:
                return device
        return ""


@dataclass(frozen=True, slots=True)
class HealthChange:
    """A device became healthy or unhealthy; ``cause`` is for people (``XID 79``)."""

    device_id: DeviceId
    healthy: bool
    cause: str = ""
