"""How often the same trouble with the API server is told."""

from __future__ import annotations

import time

TELL_EVERY = 60.0
"""Seconds between two lines about one outage."""


class Outage:
    """Once a minute while it lasts; at once when the answer is another one."""

    def __init__(self) -> None:
        self._told_of: int | None = None
        self._told_at = 0.0

    def is_news(self, status: int) -> bool:
        """Whether to tell of this answer (0: none came); asked by who is about to."""
        now = time.monotonic()
        if status == self._told_of and now < self._told_at + TELL_EVERY:
            return False
        self._told_of, self._told_at = status, now
        return True

    def over(self) -> None:
        """The next trouble is another one."""
        self._told_of = None
