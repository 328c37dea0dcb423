"""What keeps a container inside its grants: variables, the page's settings, context reserves.

HAMi's library and other programs in a container read the variables. The limits page says the same
to our library, and can change while the container runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from hami.domain.slices import PageSettings, Slice
from hami.domain.units import DeviceId, MemoryMiB
from hami_nvidia.devices.context_memory import UNKNOWN_MIB, context_memory
from hami_nvidia.nvml.interface import Gpu, Nvml, NvmlFailed
from hami_nvidia.settings.node_settings import NodeSettings

CORE_POLICY = "GPU_CORE_UTILIZATION_POLICY"
DISABLE_CONTROL = "CUDA_DISABLE_CONTROL"
TASK_PRIORITY = "CUDA_TASK_PRIORITY"

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
"""Go's words, for HAMi reads them so."""

_POLICIES: Mapping[str, Literal["default", "force", "disable"]] = MappingProxyType(
    {"default": "default", "force": "force", "disable": "disable"}
)
_HIGHEST_NUMBER = 2**31 - 1


def limits_environment(slice: Slice, settings: NodeSettings) -> dict[str, str]:
    """HAMi's variables. Memory counts the grants in their order; compute is the first one's."""
    env = {
        f"CUDA_DEVICE_MEMORY_LIMIT_{position}": f"{grant.memory_mib}m"
        for position, grant in enumerate(slice.grants)
    }
    env["CUDA_DEVICE_SM_LIMIT"] = str(slice.grants[0].cores)
    if settings.memory_scaling > 1:
        env["CUDA_OVERSUBSCRIBE"] = "true"
    if settings.log_level:
        env["LIBCUDA_LOG_LEVEL"] = settings.log_level
    if settings.disable_core_limit:
        env[CORE_POLICY] = "disable"
    return env


def each_compute_limit(slice: Slice) -> dict[str, str]:
    """The compute of every grant by its number: HAMi's library reads it, its plugin omits it."""
    return {
        f"CUDA_DEVICE_SM_LIMIT_{position}": str(grant.cores)
        for position, grant in enumerate(slice.grants)
    }


def control_disabled(slice: Slice) -> bool:
    """The pod's author asked for a container without limits, as HAMi allows."""
    return slice.container_env.get(DISABLE_CONTROL) in _TRUE


def page_settings(
    slice: Slice, settings: NodeSettings, reserves: Mapping[DeviceId, MemoryMiB]
) -> PageSettings:
    """When compute is limited, who goes first, and what a context is charged (``reserves``).

    The node's word counts before the configuration's, that before the container's own.
    """
    policy = _POLICIES.get(settings.core_policy, "default")
    if policy == "default":
        policy = _POLICIES.get(slice.container_env.get(CORE_POLICY, ""), "default")
    if settings.disable_core_limit:
        policy = "disable"
    return PageSettings(policy=policy, priority=_priority(slice), context_reserve_mib=reserves)


def _priority(slice: Slice) -> int:
    """0 goes before 1, which is what a container without the variable has."""
    text = slice.container_env.get(TASK_PRIORITY, "")
    return min(int(text), _HIGHEST_NUMBER) if text.isascii() and text.isdigit() else 1


# What a CUDA context takes of each GPU.


class ContextReserves:
    """Remembers each GPU's figure, which never changes. Any thread: at worst it asks twice."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._known: dict[DeviceId, MemoryMiB] = {}

    def of(self, ids: Sequence[DeviceId], settings: NodeSettings) -> Mapping[DeviceId, MemoryMiB]:
        """The operator's figure for all of them, else what follows from the size of each."""
        if settings.context_reserve_mib is not None:
            return dict.fromkeys(ids, MemoryMiB(settings.context_reserve_mib))
        if not all(id in self._known for id in ids):
            self._ask()
        return {id: self._known.get(id, UNKNOWN_MIB) for id in ids}

    def _ask(self) -> None:
        """A GPU that does not answer now is asked again by the next slice."""
        try:
            gpus = [gpu for gpu in self._nvml.gpus() if isinstance(gpu, Gpu)]
        except NvmlFailed:
            return
        self._known |= {gpu.uuid: context_memory(gpu) for gpu in gpus if gpu.cores is not None}


def too_small(slice: Slice, reserves: Mapping[DeviceId, MemoryMiB]) -> str:
    """What a person should know of grants that have no room for a context; empty: they have."""
    granted: dict[DeviceId, int] = {}
    for grant in slice.grants:
        granted[grant.device_id] = granted.get(grant.device_id, 0) + grant.memory_mib
    small = [
        f"{memory} MiB of {id}, where a CUDA context takes about {reserves[id]}"
        for id, memory in granted.items()
        if 0 < memory < reserves[id]
    ]
    if not small:
        return ""
    return (
        f"pod {slice.namespace}/{slice.pod}, container {slice.container}: it has "
        f"{'; '.join(small)} MiB: no program in it can use the GPU; give it more, or set "
        f"--context-reserve-mib if contexts are smaller here"
    )
