"""The handshake annotation, by which a HAMi scheduler asks a node's plugin for a sign of life.

The scheduler writes ``Requesting_<time>``, a living plugin replaces it by ``Reported <time>``;
schedulers up to HAMi 2.9 marked a dead one ``Deleted_<time>``. Times are wall clock times in the
scheduler's zone; the text does not name the zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

_TIME = re.compile(r"\d{4}-\d\d-\d\d ([01]\d|2[0-3]):\d\d:\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class Requesting:
    """A scheduler has waited for an answer since ``at``.

    ``at`` is local time without a zone, as written; None when it cannot be read.
    """

    at: datetime | None


@dataclass(frozen=True, slots=True)
class Reported:
    """The plugin answered; ``text`` is what follows the word, in the plugin's own format."""

    text: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A scheduler up to HAMi 2.9 gave the vendor up on this node."""


@dataclass(frozen=True, slots=True)
class Unintelligible:
    """No known text; it counts as no answer yet."""

    text: str


Handshake = Requesting | Reported | GivenUp | Unintelligible


def decode_handshake(text: str) -> Handshake:
    """Read the annotation's value; every text has a meaning."""
    # HAMi looks for this word anywhere in the value.
    if "Requesting" in text:
        return Requesting(_time(text.partition("_")[2]))
    if text.startswith("Reported"):
        return Reported(text.removeprefix("Reported").strip())
    if text.startswith("Deleted"):
        return GivenUp()
    return Unintelligible(text)


def _time(text: str) -> datetime | None:
    if not _TIME.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def encode_requesting(now: datetime) -> str:
    """``Requesting_2025-09-26 10:00:00``: the wall clock of ``now``; its zone is not written."""
    return f"Requesting_{now.replace(tzinfo=None).isoformat(' ', 'seconds')}"


def encode_reported(now: datetime) -> str:
    """``Reported 2025-09-26 10:00:00``: a plugin's answer, which every scheduler reads."""
    return f"Reported {now.replace(tzinfo=None).isoformat(' ', 'seconds')}"
