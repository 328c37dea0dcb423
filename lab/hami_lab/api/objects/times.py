"""The clock, as Kubernetes writes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def now(*, after_seconds: int = 0) -> str:
    """RFC 3339 in whole seconds."""
    return (datetime.now(UTC) + timedelta(seconds=after_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(timestamp: str | None) -> str:
    """``45s``, ``3m19s``, ``2h``, ``5d``: as kubectl shows it."""
    if not timestamp:
        return "<unknown>"
    then = datetime.fromisoformat(timestamp)
    seconds = max(0, int((datetime.now(UTC) - then).total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"
