"""Quantities of pods and quotas as whole numbers in one unit per resource, and back.

cpu in milli, memory and ephemeral storage in bytes, the vendors' device memory in MiB with the
rules of ``hami.domain.kubernetes.quantity``, ``nos.nebuly.com/gpu-memory`` in GB, everything else
as counts. Requests are rounded up and limits down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType

from hami.domain.kubernetes import quantity
from hami.domain.kubernetes.quantity import BadQuantity
from hami.policy.ports import VendorRegistry
from hami.policy.quota.elastic.model import GPU_MEMORY, MIB_PER_GB, Amounts

CPU = "cpu"
BYTES = frozenset({"memory", "ephemeral-storage"})
TYPED = "@"
"""``nvidia.com/gpumem@A100``: of devices whose model has this name in it."""

_LONG = 20
_BINARY = MappingProxyType({"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40})


def _none() -> Mapping[str, int]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What the vendors' resource names mean.

    ``memory``: MiB per unit of every memory resource. ``counts``: the resources that count
    devices. ``managed``: every name that vendors read in a pod, with those that are no amounts,
    such as percentages.
    """

    memory: Mapping[str, int] = field(default_factory=_none)
    counts: frozenset[str] = frozenset()
    managed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, vendors: VendorRegistry) -> Units:
        profiles = [vendors[key].profile for key in vendors]
        return cls(
            memory={
                p.resources.memory: max(p.memory_factor, 1) for p in profiles if p.resources.memory
            },
            counts=frozenset(p.resources.count for p in profiles),
            managed=frozenset(name for p in profiles for name in p.resources.all_names),
        )

    def limit(self, resource: str, text: str) -> int | BadQuantity:
        """What a quota says of a resource."""
        plain = resource.partition(TYPED)[0]
        if plain in self.memory:
            return quantity.limited_memory(text, self.memory[plain])
        if plain == GPU_MEMORY:
            read = quantity.parse(text)
            if isinstance(read, BadQuantity) or not read.binary:
                return quantity.whole_number(text)
            memory = quantity.limited_memory(text)
            return memory if isinstance(memory, BadQuantity) else memory // MIB_PER_GB
        if plain == CPU or plain in BYTES:
            return _scaled(text, 1000 if plain == CPU else 1, round_up=False)
        return quantity.whole_number(text)

    def request(self, resource: str, text: str) -> int | BadQuantity:
        """What a container asks of a resource that no vendor reads."""
        return _scaled(text, 1000 if resource == CPU else 1, round_up=True)

    def text(self, resource: str, amount: int) -> str:
        """An amount as the quantity that a quota would write; MiB that are no whole unit as Mi."""
        plain = resource.partition(TYPED)[0]
        if plain == CPU:
            return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
        factor = self.memory.get(plain, 1)
        return f"{amount}Mi" if amount % factor else str(amount // factor)

    def unit(self, resource: str) -> str:
        """The word behind a number in a message; empty for counts."""
        plain = resource.partition(TYPED)[0]
        if plain in self.memory:
            return "MiB"
        if plain == GPU_MEMORY:
            return "GB"
        if plain == CPU:
            return "milli"
        return "bytes" if plain in BYTES else ""

    def texts(self, amounts: Amounts) -> dict[str, str]:
        return {resource: self.text(resource, amount) for resource, amount in amounts.items()}


def _scaled(text: str, scale: int, *, round_up: bool) -> int | BadQuantity:
    """Nearly all are ``4``, ``500m`` or ``8Gi``, and exact fractions cost ten times as much."""
    if text[-1:] == "i":
        if (shift := _BINARY.get(text[-2:])) and (number := _plain(text[:-2])) is not None:
            return (number << shift) * scale
    elif text[-1:] == "m":
        if scale == 1000 and (number := _plain(text[:-1])) is not None:
            return number
    elif (number := _plain(text)) is not None:
        return number * scale
    read = quantity.parse(text)
    if isinstance(read, BadQuantity):
        return read
    value: Fraction = read.value * scale
    if value < 0:
        return BadQuantity(text, "is negative")
    return -(-value.numerator // value.denominator) if round_up else int(value)


def _plain(text: str) -> int | None:
    return int(text) if len(text) < _LONG and text.isdecimal() and text.isascii() else None
