"""What runs in the caller's event loop: each part a task, and the first failure kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Parts:
    """Tasks by name; ``on_failure`` is told when one ends that should not."""

    def __init__(self, on_failure: Callable[[str, BaseException | None], None]) -> None:
        self._on_failure = on_failure
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks[name] = task
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and self._tasks.get(task.get_name()) is task:
            self._on_failure(task.get_name(), task.exception())

    async def stop(self, name: str) -> None:
        """End one part, and wait for its end."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """End all."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
