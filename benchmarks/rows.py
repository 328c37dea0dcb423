"""What a measurement says: a figure, what it may be at most, and what was seen."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """``value`` is in ``unit``; ``most`` is its limit, None where there is none.

    ``seen`` has the times behind a ratio: they depend on the machine, ratios much less.
    """

    what: str
    value: float
    unit: str
    most: float | None = None
    seen: str = ""

    @property
    def verdict(self) -> str:
        """``met``, ``missed``, or nothing without a limit."""
        if self.most is None:
            return ""
        return "met" if self.value <= self.most else "missed"

    @property
    def limit(self) -> str:
        return "" if self.most is None else f"<= {self.most:g} {self.unit}"


def percentile(seconds: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(seconds)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def p50(seconds: Sequence[float]) -> float:
    return percentile(seconds, 0.5)


def p99(seconds: Sequence[float]) -> float:
    return percentile(seconds, 0.99)


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def ratio(one: float, other: float) -> float:
    return round(one / other, 2)
