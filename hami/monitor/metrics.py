"""What the monitor process counts of itself: its ticks, and the vendors that did not answer."""

from __future__ import annotations

from collections.abc import Iterable

from hami.domain.units import VendorKey
from hami.http.build_info import build_info
from hami.http.metrics import CounterFamily, HistogramFamily

TICK_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""In seconds. A tick of 100 slices shall take 10 ms; one comes every half second."""


class MonitorMetrics:
    """Belongs to the loop."""

    def __init__(self, vendors: Iterable[VendorKey]) -> None:
        self._ticks = HistogramFamily(
            "hami_monitor_tick_duration_seconds",
            "Time of one round of measuring, its feedback included",
            TICK_BUCKETS,
        )
        self._failures = CounterFamily(
            "hami_monitor_measure_failures_total",
            "Rounds in which a vendor's figures could not be had",
            "vendor",
            vendors,
        )

    def ticked(self, seconds: float) -> None:
        self._ticks.observe(seconds)

    def measure_failed(self, vendor: VendorKey) -> None:
        self._failures.add(vendor)

    def text(self) -> str:
        """In Prometheus' text format, with what build answers."""
        lines = [*self._ticks.lines(), *self._failures.lines(), build_info()]
        return "".join(lines)
