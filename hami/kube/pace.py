"""How fast: a token bucket for calls, back-off between tries, and short turns on the loop."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

TURN = 0.0005
"""Seconds of work before others may run: half of the millisecond that a filter may be delayed."""


class TokenBucket:
    """``rate`` tokens per second, ``burst`` at once; a rate of 0 is no limit."""

    def __init__(
        self, *, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = float(max(burst, 1))
        self._clock = clock
        self._tokens = self._burst
        self._at = clock()

    def reserve(self) -> float:
        """Take a token, perhaps a future one; the seconds until it may be used."""
        if self._rate <= 0:
            return 0.0
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def take(self) -> bool:
        """Take a token if one is there."""
        if self._rate <= 0:
            return True
        self._fill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def give_back(self) -> None:
        """Return a token that was not used."""
        self._tokens = min(self._burst, self._tokens + 1)

    async def wait(self) -> None:
        """Take a token, first come first served, and sleep until it may be used."""
        seconds = self.reserve()
        if not seconds:
            return
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.give_back()
            raise

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now


class Backoff:
    """Growing delays between tries: doubled each time, up to ``most``, each cut by up to half.

    The random cut keeps many clients from coming back at the same moment.
    """

    def __init__(self, *, first: float = 0.2, most: float = 30.0) -> None:
        self._first = first
        self._most = most
        self._next = first

    def delay(self) -> float:
        """Seconds to wait before the next try."""
        seconds = self._next
        self._next = min(self._most, seconds * 2)
        return seconds * random.uniform(0.5, 1.0)  # noqa: S311 -- jitter, not a secret

    def reset(self) -> None:
        """Begin again with the shortest delay, because something worked."""
        self._next = self._first


class Turns:
    """Work in turns: ``await turns.pause()`` between two items lets others run when time is up.

    ``rest``: seconds until the next turn, by default as long as a turn. An answer to an HTTP
    request takes several rounds of the loop, and without a rest would wait for a turn in each of
    them. With 0 other work has one round.
    """

    def __init__(self, seconds: float = TURN, rest: float = TURN) -> None:
        self._seconds = seconds
        self._rest = rest
        self._end = time.perf_counter() + seconds

    async def pause(self) -> None:
        if time.perf_counter() >= self._end:
            await asyncio.sleep(self._rest)
            self._end = time.perf_counter() + self._seconds
