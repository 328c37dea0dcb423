"""Threads that do not keep the process from ending: what hangs in a driver is left behind.

Python waits for the threads of its own pool when it ends, so that a hook that hangs would keep an
agent that was told to stop until it is killed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from threading import Condition, Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Executor):
    """A pool of at most ``at_once`` daemon threads, made when they are needed."""

    def __init__(self, at_once: int, name: str) -> None:
        self._at_once = at_once
        self._name = name
        self._changed = Condition()
        self._waiting: deque[tuple[Future[Any], Callable[[], None]]] = deque()
        self._threads = 0
        self._idle = 0
        self._taken_at = 0.0
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                answer = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 -- it is whoever waits that gets it
                future.set_exception(error)
            else:
                future.set_result(answer)

        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._name}: no more work is taken")
            if not self._waiting:
                self._taken_at = time.monotonic()
            self._waiting.append((future, work))
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif self._threads < self._at_once:
                self._threads += 1
                name = f"{self._name}_{self._threads}"
                Thread(target=self._serve, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 -- Executor's signature
        """Let running work go on, and never begin what waits."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
            self._changed.notify_all()
        for future, _ in waiting:
            future.cancel()

    def stalled(self) -> float:
        """For how many seconds no thread took the work that waits; 0 while none waits."""
        with self._changed:
            return time.monotonic() - self._taken_at if self._waiting else 0.0

    def _serve(self) -> None:
        while (work := self._next()) is not None:
            work()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._idle += 1
            while not self._waiting and not self._closed:
                self._changed.wait()
            self._idle -= 1
            self._taken_at = time.monotonic()
            return self._waiting.popleft()[1] if self._waiting else None
