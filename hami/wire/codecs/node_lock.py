"""The node lock: ``<RFC 3339 time>,<namespace>,<pod>``.

It lets one pod at a time be between bind and start on a node. Old writers left the time alone,
without an owner.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from hami.domain.errors import Malformed, shortened
from hami.wire import keys

# Hour 24 is no hour to Go; newer versions of Python read it as midnight.
_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\dT([01]\d|2[0-3]):\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLock:
    """Who holds a node's lock, and since when. ``at`` has a zone; an empty owner is unknown."""

    at: datetime
    namespace: str = ""
    pod: str = ""


def decode_node_lock(text: str) -> NodeLock | Malformed:
    """Read the value of ``hami.io/mutex.lock``."""
    parts = text.split(",")
    if len(parts) not in (1, 3):
        return _bad("", text, f"{len(parts)} parts instead of time,namespace,pod")
    at = _time(parts[0])
    if at is None:
        return _bad("time", parts[0], "not a time like 2025-09-26T10:00:00Z")
    namespace, pod = parts[1:] or ("", "")
    return NodeLock(at=at, namespace=namespace, pod=pod)


def _bad(position: str, text: str, problem: str) -> Malformed:
    return Malformed(
        annotation=keys.NODE_LOCK, position=position, text=shortened(text), problem=problem
    )


def _time(text: str) -> datetime | None:
    if not _RFC3339.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def encode_node_lock(lock: NodeLock) -> str:
    """The lock's text: whole seconds in the zone of ``lock.at``; without an owner, the bare time.

    Raises:
        ValueError: ``lock.at`` has no zone, or an owner that could not be read back.
    """
    offset = lock.at.utcoffset()
    if offset is None:
        raise ValueError(f"node lock of {lock.namespace}/{lock.pod}: {lock.at} has no zone")
    if "," in lock.namespace or "," in lock.pod:
        raise ValueError(f"node lock of {lock.namespace}/{lock.pod}: a comma separates its parts")
    # RFC 3339 offsets have no seconds; some historic zones do.
    at = lock.at.astimezone(UTC) if offset.seconds % 60 or offset.microseconds else lock.at
    time = at.isoformat(timespec="seconds")
    if time.endswith("+00:00"):
        time = time.removesuffix("+00:00") + "Z"
    return f"{time},{lock.namespace},{lock.pod}" if lock.namespace or lock.pod else time
