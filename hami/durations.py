"""Durations in Go's spelling, which flags, files and texts of Kubernetes components use."""

from __future__ import annotations

import re

_SECONDS = (
    ("h", 3600.0),
    ("ms", 1e-3),
    ("m", 60.0),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ns", 1e-9),
    ("s", 1.0),
)
_PART = re.compile(
    r"(\d+(?:\.\d*)?|\.\d+)(" + "|".join(unit for unit, _ in _SECONDS) + ")", re.ASCII
)
_WHOLE = re.compile(f"(?:{_PART.pattern})+", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:e-\d+)?", re.ASCII)
_LONGEST = 10 * 365 * 86400.0


def seconds_of(value: object) -> float:
    """``5m``, ``1h30m``, ``28s`` or ``300ms`` in seconds; a bare number is seconds already.

    Raises:
        ValueError: the text is no duration, or is longer than ten years.
    """
    text = "" if isinstance(value, bool) else str(value).strip()
    if _WHOLE.fullmatch(text):
        units = dict(_SECONDS)
        seconds = sum(float(number) * units[unit] for number, unit in _PART.findall(text))
    elif _NUMBER.fullmatch(text):
        seconds = float(text)
    else:
        raise ValueError("is no duration; write it as Go does, for example 5m, 28s or 300ms")
    if seconds > _LONGEST:
        raise ValueError("is more than ten years; write for example 5m, 28s or 300ms")
    return seconds


def go_duration(seconds: float) -> str:
    """The duration as Go prints it: ``5m0s``, ``28s``, ``300ms``, ``0s``. To the microsecond."""
    micros = round(seconds * 1_000_000)
    if micros == 0:
        return "0s"
    if micros < 1000:
        return f"{micros}µs"
    if micros < 1_000_000:
        return f"{_decimal(micros, 1000)}ms"
    minutes, rest = divmod(micros, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{text}{_decimal(rest, 1_000_000)}s"


def _decimal(count: int, per: int) -> str:
    whole, fraction = divmod(count, per)
    if not fraction:
        return str(whole)
    return f"{whole}.{fraction:0{len(str(per)) - 1}d}".rstrip("0")
