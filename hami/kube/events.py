"""Kubernetes events about pods, nodes and quotas; a repeated event raises a count.

Recording never delays its caller. Events are core/v1, because HAMi's role may create those and
nothing else. Where a role does not allow patches, a repeated event stays as it was first written.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import assert_never

from hami.domain.kubernetes.objects import (
    CompositeElasticQuota,
    ElasticQuota,
    Metadata,
    Node,
    Pod,
    QuotaTree,
    ResourceQuota,
)
from hami.kube.client import KubeClient
from hami.kube.errors import CONFLICT, FORBIDDEN, NOT_FOUND, TOO_MANY_REQUESTS, ApiError
from hami.kube.pace import Backoff, TokenBucket
from hami.kube.resources import (
    COMPOSITE_QUOTAS,
    ELASTIC_QUOTAS,
    EVENTS,
    QUOTA_TREES,
    Event,
    EventSource,
    ObjectReference,
)

Subject = Pod | Node | ResourceQuota | ElasticQuota | CompositeElasticQuota | QuotaTree
"""What an event may be about."""

Key = tuple[str, str, str, str, str]
"""Kind, uid (or name), reason, message, type."""

QUEUED = 1000
"""The most events that wait to be written; more are dropped."""
REMEMBERED = 4096
"""The most events whose repetitions are counted, and objects whose allowance is kept."""
TRIES = 3
LONGEST_MESSAGE = 1024
"""Bytes: kube-apiserver's limit for the note of an events.k8s.io event (NoteLengthLimit in
pkg/apis/core/validation/events.go)."""
NAMESPACE_OF_NODES = "default"
UNCOUNTED = timedelta(minutes=10)
"""Where events may not be patched, a repetition within this time adds nothing; a later one is a new
event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """Events per second and at once: of all objects together, and about one of them.

    The limits of one object are client-go's (tools/record/events_cache.go): one event in five
    minutes after the first 25.
    """

    rate: float = 50.0
    burst: int = 200
    object_rate: float = 1 / 300
    object_burst: int = 25


@dataclass(slots=True, kw_only=True)
class _Series:
    """The same event again and again: how often, and what of it is written."""

    about: ObjectReference
    reason: str
    message: str
    type: str
    first: datetime
    last: datetime
    count: int = 1
    name: str = ""
    stored: bool = False
    tries: int = 0


class EventRecorder:
    """Writes events. ``record`` never waits; ``run`` writes.

    ``dropped`` counts the events that were not written.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        component: str,
        instance: str = "",
        limits: EventLimits | None = None,
        on_problem: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.dropped = 0
        self._client = client
        self._source = EventSource(component=component, host=instance)
        self._limits = limits or EventLimits()
        self._pace = TokenBucket(rate=self._limits.rate, burst=self._limits.burst, clock=clock)
        self._on_problem = on_problem
        self._clock = clock
        self._now = now
        self._series: OrderedDict[Key, _Series] = OrderedDict()
        self._allowances: OrderedDict[str, TokenBucket] = OrderedDict()
        self._queue: OrderedDict[Key, _Series] = OrderedDict()
        self._waiting = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._may_patch = True
        self._serial = 0

    def record(self, about: Subject, reason: str, message: str, *, warning: bool) -> None:
        """Record that ``reason`` happened to ``about``; a repetition raises the first count."""
        reference = _reference(about)
        message = _cut(message)
        type_ = "Warning" if warning else "Normal"
        identity = f"{reference.kind}/{reference.uid or reference.name}"
        key = (reference.kind, reference.uid or reference.name, reason, message, type_)
        if (queued := self._queue.get(key)) is not None:
            queued.count += 1
            queued.last = self._now()
            return
        if not self._allowed(identity) or len(self._queue) >= QUEUED:
            self.dropped += 1
            return
        series = self._series.get(key)
        if series is not None:
            series.count += 1
            series.last = self._now()
            if not self._may_patch and series.last - series.first < UNCOUNTED:
                return
        if series is None or not self._may_patch:
            now = self._now()
            series = _Series(
                about=reference, reason=reason, message=message, type=type_, first=now, last=now
            )
            self._series[key] = series
        self._series.move_to_end(key)
        self._forget()
        self._enqueue(key, series)

    async def run(self) -> None:
        """Write what was recorded, until cancelled."""
        backoff = Backoff(first=0.5, most=10.0)
        while True:
            await self._waiting.wait()
            await self._pace.wait()
            if not await self._write_next():
                await asyncio.sleep(backoff.delay())
            else:
                backoff.reset()

    async def flush(self, seconds: float = 3.0) -> None:
        """Wait until ``run``, which must still run, has written all events; at most ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    def _allowed(self, identity: str) -> bool:
        bucket = self._allowances.get(identity)
        if bucket is None:
            limits = self._limits
            bucket = TokenBucket(
                rate=limits.object_rate, burst=limits.object_burst, clock=self._clock
            )
            self._allowances[identity] = bucket
        self._allowances.move_to_end(identity)
        if len(self._allowances) > REMEMBERED:
            self._allowances.popitem(last=False)
        return bucket.take()

    def _enqueue(self, key: Key, series: _Series) -> None:
        """Queue the series itself, so that it is written even if it is forgotten meanwhile."""
        self._queue[key] = series
        self._idle.clear()
        self._waiting.set()

    def _forget(self) -> None:
        """Forget the series that was repeated least recently, except those still in the queue."""
        if len(self._series) > REMEMBERED:
            oldest = next((key for key in self._series if key not in self._queue), None)
            if oldest is not None:
                del self._series[oldest]

    async def _write_next(self) -> bool:
        """Write the next event; whether the API server took it. Refused ones are tried again."""
        key, series = self._queue.popitem(last=False)
        written = True
        try:
            await self._write(series)
            series.tries = 0
        except ApiError as error:
            written = error.status == FORBIDDEN
            self._failed(key, series, error)
        except Exception as error:  # noqa: BLE001 -- an event is not worth the process
            self._drop(key, series, f"{type(error).__name__}: {error}")
        finally:
            if not self._queue:
                self._waiting.clear()
                self._idle.set()
        return written

    def _failed(self, key: Key, series: _Series, error: ApiError) -> None:
        series.tries += 1
        if series.tries >= TRIES or not (
            error.outcome_unknown or error.status == TOO_MANY_REQUESTS
        ):
            self._drop(key, series, str(error))
        elif key not in self._queue:
            self._enqueue(key, series)

    def _drop(self, key: Key, series: _Series, problem: str) -> None:
        """Give an event up and tell why; events recorded during the write have their own tries."""
        self.dropped += 1
        series.tries = 0
        if self._series.get(key) is series and key not in self._queue:
            del self._series[key]
        self._on_problem(f"event {series.reason} about {_written(series.about)}: {problem}")

    async def _write(self, series: _Series) -> None:
        if series.stored and await self._repeat(series):
            return
        if series.stored or not series.name:
            self._serial += 1
            series.name = _name(series.about.name, self._now(), self._serial)
        try:
            await self._client.create(
                EVENTS, self._event(series), namespace=_namespace(series.about)
            )
        except ApiError as error:
            # An earlier try, whose answer was lost, has written the event.
            if error.status != CONFLICT:
                raise
        series.stored = True

    async def _repeat(self, series: _Series) -> bool:
        """Raise the count of a written event; False when the event is no longer there."""
        patch = {"count": series.count, "lastTimestamp": _time(series.last)}
        try:
            await self._client.patch(EVENTS, series.name, patch, namespace=_namespace(series.about))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return False
            if error.status != FORBIDDEN:
                raise
            self._may_patch = False
            self._on_problem(
                f"repeated events are not counted: {error}; allow our account to patch events"
            )
        return True

    def _event(self, series: _Series) -> Event:
        return Event(
            metadata=Metadata(name=series.name, namespace=_namespace(series.about)),
            involved_object=series.about,
            reason=series.reason,
            message=series.message,
            type=series.type,
            count=series.count,
            first_timestamp=_time(series.first),
            last_timestamp=_time(series.last),
            source=self._source,
            reporting_component=self._source.component,
            reporting_instance=self._source.host,
        )


def _reference(about: Subject) -> ObjectReference:
    version = "v1"
    match about:
        case Pod():
            kind, namespace = "Pod", about.namespace
        case Node():
            kind, namespace = "Node", ""
        case ResourceQuota():
            kind, namespace = "ResourceQuota", about.namespace
        case ElasticQuota() | CompositeElasticQuota():
            resource = ELASTIC_QUOTAS if isinstance(about, ElasticQuota) else COMPOSITE_QUOTAS
            version, kind, namespace = resource.group_version, resource.kind, about.namespace
        case QuotaTree():
            version, kind, namespace = QUOTA_TREES.group_version, QUOTA_TREES.kind, ""
        case _:
            assert_never(about)
    return ObjectReference(
        kind=kind,
        api_version=version,
        namespace=namespace,
        name=about.metadata.name,
        uid=about.metadata.uid,
        resource_version=about.metadata.resource_version,
    )


def _namespace(about: ObjectReference) -> str:
    """The namespace of the event; events about cluster-scoped objects are in ``default``."""
    return about.namespace or NAMESPACE_OF_NODES


def _name(about: str, at: datetime, serial: int) -> str:
    """A name that no other process makes, of at most 253 characters, as Kubernetes allows."""
    suffix = f".{int(at.timestamp() * 1e6):x}.{serial:x}"
    return about[: 253 - len(suffix)] + suffix


def _cut(message: str) -> str:
    """The message within ``LONGEST_MESSAGE``; kube-apiserver counts bytes."""
    encoded = message.encode(errors="replace")
    if len(encoded) <= LONGEST_MESSAGE:
        return encoded.decode()
    return encoded[: LONGEST_MESSAGE - 3].decode(errors="ignore") + "…"


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _written(about: ObjectReference) -> str:
    return f"{about.kind} " + "/".join(part for part in (about.namespace, about.name) if part)
