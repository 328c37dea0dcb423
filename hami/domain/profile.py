"""A vendor described by data: names, units, defaults, annotation keys, rules.

Everything that differs between vendors and needs no code is here, so a vendor can be a YAML file
(``hami.policy.profile.profile_vendor.ProfileVendor``). The fields are what HAMi's backends need:
the resource names and units of its device configuration, the keys of its annotation table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Literal

from hami.domain.units import CorePercent, MemoryMiB, VendorKey

SERVICE_ACCOUNT_AT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts a pod's account into each of its containers, if nobody forbids it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceNames:
    """The vendor's extended resources; an empty name means that the vendor has no such resource."""

    count: str
    memory: str = ""
    memory_percentage: str = ""
    cores: str = ""
    priority: str = ""

    @property
    def quota_names(self) -> tuple[str, ...]:
        """The names a ResourceQuota can limit: count, memory, cores."""
        return tuple(name for name in (self.count, self.memory, self.cores) if name)

    @property
    def all_names(self) -> tuple[str, ...]:
        names = (self.count, self.memory, self.memory_percentage, self.cores, self.priority)
        return tuple(name for name in names if name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnnotations:
    """Keys on the node; ``handshake`` is empty for a vendor that uses none.

    ``also_written`` are the keys that ``hami_node_annotations`` writes beside ``register``.
    ``lock`` is the vendor's own lock, for a profile whose ``lock`` is ``private``. Its value is a
    bare time. The vendor's device plugin removes it, and it expires after two minutes.
    """

    register: str
    handshake: str = ""
    lock: str = ""
    also_written: tuple[str, ...] = ()
    cordon: str = "hami.io/device-cordon"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAnnotations:
    """Keys on the pod: what we write, and what the pod's author may ask for.

    ``use_*`` and ``nouse_*`` may have several spellings; all that are set must hold. An empty key
    or tuple means that this vendor offers no such choice. ``also_written`` are the keys that
    ``hami_allocation_annotations`` writes: like the two device lists, a pod's author may not set
    them.
    """

    to_allocate: str = ""
    allocated: str
    also_written: tuple[str, ...] = ()
    use_type: tuple[str, ...] = ()
    nouse_type: tuple[str, ...] = ()
    use_uuid: tuple[str, ...] = ()
    nouse_uuid: tuple[str, ...] = ()
    numa_bind: str = ""
    mode: str = ""


class Column(Enum):
    """A check of the vectorised prefilter, by which it may refuse a device."""

    HEALTH = "health"
    CORDON = "cordon"
    SELECTION = "selection"
    """The model, mode and uuid that the pod's annotations demand."""
    SLOTS = "slots"
    MEMORY = "memory"
    CORES = "cores"


ALL_COLUMNS = frozenset(Column)
HEALTH_AND_CORDON = frozenset({Column.HEALTH, Column.CORDON})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRules:
    """How devices in one mode are counted.

    ``prefilter`` names the columns by which the vectorised pass may refuse a device. None means all
    columns for a vendor on the default loop; for a vendor that overrides charge, accept, choose or
    fit it means health and cordon only. ``several_slices_per_device``: a request for 2 may take one
    device twice. ``placements``: the vendor's ``hami_charge`` proves that there is room (MIG), so
    the core does not compare memory and cores: seven slices of 15 % are 105 % and fit.
    """

    prefilter: frozenset[Column] | None = None
    several_slices_per_device: bool = False
    placements: bool = False


def _no_variables() -> Mapping[str, str]:
    return MappingProxyType({})


def _no_modes() -> Mapping[str, ModeRules]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorProfile:
    """One vendor as data; a plugin may carry several.

    ``memory_factor``: MiB per unit of the memory resource, in requests and in quotas.
    ``default_count``: the count that admission adds when only memory or cores are asked; 0: none.
    ``default_memory_mib``: MiB when neither memory nor percentage is asked; 0: the whole device.
    ``cores_excess``: cores above 100 are clamped to 100, or the request is refused.
    ``whole_device``: every request takes whole, unused devices, whatever it asks for. ``liveness``:
    ``capacity`` (allocatable of the count resource > 0), ``handshake``, ``always``. ``type_match``:
    a model named by ``use_type`` matches as a substring, as HAMi does it, or exactly; case never
    counts. ``hidden_env``: variables that make a runtime show no device; a slice's CDI spec then
    adds its own. ``guarded_paths``: paths in a container that hold its limits, or from which a
    runtime takes devices. A pod with slices may mount no volume at, above or below one. None may
    lie at, above or below :data:`SERVICE_ACCOUNT_AT`.
    """

    key: VendorKey
    resources: ResourceNames
    node_annotations: NodeAnnotations
    pod_annotations: PodAnnotations
    register_codec: Literal["json", "csv"] = "json"
    request_source: Literal["limits-then-requests", "limits"] = "limits-then-requests"
    memory_factor: int = 1
    default_count: int = 0
    default_memory_mib: MemoryMiB = MemoryMiB(0)
    default_cores: CorePercent = CorePercent(0)
    max_count: int = 1024
    cores_excess: Literal["clamp", "refuse"] = "clamp"
    whole_device: bool = False
    type_match: Literal["substring", "exact"] = "substring"
    liveness: Literal["capacity", "handshake", "always"] = "always"
    lock: Literal["mutex", "private", "none"] = "mutex"
    runtime_class: str = ""
    hidden_env: Mapping[str, str] = field(default_factory=_no_variables)
    guarded_paths: tuple[str, ...] = ()
    modes: Mapping[str, ModeRules] = field(default_factory=_no_modes)

    def rules(self, mode: str) -> ModeRules:
        """The rules for devices in ``mode``; a mode not named follows the defaults."""
        return self.modes.get(mode, _DEFAULT_RULES)


_DEFAULT_RULES = ModeRules()
