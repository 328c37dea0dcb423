"""How often to tell of the same trouble with the API server."""

from __future__ import annotations

import time

TELL_EVERY = 60.0
"""Seconds between two lines about one outage."""


class Outage:
    """Decides when to tell of a failure: once a minute, and at once for another status."""

    def __init__(self) -> None:
        self._told_of: int | None = None
        self._told_at = 0.0

    def is_news(self, status: int) -> bool:
        """Whether to tell of this status (0: no answer). After a True the caller must tell."""
        now = time.monotonic()
        if status == self._told_of and now < self._told_at + TELL_EVERY:
            return False
        self._told_of, self._told_at = status, now
        return True

    def over(self) -> None:
        """End the outage: the next failure is a new one."""
        self._told_of = None
