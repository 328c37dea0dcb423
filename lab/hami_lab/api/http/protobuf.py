"""The few objects that Go programs write as protobuf: kube-scheduler's and ``kubectl create``'s.

kube-scheduler writes bindings, events and leases, kubectl the simple kinds below; all the rest
they send as JSON, and answers are JSON always. Field numbers are those of Kubernetes'
``generated.proto`` files. Reading needs no more than this table; a kind that is not in it is
refused with what to do instead.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from hami_lab.api.objects.refusals import Refusal, bad_request

Json = dict[str, Any]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

# A field's number, its JSON name, and its sort: text, int, bool, bytes, time, micro (a time with
# microseconds), quantity, choice (an int or a text), or the name of a message below.
# A sort may be repeated ([]) or a map from texts ({}).
_MESSAGES: Mapping[str, str] = MappingProxyType(
    {
        "ObjectMeta": "1 name text, 2 generateName text, 3 namespace text, 5 uid text, "
        "6 resourceVersion text, 7 generation int, 8 creationTimestamp time, "
        "9 deletionTimestamp time, 10 deletionGracePeriodSeconds int, 11 labels {}text, "
        "12 annotations {}text, 13 ownerReferences []OwnerReference, 14 finalizers []text",
        "OwnerReference": "1 kind text, 3 name text, 4 uid text, 5 apiVersion text, "
        "6 controller bool, 7 blockOwnerDeletion bool",
        "ObjectReference": "1 kind text, 2 namespace text, 3 name text, 4 uid text, "
        "5 apiVersion text, 6 resourceVersion text, 7 fieldPath text",
        "Binding": "1 metadata ObjectMeta, 2 target ObjectReference",
        "DeleteOptions": "1 gracePeriodSeconds int, 2 preconditions Preconditions, "
        "4 propagationPolicy text, 5 dryRun []text",
        "Preconditions": "1 uid text, 2 resourceVersion text",
        "Eviction": "1 metadata ObjectMeta, 2 deleteOptions DeleteOptions",
        "EventSource": "1 component text, 2 host text",
        "EventSeries": "1 count int, 2 lastObservedTime micro",
        "v1/Event": "1 metadata ObjectMeta, 2 involvedObject ObjectReference, 3 reason text, "
        "4 message text, 5 source EventSource, 6 firstTimestamp time, 7 lastTimestamp time, "
        "8 count int, 9 type text, 10 eventTime micro, 11 series EventSeries, 12 action text, "
        "13 related ObjectReference, 14 reportingComponent text, 15 reportingInstance text",
        "events.k8s.io/v1/Event": "1 metadata ObjectMeta, 2 eventTime micro, "
        "3 series EventSeries, 4 reportingController text, 5 reportingInstance text, "
        "6 action text, 7 reason text, 8 regarding ObjectReference, 9 related ObjectReference, "
        "10 note text, 11 type text, 12 deprecatedSource EventSource, "
        "13 deprecatedFirstTimestamp time, 14 deprecatedLastTimestamp time, "
        "15 deprecatedCount int",
        "Lease": "1 metadata ObjectMeta, 2 spec LeaseSpec",
        "LeaseSpec": "1 holderIdentity text, 2 leaseDurationSeconds int, 3 acquireTime micro, "
        "4 renewTime micro, 5 leaseTransitions int, 6 strategy text, 7 preferredHolder text",
        "Namespace": "1 metadata ObjectMeta",
        "ConfigMap": "1 metadata ObjectMeta, 2 data {}text, 3 binaryData {}bytes, 4 immutable bool",
        "Secret": "1 metadata ObjectMeta, 2 data {}bytes, 3 type text, 4 stringData {}text, "
        "5 immutable bool",
        "ServiceAccount": "1 metadata ObjectMeta",
        "ResourceQuota": "1 metadata ObjectMeta, 2 spec QuotaSpec, 3 status QuotaStatus",
        "QuotaSpec": "1 hard {}quantity, 2 scopes []text",
        "QuotaStatus": "1 hard {}quantity, 2 used {}quantity",
        "PriorityClass": "1 metadata ObjectMeta, 2 value int, 3 globalDefault bool, "
        "4 description text, 5 preemptionPolicy text",
        "PodDisruptionBudget": "1 metadata ObjectMeta, 2 spec BudgetSpec",
        "BudgetSpec": "1 minAvailable choice, 2 selector LabelSelector, 3 maxUnavailable choice, "
        "4 unhealthyPodEvictionPolicy text",
        "LabelSelector": "1 matchLabels {}text, 2 matchExpressions []Requirement",
        "Requirement": "1 key text, 2 operator text, 3 values []text",
    }
)
_ROOTS = frozenset(
    {"Binding", "DeleteOptions", "Eviction", "Lease", "Namespace", "ConfigMap", "Secret",
     "ServiceAccount", "ResourceQuota", "PriorityClass", "PodDisruptionBudget"}
)  # fmt: skip
_DEEPEST = 20


class _Broken(ValueError):
    """The bytes are no protobuf message."""


def decode(body: bytes) -> Json:
    """An object as JSON would have it.

    Raises:
        Refusal: 400 for bytes that are none, 415 for a kind that is not in the table.
    """
    if not body.startswith(_MAGIC):
        raise bad_request(f"a body of {MEDIA_TYPE} begins with {_MAGIC!r}")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        meta = dict(_fields(_bytes(envelope.get(1, b""))))
        version, kind = (_bytes(meta.get(number, b"")).decode() for number in (1, 2))
        name = f"{version}/{kind}" if kind == "Event" else kind
        if name not in _ROOTS and name not in _MESSAGES:
            raise Refusal(
                415,
                "UnsupportedMediaType",
                f"this server reads {version} {kind} as JSON or YAML alone: write a manifest and "
                "use `kubectl apply -f`, or set the client's contentType to application/json",
            )
        return {"apiVersion": version, "kind": kind, **_message(name, _bytes(envelope.get(2, b"")))}
    except (_Broken, UnicodeDecodeError, OverflowError, ValueError) as error:
        raise bad_request(f"the body is no protobuf object: {error}") from error


def _message(name: str, body: bytes, depth: int = 0) -> Json:
    if depth > _DEEPEST:
        raise _Broken("nested too deeply")
    known = {int(n): (field, sort) for n, field, sort in map(str.split, _entries(name))}
    found: Json = {}
    for number, raw in _fields(body):
        if number not in known:
            continue
        field, sort = known[number]
        if sort.startswith("[]"):
            found.setdefault(field, []).append(_value(sort[2:], raw, depth))
        elif sort.startswith("{}"):
            pair = dict(_fields(_bytes(raw)))
            key = _bytes(pair.get(1, b"")).decode()
            found.setdefault(field, {})[key] = _value(sort[2:], pair.get(2, b""), depth)
        else:
            found[field] = _value(sort, raw, depth)
    # An empty text or a zero is how Go writes "not set".
    return {field: value for field, value in found.items() if value not in ("", None)}


def _entries(name: str) -> list[str]:
    return _MESSAGES[name].split(", ")


def _value(sort: str, raw: bytes | int, depth: int) -> Any:
    match sort:
        case "text":
            return _bytes(raw).decode()
        case "bytes":
            return base64.b64encode(_bytes(raw)).decode()
        case "bool":
            return bool(raw)
        case "int":
            return _signed(raw)
        case "time" | "micro":
            return _time(_bytes(raw), micro=sort == "micro")
        case "quantity":
            return _bytes(dict(_fields(_bytes(raw))).get(1, b"0")).decode()
        case "choice":
            parts = dict(_fields(_bytes(raw)))
            return _bytes(parts.get(3, b"")).decode() if parts.get(1) else _signed(parts.get(2, 0))
        case _:
            return _message(sort, _bytes(raw), depth + 1)


def _time(body: bytes, *, micro: bool) -> str | None:
    parts = dict(_fields(body))
    seconds, nanos = _signed(parts.get(1, 0)), _signed(parts.get(2, 0))
    if not seconds and not nanos:
        return None
    when = datetime.fromtimestamp(seconds, UTC)
    shown = when.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{shown}.{nanos // 1000:06d}Z" if micro else f"{shown}Z"


def _fields(body: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a message: number and, by wire type, its bytes or its number."""
    position = 0
    while position < len(body):
        tag, position = _varint(body, position)
        match tag & 7:
            case 0:
                value, position = _varint(body, position)
                yield tag >> 3, value
            case 2:
                length, position = _varint(body, position)
                if position + length > len(body):
                    raise _Broken("a field ends after its message")
                yield tag >> 3, body[position : position + length]
                position += length
            case 1 | 5 as wire:
                position += 8 if wire == 1 else 4
            case _:
                raise _Broken(f"unknown wire type {tag & 7}")


def _varint(body: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(body) and shift < 70:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise _Broken("a number does not end")


def _bytes(raw: bytes | int) -> bytes:
    if isinstance(raw, int):
        raise _Broken("a number where a message or a text belongs")
    return raw


def _signed(raw: bytes | int) -> int:
    if not isinstance(raw, int):
        raise _Broken("a text where a number belongs")
    value = raw & 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >= 1 << 63 else value
