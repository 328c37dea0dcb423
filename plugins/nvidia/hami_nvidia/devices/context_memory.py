"""What a CUDA context takes of a GPU before its program has asked for anything.

The driver sets it aside by itself: above all local memory for every thread that can be resident,
and some for itself. Nothing tells the figure before the context is there, but it follows from the
GPU's size. Reported of contexts that did nothing, and what comes out here:

===================================  =============  =========  =======
GPU                                  multiprocs     reported   here
===================================  =============  =========  =======
GeForce RTX 4060 Ti                  34             107 MiB    112 MiB
GeForce RTX 3090                     82             256 MiB    256 MiB
RTX 6000 Ada Generation              142            426 MiB    436 MiB
RTX PRO 6000 Blackwell               188            555 MiB    574 MiB
===================================  =============  =========  =======
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hami.domain.units import MIB, MemoryMiB
from hami_nvidia.nvml.interface import Capability, Gpu

UNKNOWN_MIB = MemoryMiB(256)
"""Of a GPU whose driver does not say how large it is: what one of 80 multiprocessors takes."""

_PER_THREAD = 2048
"""Bytes for each thread that can be resident."""
_CONSTANT_MIB = 10
_BLOCK_MIB = 2
"""The driver takes whole blocks of so much."""


@dataclass(frozen=True, slots=True)
class _Multiprocessor:
    cores: int
    threads: int


_LARGE, _SMALL = _Multiprocessor(128, 2048), _Multiprocessor(128, 1536)
_BY_CAPABILITY: Mapping[Capability, _Multiprocessor] = MappingProxyType(
    {
        Capability(5, 0): _LARGE,
        Capability(5, 2): _LARGE,
        Capability(6, 0): _Multiprocessor(64, 2048),
        Capability(6, 1): _LARGE,
        Capability(7, 0): _Multiprocessor(64, 2048),
        Capability(7, 5): _Multiprocessor(64, 1024),
        Capability(8, 0): _Multiprocessor(64, 2048),
        Capability(8, 6): _SMALL,
        Capability(8, 7): _SMALL,
        Capability(8, 9): _SMALL,
        Capability(9, 0): _LARGE,
        Capability(10, 0): _LARGE,
        Capability(10, 3): _LARGE,
        Capability(12, 0): _SMALL,
        Capability(12, 1): _SMALL,
    }
)
"""What the CUDA programming guide says of each; one that is not known is taken for a large one."""


def multiprocessors(gpu: Gpu) -> int | None:
    """None: the driver does not say."""
    if not gpu.cores or gpu.capability is None:
        return None
    return -(-gpu.cores // _kind(gpu.capability).cores)


def context_memory(gpu: Gpu) -> MemoryMiB:
    """What a context takes of it, about; ``UNKNOWN_MIB`` where the driver does not say its size."""
    count = multiprocessors(gpu)
    if count is None or gpu.capability is None:
        return UNKNOWN_MIB
    bytes_ = count * _kind(gpu.capability).threads * _PER_THREAD
    blocks = -(-(bytes_ + _CONSTANT_MIB * MIB) // (_BLOCK_MIB * MIB))
    return MemoryMiB(blocks * _BLOCK_MIB)


def _kind(capability: Capability) -> _Multiprocessor:
    return _BY_CAPABILITY.get(capability, _LARGE)
