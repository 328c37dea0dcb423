"""Quantities as kube-apiserver writes them back: ``3000`` becomes ``3k``, ``0.5Gi`` ``512Mi``.

The rules of k8s.io/apimachinery/pkg/api/resource: the largest suffix of the same sort with which
the number stays whole; a number below 1024 with a binary suffix is written without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

PROBLEM = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)

_NUMBER = re.compile(
    r"([+-]?)(\d+\.?\d*|\.\d+)(?:([KMGTPE]i)|[eE]([+-]?\d+)|([numkMGTPE])|)", re.ASCII
)
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_SMALLEST = -9
"""Nano: what is finer is rounded away from zero."""
LARGEST = 2**63 - 1
_LONGEST = 64

Style = Literal["decimal", "binary", "exponent"]


class NotAQuantity(ValueError):
    """The text is no quantity; the API server answers 400 with :data:`PROBLEM`."""


@dataclass(frozen=True, slots=True)
class Amount:
    """An exact number and the sort of suffix it was written with."""

    value: Fraction
    style: Style = "decimal"

    def __str__(self) -> str:
        if self.value == 0:
            return "0"
        if self.style == "binary" and abs(self.value) >= 1024:
            return _binary(self.value)
        return _decimal(self.value, exponent=self.style == "exponent")

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.value + other.value, self.style if self.value else other.style)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.value - other.value, self.style if self.value else other.style)


ZERO = Amount(Fraction(0))


def parse(text: Any) -> Amount:
    """Read a quantity; JSON numbers count as their text.

    Raises:
        NotAQuantity: as its name says.
    """
    shown = str(text) if isinstance(text, int | float) and not isinstance(text, bool) else text
    match = _NUMBER.fullmatch(shown) if isinstance(shown, str) and len(shown) <= _LONGEST else None
    if match is None:
        raise NotAQuantity(PROBLEM)
    sign, digits, binary, exponent, decimal = match.groups()
    value = Fraction(Decimal(digits))
    style: Style = "decimal"
    if binary:
        value, style = value * 1024 ** (_BINARY.index(binary) + 1), "binary"
    elif exponent is not None:
        if abs(int(exponent)) > 99:
            raise NotAQuantity(PROBLEM)
        value, style = value * Fraction(10) ** int(exponent), "exponent"
    elif decimal:
        value *= Fraction(1000) ** (_DECIMAL.index(decimal) - _DECIMAL.index(""))
    nano = value * 10**-_SMALLEST
    value = Fraction(-(-nano // 1), 10**-_SMALLEST)
    value = min(value, Fraction(LARGEST))
    return Amount(-value if sign == "-" else value, style)


def canonical(text: Any) -> str:
    """The text that the API server stores for this one.

    Raises:
        NotAQuantity: as its name says.
    """
    return str(parse(text))


def canonical_entries(entries: Any) -> Any:
    """A resource list with every quantity rewritten; what is no map is left to the checks."""
    if not isinstance(entries, dict):
        return entries
    return {name: canonical(value) for name, value in entries.items()}


def _binary(value: Fraction) -> str:
    whole = -(-value // 1) if value > 0 else value // 1
    for power in range(len(_BINARY), 0, -1):
        if whole % 1024**power == 0:
            return f"{whole // 1024**power}{_BINARY[power - 1]}"
    return str(whole)


def _decimal(value: Fraction, *, exponent: bool) -> str:
    for power in _powers(exponent=exponent):
        scaled = value / Fraction(10) ** power
        if scaled.denominator == 1:
            if power == 0:
                return str(scaled)
            suffix = f"e{power}" if exponent else _DECIMAL[power // 3 + 3]
            return f"{scaled}{suffix}"
    raise AssertionError(f"{value} was rounded to nano when it was read")


def _powers(*, exponent: bool) -> Iterator[int]:
    return iter(range(99 if exponent else 18, _SMALLEST - 1, -3))
