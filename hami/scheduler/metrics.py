"""The service's own metrics: how long it takes, what it refuses, what it asks of the API server.

Names begin with ``hami_scheduler_``, except one that belongs to those of
:mod:`hami.scheduler.exposition.elastic_metrics`. HAMi's names, which say what the cluster has and
uses, are in :mod:`hami.scheduler.exposition.compat.hami_metrics`. Everything may be called from any
thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from hami import __version__
from hami.kube.transport import ApiCall

_PREFIX = "hami_scheduler_"

ANSWER_BUCKETS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
)  # fmt: skip
"""In seconds. A filter takes some 0.6 ms; a bind is given up after 5 s."""

FIT_BUCKETS = (
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.1, 1,
)  # fmt: skip
"""In seconds: one vendor's fit of one container on one node."""

LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Figures of the moment of a scrape, counted on the loop."""

    leading: bool
    nodes: int
    pods_charged: int
    pods_waiting: int
    reservations: Mapping[str, int]


T = TypeVar("T", Counter, Histogram)


class _Family(Generic[T]):
    """A metric's members by their labels; the library takes longer to find one than to count."""

    def __init__(self, family: T) -> None:
        self._family: T = family
        self._members: dict[tuple[str, ...], T] = {}

    def labels(self, *labels: str) -> T:
        """The member with these labels."""
        member = self._members.get(labels)
        if member is None:
            member = self._members[labels] = self._family.labels(*labels)
        return member


class Metrics:
    """The service's counters and histograms, in their own registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._define_answers()
        self._define_kubernetes()
        self._define_levels()
        # What each filter and each bind counts.
        self._filtered = _Family(self._filters)
        self._refused = _Family(self._refusals)
        self._refused_quota = _Family(self._quota_refusals)
        self._refused_rule = _Family(self._rules)
        self._bound = _Family(self._binds)
        self._fitted = _Family(self._fits)
        self._api_called = _Family(self._api_calls)
        self._api_took = _Family(self._api_seconds)

    def _define_answers(self) -> None:
        self._filters = self._histogram(
            "filter_duration_seconds", "Time until a filter request was answered.", "outcome"
        )
        self._preempts = self._histogram(
            "preempt_duration_seconds", "Time until a preempt request was answered.", "outcome"
        )
        self._vetoes = self._counter(
            "preempt_vetoes",
            "Nodes that preempt requests offered in vain, by reason; a node may have several.",
            "reason",
        )
        self._binds = self._histogram(
            "bind_duration_seconds",
            "Time until a bind request was answered, its call to the API server included.",
            "outcome",
        )
        self._reviews = self._histogram(
            "webhook_duration_seconds", "Time until an admission review was answered.", "outcome"
        )
        self._fits = self._histogram(
            "fit_duration_seconds",
            "Time of one exact fit of one container on one node, by vendor.",
            "vendor",
            buckets=FIT_BUCKETS,
        )
        self._refusals = self._counter(
            "node_refusals",
            "Nodes refused by filter requests, by reason; a node may have several.",
            "reason",
        )
        self._quota_refusals = self._counter(
            "quota_refusals",
            "Filter requests refused for quota.",
            "namespace",
        )
        self._rules = Counter(
            "hami_quota_refusals",
            "Filter requests refused for quota, by the first rule that refused.",
            ("rule",),
            registry=self._registry,
        )
        self._preemptions = self._counter(
            "quota_preemptions",
            "Pods evicted so that another fits: reclaim, fair, own or priority.",
            "reason",
        )
        self._backed_off = self._counter(
            "quota_preemption_backoffs",
            "Times that a quota has to wait before it evicts more, as it takes turns with another.",
            "quota",
        )
        self._resizes = self._counter("resizes", "Requests to resize a pod, by outcome.", "outcome")
        self._problems = self._counter(
            "problems", "Events that told an object's owner what is wrong with it.", "reason"
        )
        self._wakes = self._counter(
            "pods_woken", "Waiting pods touched so that kube-scheduler tries them again."
        )

    def _define_kubernetes(self) -> None:
        self._api_calls = self._counter(
            "api_calls",
            "Calls to the API server; code 0 stands for no answer.",
            "verb",
            "resource",
            "code",
        )
        self._api_seconds = self._histogram(
            "api_call_duration_seconds",
            "Time until the API server began to answer.",
            "verb",
            "resource",
        )
        self._watch_lag = self._histogram(
            "watch_lag_seconds",
            "Time from a successful bind until the watch showed it.",
            buckets=LAG_BUCKETS,
        )
        self._relists = self._counter(
            "relists", "Lists made anew because a watch could not go on.", "resource"
        )
        self._dropped = self._counter(
            "events_dropped", "Kubernetes events not written because there were too many."
        )

    def _define_levels(self) -> None:
        self._leading = self._gauge("leading", "1 while this replica answers filter and bind.")
        self._nodes = self._gauge("nodes", "Nodes known.")
        self._charged = self._gauge("pods_charged", "Bound pods that are charged with devices.")
        self._waiting = self._gauge("pods_waiting", "Unbound pods that wait for devices.")
        self._reservations = self._gauge(
            "reservations", "Placements not yet seen bound, by phase.", "phase"
        )
        build = self._gauge("build_info", "Always 1; the version is a label.", "version")
        build.labels(__version__).set(1)

    def _histogram(
        self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = ANSWER_BUCKETS
    ) -> Histogram:
        return Histogram(_PREFIX + name, text, labels, buckets=buckets, registry=self._registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(_PREFIX + name, text, labels, registry=self._registry)

    def filtered(self, seconds: float, outcome: str, reasons: Mapping[str, int]) -> None:
        """A filter was answered.

        ``outcome``: placed, refused, error, passed (no devices asked), simulated or bound_already.
        ``reasons``: nodes refused, by the reason's word.
        """
        self._filtered.labels(outcome).observe(seconds)
        for reason, nodes in reasons.items():
            self._refused.labels(reason).inc(nodes)

    def preemption_judged(self, seconds: float, outcome: str, reasons: Mapping[str, int]) -> None:
        """A preemption was judged.

        ``outcome``: kept (some node), vetoed (every node), passed (no devices asked), error or
        bound_already. ``reasons``: nodes left out, by the reason's word.
        """
        self._preempts.labels(outcome).observe(seconds)
        for reason, nodes in reasons.items():
            self._vetoes.labels(reason).inc(nodes)

    def bound(self, seconds: float, outcome: str) -> None:
        """A bind was answered. ``outcome``: bound, refused, unknown or error."""
        self._bound.labels(outcome).observe(seconds)

    def resized(self, outcome: str) -> None:
        """A request to resize a pod was answered.

        ``outcome``: resized, repeated (made before), refused, unknown, denied, busy, conflict,
        reused_id, superseded, not_found, not_leading or error.
        """
        self._resizes.labels(outcome).inc()

    def reviewed(self, seconds: float, outcome: str) -> None:
        """An admission review was answered. ``outcome``: allowed, patched, denied or error."""
        self._reviews.labels(outcome).observe(seconds)

    def fitted(self, vendor: str, seconds: float) -> None:
        self._fitted.labels(vendor).observe(seconds)

    def problems_told(self, reason: str, times: int = 1) -> None:
        """Problems were told; ``reason`` is the event's: UnknownUsage, OverAllocated and others."""
        self._problems.labels(reason).inc(times)

    def woken(self, pods: int) -> None:
        self._wakes.inc(pods)

    def quota_refused(self, namespace: str, rule: str) -> None:
        self._refused_quota.labels(namespace).inc()
        self._refused_rule.labels(rule).inc()

    def preempted(self, kind: str) -> None:
        """A pod was evicted by a plan of this kind."""
        self._preemptions.labels(kind).inc()

    def preemption_backed_off(self, quota: str) -> None:
        """Preemption for this quota paused: it and another evict each other's pods in turns."""
        self._backed_off.labels(quota).inc()

    def api_called(self, call: ApiCall) -> None:
        self._api_called.labels(call.verb, call.resource, str(call.status)).inc()
        self._api_took.labels(call.verb, call.resource).observe(call.seconds)

    def bind_seen(self, lag: float) -> None:
        """The watch showed a binding, ``lag`` seconds after the bind."""
        self._watch_lag.observe(lag)

    def relisted(self, resource: str, count: int = 1) -> None:
        self._relists.labels(resource).inc(count)

    def event_dropped(self, count: int = 1) -> None:
        self._dropped.inc(count)

    def set_levels(self, levels: Levels) -> None:
        """Set the gauges; called before a scrape."""
        self._leading.set(levels.leading)
        self._nodes.set(levels.nodes)
        self._charged.set(levels.pods_charged)
        self._waiting.set(levels.pods_waiting)
        for phase, count in levels.reservations.items():
            self._reservations.labels(phase).set(count)

    def collect(self) -> Iterator[Metric]:
        """The metrics without the series ``..._created``, which the library adds to each one."""
        for family in self._registry.collect():
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family

    def render(self) -> bytes:
        """All metrics in Prometheus' text format, version 0.0.4.

        Takes milliseconds: call it in a thread.
        """
        return generate_latest(self)
