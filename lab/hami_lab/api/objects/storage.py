"""The objects, encoded once, and the history that watches read."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from hami_lab.api.objects.fields import selectable
from hami_lab.api.objects.kinds import Kind

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One version of one object; never changed, so lists and watches share it.

    ``raw`` is the object as JSON without its kind and apiVersion, which a list leaves out and
    which differ between the versions of a resource.
    """

    key: Key
    uid: str
    version: int
    raw: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]

    def object(self) -> Json:
        """A copy of its own for whoever wants to change it."""
        decoded: Json = msgspec.json.decode(self.raw)
        return decoded

    def encoded(self, kind: Kind) -> bytes:
        return kind.prefix + self.raw[1:]


def copied(body: Json) -> Json:
    """A deep copy; the encoder and decoder are faster at it than ``copy``."""
    copy: Json = msgspec.json.decode(msgspec.json.encode(body))
    return copy


def item_of(storage: tuple[str, str], body: Json) -> Item:
    """Encode an object; its metadata carries the resourceVersion already, if it has one."""
    bare = {name: part for name, part in body.items() if name not in ("kind", "apiVersion")}
    metadata = bare["metadata"]
    return Item(
        key=(metadata.get("namespace", ""), metadata["name"]),
        uid=metadata.get("uid", ""),
        version=int(metadata.get("resourceVersion") or 0),
        raw=msgspec.json.encode(bare),
        labels=metadata.get("labels") or _NONE,
        fields=selectable(storage, bare),
    )


@dataclass(slots=True, eq=False)
class Record:
    """One change; ``previous`` tells watches with selectors what they knew."""

    type: str
    item: Item
    previous: Item | None
    frames: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def frame(self, kind: Kind, type: str) -> bytes:
        """The event as a watch of this kind sends it; encoded once for all watchers.

        An object that leaves a selector is DELETED as it was before, with the version of now.
        """
        key = (type, kind.group_version)
        found = self.frames.get(key)
        if found is None:
            item = self.item
            if type == "DELETED" and self.type != "DELETED" and self.previous is not None:
                item = _at_version(self.previous, item.version)
            found = frame_of(type, item.encoded(kind))
            self.frames[key] = found
        return found


def frame_of(type: str, encoded: bytes) -> bytes:
    """A line of a watch."""
    return b'{"type":"' + type.encode() + b'","object":' + encoded + b"}\n"


def _at_version(item: Item, version: int) -> Item:
    body = item.object()
    body["metadata"]["resourceVersion"] = str(version)
    return Item(
        key=item.key,
        uid=item.uid,
        version=version,
        raw=msgspec.json.encode(body),
        labels=item.labels,
        fields=item.fields,
    )


class Log:
    """The last changes of one resource, in order; watchers keep a position in it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._records: list[Record] = []
        self._first = 0
        self.forgotten = 0
        """The newest version that is no longer told."""
        self.wakes: set[Callable[[], None]] = set()

    @property
    def end(self) -> int:
        return self._first + len(self._records)

    def append(self, record: Record) -> None:
        self._records.append(record)
        if len(self._records) >= 2 * self._limit:
            self.forget(self._limit)
        for wake in self.wakes:
            wake()

    def forget(self, kept: int) -> None:
        """Drop all but the newest ``kept`` records, as etcd's compaction does."""
        dropped = len(self._records) - kept
        if dropped > 0:
            self.forgotten = self._records[dropped - 1].item.version
            del self._records[:dropped]
            self._first += dropped

    def after(self, version: int) -> int:
        """The position of the first record newer than ``version``."""
        return self._first + bisect_right(self._records, version, key=lambda r: r.item.version)

    def since(self, position: int, most: int) -> list[Record] | None:
        """Up to ``most`` records from ``position`` on; None when they are forgotten."""
        start = position - self._first
        return None if start < 0 else self._records[start : start + most]


class Collection:
    """The objects of one resource, in the order of namespace and name."""

    def __init__(self, storage: tuple[str, str], history: int) -> None:
        self.storage = storage
        self.items: dict[Key, Item] = {}
        self.log = Log(history)
        self._keys: list[Key] = []

    def put(self, item: Item) -> None:
        if item.key not in self.items:
            insort(self._keys, item.key)
        self.items[item.key] = item

    def remove(self, key: Key) -> None:
        del self.items[key]
        del self._keys[bisect_left(self._keys, key)]

    def within(self, namespace: str = "") -> list[Item]:
        """All objects, or those of one namespace."""
        keys = self._keys
        if namespace:
            first = bisect_left(keys, (namespace, ""))
            keys = keys[first : bisect_left(keys, (namespace + "\0", ""))]
        return [self.items[key] for key in keys]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items.values())


class Storage:
    """All collections and the one counter of versions."""

    def __init__(self, history: int) -> None:
        self.version = 0
        self._history = history
        self._collections: dict[tuple[str, str], Collection] = {}
        self.owned: dict[str, set[tuple[tuple[str, str], Key]]] = {}
        """Owner's uid -> what is deleted with it."""
        self.on_change: list[Callable[[tuple[str, str], Record], None]] = []

    def collection(self, storage: tuple[str, str]) -> Collection:
        found = self._collections.get(storage)
        if found is None:
            found = self._collections[storage] = Collection(storage, self._history)
            found.log.forgotten = 0
        return found

    def collections(self) -> list[Collection]:
        return list(self._collections.values())

    def drop(self, storage: tuple[str, str]) -> None:
        """Forget a resource altogether: its CRD is gone."""
        self._collections.pop(storage, None)

    def get(self, storage: tuple[str, str], namespace: str, name: str) -> Item | None:
        return self.collection(storage).items.get((namespace, name))

    def put(self, storage: tuple[str, str], body: Json) -> Item:
        """Store a new version of an object and tell the watches."""
        collection = self.collection(storage)
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        item = item_of(storage, body)
        previous = collection.items.get(item.key)
        collection.put(item)
        self._own(storage, item.key, body)
        self._tell(collection, Record("MODIFIED" if previous else "ADDED", item, previous))
        return item

    def remove(self, storage: tuple[str, str], body: Json) -> Item:
        """Take an object out; ``body`` is its last state."""
        collection = self.collection(storage)
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        item = item_of(storage, body)
        previous = collection.items[item.key]
        collection.remove(item.key)
        for owner in body["metadata"].get("ownerReferences") or ():
            self.owned.get(owner.get("uid", ""), set()).discard((storage, item.key))
        self._tell(collection, Record("DELETED", item, previous))
        return item

    def restore(self, storage: tuple[str, str], item: Item) -> None:
        """Take an object in as it was stored; no watch is told."""
        collection = self.collection(storage)
        collection.put(item)
        self._own(storage, item.key, item.object())
        self.version = max(self.version, item.version)

    def forget_history(self) -> None:
        """No watch can go on from before now: from an older version it gets 410."""
        for collection in self._collections.values():
            collection.log.forget(0)
            collection.log.forgotten = self.version

    def _own(self, storage: tuple[str, str], key: Key, body: Json) -> None:
        for owner in body["metadata"].get("ownerReferences") or ():
            self.owned.setdefault(owner.get("uid", ""), set()).add((storage, key))

    def _tell(self, collection: Collection, record: Record) -> None:
        collection.log.append(record)
        for told in self.on_change:
            told(collection.storage, record)


class Wake:
    """Lets one watcher sleep until something happens: a change, the client's leaving, a time."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self._event.set()

    async def wait(self, seconds: float | None) -> None:
        """Return when woken, or after ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()
