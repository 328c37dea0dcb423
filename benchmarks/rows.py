"""One measured figure: its value, its limit, and the times behind it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A figure; ``value`` is in ``unit``; ``most`` or ``least`` is its limit, None without one.

    ``seen`` has the times behind a ratio: they depend on the machine, ratios much less.
    """

    what: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None
    seen: str = ""

    @property
    def verdict(self) -> str:
        """``met``, ``missed``, or empty without a limit."""
        if self.most is not None:
            return "met" if self.value <= self.most else "missed"
        if self.least is not None:
            return "met" if self.value >= self.least else "missed"
        return ""

    @property
    def limit(self) -> str:
        if self.most is not None:
            return f"<= {self.most:g} {self.unit}"
        return "" if self.least is None else f">= {self.least:g} {self.unit}"


def percentile(seconds: Sequence[float], share: float) -> float:
    """The value that this share of the times does not exceed."""
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
