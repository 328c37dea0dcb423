"""Answers as bytes: objects, lists and the lines of watches."""

from __future__ import annotations

from typing import Any

import msgspec

from hami_lab.api.http import events_v1, tables
from hami_lab.api.objects.kinds import Kind
from hami_lab.api.objects.listing import Page
from hami_lab.api.objects.storage import Item, Record, frame_of

Json = dict[str, Any]


def wants_table(accept: str) -> bool:
    """Whether rows are asked for: kubectl asks for them first and for the object itself second."""
    return "as=Table" in accept.partition(",")[0]


def object_bytes(kind: Kind, item: Item, *, table: bool = False) -> bytes:
    if table:
        return msgspec.json.encode(tables.table(kind, [item.object()], str(item.version)))
    if kind.group == "events.k8s.io":
        return kind.prefix + msgspec.json.encode(events_v1.from_core(item.object()))[1:]
    return item.encoded(kind)


def list_bytes(kind: Kind, page: Page, *, table: bool = False) -> bytes:
    """A list; as Kubernetes does, the entries of built-in kinds do not repeat their kind."""
    metadata: Json = {"resourceVersion": str(page.version)}
    if page.next:
        metadata["continue"] = page.next
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    if table:
        found = tables.table(kind, [i.object() for i in page.items], str(page.version))
        found["metadata"] = metadata
        return msgspec.json.encode(found)
    head = (
        f'{{"kind":"{kind.kind}List","apiVersion":"{kind.group_version}","metadata":'.encode()
        + msgspec.json.encode(metadata)
        + b',"items":['
    )
    if kind.custom:
        entries = [item.encoded(kind) for item in page.items]
    elif kind.group == "events.k8s.io":
        entries = [msgspec.json.encode(events_v1.from_core(i.object())) for i in page.items]
    else:
        entries = [item.raw for item in page.items]
    return head + b",".join(entries) + b"]}"


def event_bytes(kind: Kind, record: Record, type: str, *, table: bool = False) -> bytes:
    """A line of a watch; the usual sort is encoded once for all watchers."""
    if not table and kind.group != "events.k8s.io":
        return record.frame(kind, type)
    return frame_of(type, object_bytes(kind, record.item, table=table))


def bookmark_bytes(kind: Kind, version: int, *, initial_end: bool = False) -> bytes:
    metadata: Json = {"resourceVersion": str(version)}
    if not kind.custom:
        metadata["creationTimestamp"] = None
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return frame_of("BOOKMARK", kind.prefix + msgspec.json.encode({"metadata": metadata})[1:])
