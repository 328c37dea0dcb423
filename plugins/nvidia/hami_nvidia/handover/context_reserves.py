"""What the limits page of a slice charges for a CUDA context on each of its GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hami.domain.slices import Slice
from hami.domain.units import DeviceId, MemoryMiB
from hami_nvidia.devices.context_memory import UNKNOWN_MIB, context_memory
from hami_nvidia.nvml.interface import Gpu, Nvml, NvmlFailed
from hami_nvidia.settings.node_settings import NodeSettings


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
