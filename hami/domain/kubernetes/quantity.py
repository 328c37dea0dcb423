"""Kubernetes quantities, read the way a device resource means them.

kube-apiserver rewrites what people write: ``3000`` comes back as ``3k``, ``1000000`` as ``1M``
(https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/). So a decimal
suffix says nothing about bytes: it counts the resource's own unit. Only a binary suffix (``Ki``
``Mi`` ``Gi`` ...) proves that the author meant bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

from hami.domain.errors import shortened
from hami.domain.units import MAX_DEVICE_MEMORY, MIB, MemoryMiB

_NUMBER = re.compile(
    r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,2}))?", re.ASCII
)
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = MappingProxyType(
    {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
)
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact number; ``binary`` when its suffix proves that the author meant bytes."""

    value: Fraction
    binary: bool = False


@dataclass(frozen=True, slots=True)
class BadQuantity:
    """Why a text is no usable quantity, and how to mend it where that can be told."""

    text: str
    problem: str

    def __str__(self) -> str:
        return f"{shortened(self.text, _LONGEST)!r} {self.problem}"


def parse(text: str) -> Quantity | BadQuantity:
    """Read a quantity exactly, in Kubernetes' grammar. Never raises."""
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return BadQuantity(text, "is not a quantity")
    sign, digits, binary, decimal, exponent = match.groups()
    value = Fraction(Decimal(digits))
    if binary:
        value *= 1024 ** (_BINARY.index(binary) + 1)
    elif decimal or exponent:
        value *= Fraction(10) ** (_DECIMAL[decimal] if decimal else int(exponent))
    return Quantity(-value if sign == "-" else value, binary=bool(binary))


def same(one: str | None, other: str | None) -> bool:
    """Whether both texts are the same amount; the API server writes ``3000`` as ``3k``."""
    if one is None or other is None:
        return one is other
    left, right = parse(one), parse(other)
    if isinstance(left, BadQuantity) or isinstance(right, BadQuantity):
        return one == other
    return left.value == right.value


def _plain(text: str) -> int | None:
    """A text of digits, perhaps with ``k``.

    Nearly all quantities are of this form, and exact fractions cost ten times as much.
    """
    digits = text.removesuffix("k")
    if not (digits.isdecimal() and text.isascii() and len(text) <= _LONGEST):
        return None
    return int(digits) * (1 if digits == text else 1000)


def whole_number(text: str) -> int | BadQuantity:
    """A count, percentage or share: a whole number, at least 0."""
    if (number := _plain(text)) is not None:
        return number
    quantity = parse(text)
    if isinstance(quantity, BadQuantity):
        return quantity
    return _whole(text, quantity.value)


def requested_memory(text: str, factor: int = 1) -> MemoryMiB | BadQuantity:
    """What a container asks for on one device, in MiB; bytes are rounded up.

    ``factor`` is the MiB per unit of the resource, for numbers without a binary suffix.
    """
    memory = _memory(text, factor, round_up=True)
    if isinstance(memory, int) and memory > MAX_DEVICE_MEMORY:
        return BadQuantity(
            text, f"is {memory} MiB, more than any device has{_did_you_mean(text, factor)}"
        )
    return memory


def limited_memory(text: str, factor: int = 1) -> MemoryMiB | BadQuantity:
    """A quota's limit in MiB; bytes are rounded down."""
    return _memory(text, factor, round_up=False)


def _memory(text: str, factor: int, *, round_up: bool) -> MemoryMiB | BadQuantity:
    if (plain := _plain(text)) is not None:
        return MemoryMiB(plain * max(factor, 1))
    quantity = parse(text)
    if isinstance(quantity, BadQuantity):
        return quantity
    value = quantity.value
    if quantity.binary:
        if value < 0:
            return BadQuantity(text, "is negative")
        return MemoryMiB(-(-value // MIB) if round_up else value // MIB)
    number = _whole(text, value)
    return number if isinstance(number, BadQuantity) else MemoryMiB(number * max(factor, 1))


def _whole(text: str, value: Fraction) -> int | BadQuantity:
    if value < 0:
        return BadQuantity(text, "is negative")
    if value.denominator != 1:
        return BadQuantity(text, "is not a whole number")
    return int(value)


def _did_you_mean(text: str, factor: int) -> str:
    """A hint for a number like ``500M``: what it counts, and how to write that many bytes."""
    unit = "MiB" if factor <= 1 else f"units of {factor} MiB"
    quantity = parse(text)
    if isinstance(quantity, BadQuantity) or quantity.binary:
        return ""
    if text.endswith(("M", "G", "T", "P", "E")):
        counted, remedy, bytes_ = text, f"{text}i", "bytes"
    else:
        counted, remedy, bytes_ = "it", f"{quantity.value // MIB}Mi", "that many bytes"
    # A number that is absurd in bytes too is no slip of the unit; 0Mi would be no request.
    if not isinstance(requested_memory(remedy), int) or quantity.value < MIB:
        return ""
    return f" ({counted} counts {unit}; write {remedy} for {bytes_})"
