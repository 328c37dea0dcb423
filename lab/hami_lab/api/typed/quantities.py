"""Quantities as kube-apiserver writes them back: ``3000`` becomes ``3k``, ``0.5Gi`` ``512Mi``.

The largest suffix of the same sort with which the number stays whole; a number below 1024 with a
binary suffix is written without it. What is in that form already keeps its spelling: ``1E3``,
``007``. All of it was measured on kube-apiserver 1.36.
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

_NUMBER = re.compile(r"([+-]?)(\d*)\.?(\d*)(?:([KMGTPE]i)|[eE]([+-]?\d+)|([numkMGTPE])|)", re.ASCII)
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_SMALLEST = -3
"""Thousandths: what is finer is rounded away from zero."""
LARGEST = 2**63 - 1
"""The most that a binary suffix can express."""
_LONGEST = 64
_LARGEST_EXPONENT = 1000
_MOST_DIGITS = 18
"""Longer numbers are never kept as they were spelled."""

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
        if self.style == "binary" and abs(self.value) >= 1024 and self.value.denominator == 1:
            return _binary(int(self.value))
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
    return _read(text)[0]


def canonical(text: Any) -> str:
    """The text that the API server stores for this one.

    Raises:
        NotAQuantity: as its name says.
    """
    amount, spelled = _read(text)
    return spelled or str(amount)


def _read(text: Any) -> tuple[Amount, str]:
    """The amount, and its spelling where that is kept."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        text = str(text)
    shown = text.strip(" ") if isinstance(text, str) else ""
    if shown.isascii() and shown.isdigit() and shown[0] != "0" and len(shown) <= _MOST_DIGITS:
        return Amount(Fraction(int(shown))), "" if shown.endswith("000") else shown
    match = _NUMBER.fullmatch(shown) if len(shown) <= _LONGEST else None
    if match is None or not shown:
        raise NotAQuantity(PROBLEM)
    sign, whole, part, binary, exponent, decimal = match.groups()
    power = _power(exponent, decimal)
    value = Fraction(Decimal(f"{whole or 0}.{part or 0}"))
    style: Style = "exponent" if exponent is not None else "decimal"
    if binary:
        value, style = value * 1024 ** (_BINARY.index(binary) + 1), "binary"
    else:
        value *= Fraction(10) ** power
    spelled = shown if _is_canonical(whole, part, value, power, binary=bool(binary)) else ""
    thousandths = value * 10**-_SMALLEST
    value = Fraction(-(-thousandths // 1), 10**-_SMALLEST)
    if style == "binary":
        value = min(value, Fraction(LARGEST))
    return Amount(-value if sign == "-" else value, style), spelled


def _power(exponent: str | None, suffix: str | None) -> int:
    if exponent is None:
        return 3 * (_DECIMAL.index(suffix) - _DECIMAL.index("")) if suffix else 0
    if abs(int(exponent)) > _LARGEST_EXPONENT:
        raise NotAQuantity(PROBLEM)
    return int(exponent)


def _is_canonical(whole: str, part: str, value: Fraction, power: int, *, binary: bool) -> bool:
    """Whether no larger suffix fits, so that a spelling like ``007`` or ``1.500`` stays."""
    digits = whole.lstrip("0")
    if not digits or len(digits) + len(part) > _MOST_DIGITS:
        return False
    if binary:
        return not part and value % 1000 != 0 and int(digits) % 1024 != 0 and value <= LARGEST
    scale = power - len(part)
    return scale % 3 == 0 and scale >= _SMALLEST and int(digits + part) % 1000 != 0


def _binary(value: int) -> str:
    for power in range(len(_BINARY), 0, -1):
        if value % 1024**power == 0:
            return f"{value // 1024**power}{_BINARY[power - 1]}"
    return str(value)


def _decimal(value: Fraction, *, exponent: bool) -> str:
    for power in _powers(exponent=exponent):
        scaled = value / Fraction(10) ** power
        if scaled.denominator == 1:
            if power == 0:
                return str(scaled)
            suffix = f"e{power}" if exponent else _DECIMAL[power // 3 + 3]
            return f"{scaled}{suffix}"
    raise AssertionError(f"{value} was rounded to thousandths when it was read")


def _powers(*, exponent: bool) -> Iterator[int]:
    largest = 3 * (_LARGEST_EXPONENT // 3) if exponent else 18
    return iter(range(largest, _SMALLEST - 1, -3))
