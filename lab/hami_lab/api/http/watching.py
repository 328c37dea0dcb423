"""Watches: what happened since a version, and then everything as it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec

from hami_lab.api.http.encoding import bookmark_bytes, event_bytes, object_bytes, wants_table
from hami_lab.api.http.faults import Fault
from hami_lab.api.objects.listing import Filter, filter_of, version_of
from hami_lab.api.objects.refusals import Cause, Refusal, expired, invalid_option
from hami_lab.api.objects.request import Request
from hami_lab.api.objects.storage import Collection, Record, Storage, Wake, frame_of

_LONGEST_SECONDS = 3600
_BATCH = 500


class Watch:
    """One client's watch; ``wake`` it after setting ``ended``."""

    def __init__(
        self,
        request: Request,
        storage: Storage,
        faults: Sequence[Fault] = (),
        *,
        bookmark_seconds: float,
    ) -> None:
        self.request = request
        self.wake = Wake()
        self.ended = False
        self._storage = storage
        self._collection: Collection = storage.collection(request.storage)
        self._chosen: Filter = filter_of(request)
        self._table = wants_table(request.accept)
        self._bookmarks = request.flag("allowWatchBookmarks")
        self._bookmark_seconds = bookmark_seconds
        self._seconds = request.number("timeoutSeconds") or _LONGEST_SECONDS
        self._initial = self._wants_initial()
        self._version = version_of(request.query.get("resourceVersion", ""))
        self._faults = faults
        self._sent = 0

    def _wants_initial(self) -> bool:
        """Whether a list is to come first as events (Kubernetes' streaming lists).

        Raises:
            Refusal: 422.
        """
        query = self.request.query
        if "sendInitialEvents" not in query:
            return False
        if query.get("resourceVersionMatch") != "NotOlderThan":
            cause = Cause.forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
            raise invalid_option("ListOptions", [cause])
        return self.request.flag("sendInitialEvents")

    async def lines(self, clock: Any) -> AsyncIterator[bytes]:
        """What is sent, in parts of one or more lines; ``clock`` gives seconds.

        The watch ends when its time is over, when it is too slow for the history, or by a fault.
        """
        log = self._collection.log
        log.wakes.add(self.wake)
        try:
            start = clock()
            end, bookmark = start + self._seconds, start + self._bookmark_seconds
            position = log.end
            for part in self._first():
                yield part
                if self.ended:
                    return
            if not self._from_now():
                if self._version < log.forgotten:
                    yield self._too_old()
                    return
                position = log.after(self._version)
            while not self.ended and (records := log.since(position, _BATCH)) is not None:
                position += len(records)
                if part := self._part(records):
                    yield part
                    continue
                if records:
                    continue
                now = clock()
                if now >= end or self._cut():
                    return
                if self._bookmarks and now >= bookmark:
                    bookmark = now + self._bookmark_seconds
                    yield bookmark_bytes(self.request.kind, self._storage.version)
                    continue
                await self.wake.wait(max(0.0, min(end, bookmark) - now) + 0.001)
        finally:
            log.wakes.discard(self.wake)

    def _from_now(self) -> bool:
        return self._initial or self._version == 0

    def _first(self) -> Iterator[bytes]:
        """The objects of now as ADDED events, where the client has none yet."""
        if not self._from_now() or self.request.query.get("sendInitialEvents") == "false":
            return
        kind = self.request.kind
        items = self._collection.within(self.request.namespace)
        found = [i for i in items if self._chosen.takes(i)]
        version = self._storage.version
        for start in range(0, len(found), _BATCH):
            batch = found[start : start + _BATCH]
            lines = [frame_of("ADDED", object_bytes(kind, i, table=self._table)) for i in batch]
            yield b"".join(self._counted(lines))
        if self._initial and self._bookmarks:
            yield bookmark_bytes(kind, version, initial_end=True)

    def _part(self, records: Sequence[Record]) -> bytes:
        lines = [
            event_bytes(self.request.kind, record, type, table=self._table)
            for record in records
            if (type := self._type(record))
        ]
        return b"".join(self._spoiled(lines)) if lines else b""

    def _type(self, record: Record) -> str:
        """What the change is to this watch; empty: nothing."""
        chosen = self._chosen
        if not chosen.selects:
            in_namespace = not chosen.namespace or record.item.key[0] == chosen.namespace
            return record.type if in_namespace else ""
        was = record.previous is not None and chosen.takes(record.previous)
        if record.type == "DELETED":
            return "DELETED" if was else ""
        if chosen.takes(record.item):
            return "MODIFIED" if was else "ADDED"
        return "DELETED" if was else ""

    def _spoiled(self, lines: list[bytes]) -> list[bytes]:
        for fault in self._faults:
            if fault.duplicate:
                lines = [line for line in lines for _ in range(2)]
            if fault.reorder:
                lines = lines[::-1]
        return self._counted(lines)

    def _counted(self, lines: list[bytes]) -> list[bytes]:
        """Those that may still be sent before a fault cuts the watch."""
        for fault in self._faults:
            if fault.cut_after is not None:
                lines = lines[: max(0, fault.cut_after - self._sent)]
        self._sent += len(lines)
        if self._cut():
            self.ended = True
        return lines

    def _cut(self) -> bool:
        return any(f.cut_after is not None and self._sent >= f.cut_after for f in self._faults)

    def _too_old(self) -> bytes:
        oldest = self._collection.log.forgotten
        refusal: Refusal = expired(f"too old resource version: {self._version} ({oldest})")
        return frame_of("ERROR", msgspec.json.encode(refusal.status()))
