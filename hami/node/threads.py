"""Blocking work beside the loop: each call within its time; a late one is joined, not repeated.

A vendor's hook cannot be interrupted. When it takes longer than it may, whoever waits is told so,
and the next to ask for the same waits for the same call: never are two of them under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from hami.domain.errors import HamiError

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 16
"""Threads: so many hooks may hang before others wait."""


class TooLate(HamiError):
    """A call took longer than it may; it goes on, and may be asked for again."""


class Threads:
    """One for vendors' hooks, one for the disk, so that neither keeps the other waiting."""

    def __init__(self, name: str, at_once: int = AT_ONCE) -> None:
        self._name = name
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix=name)
        self._running: dict[Hashable, asyncio.Future[Any]] = {}

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Without a limit."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(function, *args, **kwargs))

    async def call(
        self,
        key: Hashable,
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
        future = self._running.get(key)
        if future is None:
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._pool, partial(function, *args, **kwargs))
            self._running[key] = future
        try:
            async with asyncio.timeout(seconds):
                answer: T = await asyncio.shield(future)
        except TimeoutError:
            if future.done():
                self._running.pop(key, None)
                raise  # the function's own
            future.add_done_callback(_seen)
            raise TooLate(
                f"{self._name} {_said(key)} takes longer than {seconds:g} s and goes on"
            ) from None
        except asyncio.CancelledError:
            future.add_done_callback(_seen)
            raise
        except BaseException:
            self._running.pop(key, None)
            raise
        self._running.pop(key, None)
        return answer

    def close(self) -> None:
        """What hangs is left behind."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _seen(future: asyncio.Future[Any]) -> None:
    """Nobody may come back for it; its exception is not worth a warning of the loop."""
    if not future.cancelled():
        future.exception()


def _said(key: Hashable) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
