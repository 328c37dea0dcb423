"""A mirror of one resource: list, then watch, for as long as it runs.

A handler that replays the calls has the same store: every change once, in order per object. An
object that was replaced under its name is gone before the new one appears.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar, assert_never

import msgspec

from hami.domain.errors import shortened
from hami.kube.client import WATCH_IDLE, KubeClient
from hami.kube.errors import (
    FORBIDDEN,
    GONE,
    NO_ANSWER,
    NOT_FOUND,
    TOO_MANY_REQUESTS,
    UNAUTHORIZED,
    ApiError,
)
from hami.kube.messages import (
    Added,
    Bookmark,
    Deleted,
    Head,
    Modified,
    Undecodable,
    WatchEvent,
    head_of,
)
from hami.kube.outages import Outage
from hami.kube.pace import Backoff, Turns
from hami.kube.resources import HasMetadata, Resource

T = TypeVar("T", bound=HasMetadata)
H_contra = TypeVar("H_contra", bound=HasMetadata, contravariant=True)

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""

SHORT_WATCH = 1.0
"""Seconds: a watch that ended sooner and without an event is no progress; wait before the next."""
MANY = 3
"""A server that refuses a watch this many times in a row does not know our version: list again."""
ABSENT = 10.0
"""Seconds between tries to list a kind of object that is not defined in the cluster."""
REMEMBERED = 4096
"""How many deletions are remembered, so that a late event does not bring an object back; events
older than the last forgotten deletion are ignored for objects that do not exist."""
PAGE = 100
"""Objects per page: decoding a page of 12 KB nodes is one step on the loop, of about 1 ms."""
FIRST_PAGE = 500
"""Objects per page of the first list, while only probes wait for the loop; client-go's page size
(tools/pager/pager.go)."""
FIRST_TURN = 0.01
"""Seconds of work on the first list before others may run."""

_NO_VERDICT = frozenset({NO_ANSWER, UNAUTHORIZED, FORBIDDEN, TOO_MANY_REQUESTS})
"""Statuses that say nothing about the version."""


class Handler(Protocol[H_contra]):
    """Receives every change, on the loop; must not block."""

    def changed(self, new: H_contra, old: H_contra | None) -> None:
        """An object was added or changed; ``old`` is None for an object not seen before."""

    def gone(self, last: H_contra) -> None:
        """An object was deleted; ``last`` is its newest known state."""


class Informer(Generic[T]):
    """Keeps ``objects`` equal to the server's, and tells ``handler`` of every difference.

    ``on_problem`` gets a sentence for each failure; none of them stops the informer. ``relists``
    counts full lists, ``last_event_at`` is when the server last said anything (monotonic seconds).
    ``optional``: the cluster may lack this kind, and then there are no objects.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource[T],
        handler: Handler[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        on_problem: Callable[[str], None],
        idle: float = WATCH_IDLE,
        optional: bool = False,
        backoff: Backoff | None = None,
    ) -> None:
        self.synced = asyncio.Event()
        self.relists = 0
        self.last_event_at = time.monotonic()
        self._client = client
        self._resource = resource
        self._handler = handler
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._on_problem = on_problem
        self._idle = idle
        self._optional = optional
        self._backoff = backoff or Backoff()
        self._objects: dict[Key, T] = {}
        self._deleted: dict[Key, str] = {}
        self._version = ""
        self._oldest = ""
        self._whole_lists = False
        self._refusals = 0
        self._outage = Outage()
        self._turns = Turns(rest=0)

    @property
    def objects(self) -> Mapping[Key, T]:
        """A live view of the objects, by namespace and name."""
        return MappingProxyType(self._objects)

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._relist()
                progressed = await self._follow()
            except ApiError as error:
                await asyncio.sleep(self._after(error))
            else:
                if not progressed:
                    await asyncio.sleep(self._backoff.delay())

    def begin_anew(self) -> None:
        """Let the next :meth:`run` begin with a list; ``synced`` then waits for that list.

        Call it between two runs: a run that is under way would go on from its watch.
        """
        self._version = ""
        self.synced = asyncio.Event()

    def _after(self, error: ApiError) -> float:
        """Tell of ``error``; the seconds to wait after it."""
        if self._optional and error.status == NOT_FOUND:
            self._none_at_all()
            return ABSENT
        delay = max(self._backoff.delay(), error.retry_after or 0.0)
        if error.status == GONE:
            # The next page has expired: pages are too slow here, ask for everything at once.
            self._whole_lists = not self._version
            self._version = ""
            return delay
        self._refusals += error.status not in _NO_VERDICT
        if self._refusals >= MANY:
            self._refusals = 0
            self._version = ""
        advice = ""
        if error.status == FORBIDDEN:
            where = f" in namespace {self._namespace}" if self._namespace else ""
            advice = f"; allow our account to list and watch {self._resource.plural}{where}"
        self._tell(error, f"{error}{advice}; trying again in {delay:.1f} s")
        return delay

    def _tell(self, error: ApiError, problem: str) -> None:
        outage = self._client.unreachable if error.status == NO_ANSWER else self._outage
        if outage.is_news(error.status):
            self._on_problem(problem)

    def _answered(self) -> None:
        """Forget the outage, because the server has answered."""
        self._backoff.reset()
        self._outage.over()

    def _none_at_all(self) -> None:
        """Remove all objects: the cluster does not define this kind, or no longer does."""
        for key in list(self._objects):
            self._remove(key)
        self._version = ""
        self.synced.set()

    # Lists.

    async def _relist(self) -> None:
        """Apply the differences between a fresh list and what we have, in short turns."""
        self.relists += 1
        first = not self._objects
        turns = Turns(FIRST_TURN, rest=0) if first else Turns()
        seen: set[Key] = set()
        version = ""
        pages = self._client.pages(
            self._resource,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            page_size=0 if self._whole_lists else FIRST_PAGE if first else PAGE,
        )
        async with aclosing(pages):
            async for page in pages:
                version = page.resource_version
                for raw in page.items:
                    await turns.pause()
                    if (key := self._first(raw) if first else self._listed(raw)) is not None:
                        seen.add(key)
        for key in [key for key in self._objects if key not in seen]:
            await turns.pause()
            self._remove(key)
        # An object that is not in the list was deleted before it, whatever late events may say.
        self._deleted.clear()
        self._oldest = version
        self._whole_lists = False
        self._version = version
        self.last_event_at = time.monotonic()
        self.synced.set()

    def _first(self, raw: msgspec.Raw) -> Key | None:
        """:meth:`_listed` for an unknown object: there is nothing to compare it with."""
        try:
            found = self._resource.decoder.decode(raw)
        except msgspec.MsgspecError:
            return self._listed(raw)
        key = _key(found)
        self._apply(key, found)
        return key

    def _listed(self, raw: msgspec.Raw) -> Key | None:
        """Apply an item of a list; the object's key, or None when not even that can be read."""
        try:
            head = head_of(raw)
        except msgspec.MsgspecError as error:
            begin = shortened(bytes(raw)[:200].decode(errors="replace"))
            self._on_problem(
                f"list {self._resource.plural}: an item cannot be read: {error}: {begin}"
            )
            return None
        key = (head.namespace, head.name)
        known = self._objects.get(key)
        if known is not None and known.metadata.resource_version == head.resource_version:
            return key
        try:
            found = self._resource.decoder.decode(raw)
        except msgspec.MsgspecError as error:
            self._skip(head, str(error))
        else:
            self._apply(key, found)
        return key

    # Watches.

    async def _follow(self) -> bool:
        """Watch until the server ends it; whether that made progress."""
        started = time.monotonic()
        progressed = False
        events = self._client.watch(
            self._resource,
            self._version,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            idle=self._idle,
        )
        async with aclosing(events):
            async for event in events:
                if not progressed:
                    progressed = True
                    self._refusals = 0
                    self._answered()
                self.last_event_at = time.monotonic()
                self._take(event)
                await self._turns.pause()
        if progressed or time.monotonic() - started >= SHORT_WATCH:
            self._answered()
            return True
        return False

    def _take(self, event: WatchEvent[T]) -> None:
        match event:
            case Bookmark(resource_version=version):
                pass
            case Added(object=found) | Modified(object=found):
                version = found.metadata.resource_version
                key = _key(found)
                if self._is_news(key, version):
                    self._apply(key, found)
            case Deleted(object=found):
                version = found.metadata.resource_version
                self._delete(_key(found), found.metadata.uid, version, found)
            case Undecodable(head=head, deleted=deleted, problem=problem):
                version = head.resource_version
                key = (head.namespace, head.name)
                if deleted:
                    self._delete(key, head.uid, version, None)
                elif self._is_news(key, version):
                    self._skip(head, problem)
            case _:
                assert_never(event)
        if not is_older(version, than=self._version):
            self._version = version

    def _is_news(self, key: Key, version: str) -> bool:
        known = self._objects.get(key)
        if known is not None:
            have = known.metadata.resource_version
        else:
            have = self._deleted.get(key, self._oldest)
        return have != version and not is_older(version, than=have)

    def _delete(self, key: Key, uid: str, version: str, last: T | None) -> None:
        if not self._is_news(key, version):
            return
        known = self._objects.get(key)
        if known is not None and uid and known.metadata.uid != uid:
            return
        self._remove(key, last)
        self._deleted[key] = version
        if len(self._deleted) > REMEMBERED:
            self._oldest = self._deleted.pop(next(iter(self._deleted)))

    # The store.

    def _apply(self, key: Key, found: T) -> None:
        known = self._objects.get(key)
        if known is not None and known.metadata.uid != found.metadata.uid:
            self._remove(key)
            known = None
        self._deleted.pop(key, None)
        self._objects[key] = found
        try:
            self._handler.changed(found, known)
        except Exception as error:  # noqa: BLE001 -- one object's trouble must not stop the others
            self._blame("changed", key, error)

    def _remove(self, key: Key, last: T | None = None) -> None:
        known = self._objects.pop(key, None)
        if known is None:
            return
        try:
            self._handler.gone(last or known)
        except Exception as error:  # noqa: BLE001 -- as above
            self._blame("gone", key, error)

    def _skip(self, head: Head, problem: str) -> None:
        """Pass over an undecodable state; the object's last readable state stays."""
        key = (head.namespace, head.name)
        known = self._objects.get(key)
        if known is not None and known.metadata.uid != head.uid:
            self._remove(key)
        self._on_problem(
            f"{self._resource.kind} {_written(key)} cannot be read and is passed over: {problem}"
        )

    def _blame(self, call: str, key: Key, error: Exception) -> None:
        self._on_problem(
            f"{type(self._handler).__name__}.{call} failed for {self._resource.kind} "
            f"{_written(key)}: {type(error).__name__}: {error}"
        )


def is_older(version: str, *, than: str) -> bool:
    """Whether one resource version came before another.

    Versions are growing integers in kube-apiserver and its imitations, and by contract since 1.35
    (https://github.com/kubernetes/enhancements/issues/5504). Of two that are not integers, neither
    is older.
    """
    if not (version.isdecimal() and than.isdecimal()):
        return False
    return int(version) < int(than)


def _key(found: HasMetadata) -> Key:
    return found.metadata.namespace, found.metadata.name


def _written(key: Key) -> str:
    return "/".join(part for part in key if part)
