"""Runs a service in the foreground until a signal, and lets it finish."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from hami.domain.errors import HamiError

_INTERRUPTED = 130
_ENDING = (signal.SIGTERM, signal.SIGINT)


def run_until_signal(serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a service; the first SIGTERM or SIGINT cancels it, the second ends the process at once.

    Raises:
        HamiError: something must be changed; taken out of a task group too.
    """
    # A signal that comes before the loop can handle it waits: a half-made loop prints warnings.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        # asyncio's own loop: uvloop answered no faster here when measured.
        asyncio.run(_cancelled_by_signals(serve, before))
    except BaseExceptionGroup as group:
        raise _first_hami_error(group) or group from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _first_hami_error(group: BaseExceptionGroup[BaseException]) -> HamiError | None:
    """The first error that a person can mend, if the group has no other errors."""
    ours, others = group.split(HamiError)
    if ours is None or others is not None:
        return None
    first: BaseException = ours
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first if isinstance(first, HamiError) else None


async def _cancelled_by_signals(
    serve: Callable[[], Coroutine[Any, Any, None]], unblocked: set[int | signal.Signals]
) -> None:
    task = asyncio.ensure_future(serve())
    told: list[signal.Signals] = []

    def stop(which: signal.Signals) -> None:
        if told:
            sys.stderr.flush()
            os._exit(_INTERRUPTED)
        told.append(which)
        task.cancel()

    loop = asyncio.get_running_loop()
    for which in _ENDING:
        loop.add_signal_handler(which, stop, which)
    signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    try:
        await task
    except asyncio.CancelledError:
        if not told:
            raise
