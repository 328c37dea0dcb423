"""Counters, histograms and gauges, and their text as Prometheus reads it.

(https://prometheus.io/docs/instrumenting/exposition_formats/) prometheus_client is the scheduler's:
it keeps a lock and an object per member, and would cost every process of a node its imports. These
belong to the loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from hami.http.connection import RouteAnswer

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricFamily(Protocol):
    """One metric with all its members."""

    name: str

    def lines(self) -> Iterator[str]:
        """Its text, each line with its end."""


def header(name: str, text: str, type: str = "gauge") -> str:
    """The two lines that introduce a metric; ``text`` is its help, one line."""
    return f"# HELP {name} {text}\n# TYPE {name} {type}\n"


def escaped(value: str) -> str:
    """A label's value, escaped for Prometheus' text format."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def sample(name: str, labels: Mapping[str, str], value: float) -> str:
    """One line of a metric."""
    inside = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value}\n" if inside else f"{name} {value}\n"


class CounterFamily:
    """A counter: how often each member of ``members`` has happened.

    ``label`` tells the members apart; they are there from the beginning, at 0. A member that is
    not among them counts all the same, so whoever counts sees to it that they are few.
    """

    def __init__(
        self, name: str, text: str, label: str = "", members: Iterable[str] = ("",)
    ) -> None:
        self.name, self._text, self._label = name, text, label
        self._counts = dict.fromkeys(members, 0)

    def add(self, member: str = "", times: int = 1) -> None:
        self._counts[member] = self._counts.get(member, 0) + times

    def lines(self) -> Iterator[str]:
        yield header(self.name, self._text, "counter")
        for member, count in self._counts.items():
            yield sample(self.name, {self._label: member} if self._label else {}, count)


class GaugeFamily:
    """A gauge, read at each scrape: a number for each value of ``label``, or one without a label.

    ``read`` answers by the label's value; one whose number is None has no line.
    """

    type = "gauge"

    def __init__(
        self, name: str, text: str, read: Callable[[], Mapping[str, float | None]], label: str = ""
    ) -> None:
        self.name, self._text, self._read, self._label = name, text, read, label

    def lines(self) -> Iterator[str]:
        yield header(self.name, self._text, self.type)
        for member, value in self._read().items():
            if value is not None:
                yield sample(self.name, {self._label: member} if self._label else {}, value)


class ReadCounterFamily(GaugeFamily):
    """A counter that another part counts, and that is read at each scrape."""

    type = "counter"


class ReadHistogramFamily:
    """A histogram that another part counts, and that is read at each scrape.

    ``buckets`` are upper bounds, ascending. ``read`` answers how many values lie in each and, last,
    above all of them; and the sum of the values.
    """

    def __init__(
        self,
        name: str,
        text: str,
        buckets: Sequence[float],
        read: Callable[[], tuple[Sequence[int], float]],
    ) -> None:
        self.name, self._text, self._buckets, self._read = name, text, buckets, read

    def lines(self) -> Iterator[str]:
        yield header(self.name, self._text, "histogram")
        counts, total = self._read()
        count = 0
        for bound, here in zip([*map(str, self._buckets), "+Inf"], counts, strict=True):
            count += here
            yield sample(f"{self.name}_bucket", {"le": bound}, count)
        yield sample(f"{self.name}_sum", {}, total)
        yield sample(f"{self.name}_count", {}, count)


class HistogramFamily(ReadHistogramFamily):
    """A histogram; ``buckets`` are upper bounds, ascending."""

    def __init__(self, name: str, text: str, buckets: Sequence[float]) -> None:
        super().__init__(name, text, buckets, lambda: (self._counts, self._sum))
        self._counts = [0] * (len(buckets) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._buckets, value)] += 1
        self._sum += value


def metrics_answer(families: Iterable[MetricFamily]) -> RouteAnswer:
    """The text of a process whose metrics are few: it is made at once, on the loop."""
    text = "".join(line for family in families for line in family.lines())
    return RouteAnswer(body=text.encode(), type=METRICS_TYPE)
