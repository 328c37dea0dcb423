"""Blocking work beside the loop: each call within its time; a late one is joined, not repeated.

A vendor's hook cannot be interrupted. When it takes longer than it may, whoever waits is told so,
and the next to ask for the same waits for the same call: never are two of them under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from hami.blocking.daemon_threads import Workers
from hami.domain.errors import HamiError

P = ParamSpec("P")
T = TypeVar("T")

Key = tuple[str | int, ...]
"""What is called, and about what: its words say it to people."""

AT_ONCE = 8
"""Threads: so many hooks may hang before others wait."""
KEPT = 60.0
"""Seconds that a late answer is kept for whoever asks again; later it may not be true any more."""


class TooLate(HamiError):
    """A call took longer than it may; it goes on, and may be asked for again."""


class Threads:
    """Runs what blocks in threads. Hooks and the disk have their own, so that neither waits.

    ``failures`` counts the calls of :meth:`run` that raised ``counted``.
    """

    def __init__(
        self,
        name: str,
        at_once: int = AT_ONCE,
        *,
        kept: float = KEPT,
        counted: type[Exception] = HamiError,
    ) -> None:
        self.name = name
        self.failures = 0
        self._counted = counted
        self._kept = kept
        self._workers = Workers(at_once, name)
        self._calls: dict[Key, asyncio.Future[Any]] = {}

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function`` in a thread, and wait as long as it takes."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._workers, partial(function, *args, **kwargs))
        except self._counted:
            self.failures += 1
            raise

    async def call(
        self,
        key: Key,
        seconds: float,
        function: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The answer of ``function``, or of the call with this key that is under way.

        Raises:
            TooLate: not within ``seconds``.
            Exception: what the function raised.
        """
        future = self._calls.get(key)
        if future is None:
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._workers, partial(function, *args, **kwargs))
            self._calls[key] = future
        if not await self._done(key, future, seconds):
            raise TooLate(f"{self.name} {_said(key)} takes longer than {seconds:g} s and goes on")
        self._forget(key, future)
        answer: T = future.result()
        return answer

    def under_way(self, *words: str | int) -> bool:
        """Whether a call whose key begins with these words has not ended."""
        return self._running(words) is not None

    async def over(self, seconds: float, *words: str | int) -> None:
        """Wait until no call whose key begins with these words is under way.

        Raises:
            TooLate: not within ``seconds``.
        """
        end = asyncio.get_running_loop().time() + seconds
        while (running := self._running(words)) is not None:
            left = end - asyncio.get_running_loop().time()
            await asyncio.wait([running], timeout=max(0.0, left))
            if not running.done():
                raise TooLate(f"{self.name} {_said(words)} still goes on")

    def stalled(self) -> float:
        """For how many seconds no thread took a call that waits: all of them hang, or are slow."""
        return self._workers.stalled()

    def close(self) -> None:
        """Take no more work, and leave behind what hangs."""
        self._workers.shutdown()
        for future in self._calls.values():
            future.cancel()

    def _running(self, words: Key) -> asyncio.Future[Any] | None:
        for key, future in self._calls.items():
            if key[: len(words)] == words and not future.done():
                return future
        return None

    async def _done(self, key: Key, future: asyncio.Future[Any], seconds: float) -> bool:
        """Whether the call ends in time; if not, its answer is kept for the next to ask."""
        try:
            await asyncio.wait([future], timeout=seconds)
        except asyncio.CancelledError:
            self._leave(key, future)
            raise
        if future.done():
            return True
        self._leave(key, future)
        return False

    def _leave(self, key: Key, future: asyncio.Future[Any]) -> None:
        def ended(future: asyncio.Future[Any]) -> None:
            if not future.cancelled():
                future.exception()  # nobody may come back for it: no warning of the loop's
            future.get_loop().call_later(self._kept, self._forget, key, future)

        future.add_done_callback(ended)

    def _forget(self, key: Key, future: asyncio.Future[Any]) -> None:
        if self._calls.get(key) is future:
            del self._calls[key]


def _said(key: Key) -> str:
    return " ".join(map(str, key))
