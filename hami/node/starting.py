"""PreStartContainer: which containers may kubelet mean by these ids, and are their slices ready?

kubelet names ids, not a container. Its checkpoint, written after our answer to Allocate, says whose
they are; one call can mean several: an init container and a later one that inherits its ids, or
two pods, by a race in kubelet. Each is prepared on its own. One that is refused cannot start, for
its CDI spec is absent; so the call fails only when none could be prepared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from hami.domain.errors import Malformed
from hami.domain.units import PodUid
from hami.node.checkpoint import Entry, read_checkpoint
from hami.node.granting import Refused
from hami.node.preparing import Outcome, Prepared
from hami.node.server import CallRefused
from hami.node.threads import Threads

ANSWER_WITHIN = 25.0
"""Seconds; kubelet gives up after 30."""
REWRITTEN_WITHIN = 2.0
"""Seconds for kubelet to write its checkpoint again after it was sent the device list again."""
LOOK_EVERY = 0.05

_STILL = Refused("its slice is still being prepared")


class Reports(Protocol):
    """Told of every outcome; must not block."""

    def prepared(self, entry: Entry, outcome: Prepared) -> None: ...

    def refused(self, entry: Entry, outcome: Refused) -> None: ...


class Starts:
    """Answers PreStartContainer for one resource.

    ``prepare`` is asked about slices of ours, ``foreign`` about what another agent answered;
    ``resend`` makes kubelet write its checkpoint again. ``locked``: slices of the mode ``lock`` are
    ours too.
    """

    def __init__(
        self,
        resource: str,
        kind: str,
        folder: Path,
        *,
        prepare: Callable[[Entry], Awaitable[Outcome]],
        foreign: Callable[[Entry], Awaitable[Outcome]],
        reports: Reports,
        resend: Callable[[], None],
        disk: Threads,
        locked: bool = False,
        rewritten_within: float = REWRITTEN_WITHIN,
        answer_within: float = ANSWER_WITHIN,
    ) -> None:
        self._resource = resource
        self._kind = kind
        self._folder = folder
        self._prepare = prepare
        self._foreign = foreign
        self._reports = reports
        self._resend = resend
        self._disk = disk
        self._locked = locked
        self._rewritten_within = rewritten_within
        self._answer_within = answer_within
        self._issued: dict[frozenset[str], str] = {}
        self._running: dict[str, asyncio.Task[Outcome]] = {}
        self._last: dict[PodUid, asyncio.Task[Outcome]] = {}

    def issue(self, ids: frozenset[str], slice_id: str) -> None:
        """Allocate answered this slice id for these ids."""
        self._issued[ids] = slice_id

    def busy(self, slice_id: str) -> bool:
        """It is being prepared."""
        return slice_id in self._running

    async def start(self, ids: frozenset[str]) -> None:
        """Prepare whatever may start with these ids.

        Raises:
            CallRefused: nothing could be prepared; the text says for each container why.
        """
        entries = await self._entries(ids)
        if not entries:
            raise CallRefused(
                f"kubelet's checkpoint in {self._folder} names no container that holds "
                f"{', '.join(sorted(ids))} of {self._resource}; kubelet tries again"
            )
        tasks = [self._task(entry) for entry in entries]
        _, late = await asyncio.wait(tasks, timeout=self._answer_within)
        outcomes = [_STILL if task in late else self._outcome(task) for task in tasks]
        if any(isinstance(one, Prepared) for one in outcomes) and not any(
            self._could_start(entry, one) for entry, one in zip(entries, outcomes, strict=True)
        ):
            return
        raise CallRefused("; ".join(one.text for one in outcomes if isinstance(one, Refused)))

    def _could_start(self, entry: Entry, outcome: Outcome) -> bool:
        """It was refused, and no missing CDI spec would keep it from starting."""
        guarded = bool(entry.slice_id(self._kind))
        return isinstance(outcome, Refused) and not outcome.ended and not guarded

    def _outcome(self, task: asyncio.Task[Outcome]) -> Outcome:
        if task.cancelled():
            return Refused("the node agent is stopping")
        if (error := task.exception()) is not None:
            # A defect of ours. It is logged where tasks end; kubelet tries again.
            return Refused(f"the node agent failed: {type(error).__name__}: {error}")
        return task.result()

    async def _entries(self, ids: frozenset[str]) -> list[Entry]:
        """Whoever holds exactly these ids; read again while the newest of them is missing."""
        loop = asyncio.get_running_loop()
        found = await self._read(ids)
        newest = self._issued.get(ids)
        if newest is None or self._has(found, newest):
            return found
        # kubelet may overwrite its checkpoint with an older one; any device list makes it write.
        self._resend()
        end = loop.time() + self._rewritten_within
        while loop.time() < end:
            await asyncio.sleep(LOOK_EVERY)
            found = await self._read(ids)
            if self._has(found, newest):
                return found
        # It was never admitted, or is gone: nobody needs to wait for it again.
        if self._issued.get(ids) == newest:
            del self._issued[ids]
        if self._locked:
            raise CallRefused(
                f"kubelet has not written down yet who got {', '.join(sorted(ids))} of "
                f"{self._resource} last; kubelet tries again"
            )
        return found

    def _has(self, entries: list[Entry], slice_id: str) -> bool:
        return any(self._slice_id(entry) == slice_id for entry in entries)

    def _slice_id(self, entry: Entry) -> str:
        """Empty: another agent answered."""
        named = entry.slice_id(self._kind)
        return entry.locked_slice_id(self._kind) if self._locked and not named else named

    async def _read(self, ids: frozenset[str]) -> list[Entry]:
        entries = await self._disk.run(read_checkpoint, self._folder)
        if isinstance(entries, Malformed):
            raise CallRefused(
                f"kubelet's checkpoint in {self._folder} cannot be read: {entries.problem}; "
                "nobody can say whose container this is, restart kubelet"
            )
        return [e for e in entries if e.resource == self._resource and e.ids == ids]

    def _task(self, entry: Entry) -> asyncio.Task[Outcome]:
        """One preparation of a slice at a time, which kubelet's retries join; and those of a pod
        one after the other.
        """
        key = self._slice_id(entry) or f"{entry.pod_uid}/{entry.container}"
        if (running := self._running.get(key)) is not None:
            return running
        task = asyncio.create_task(self._work(entry, self._last.get(entry.pod_uid)))
        self._running[key] = task
        self._last[entry.pod_uid] = task

        def done(task: asyncio.Task[Outcome]) -> None:
            self._running.pop(key, None)
            if self._last.get(entry.pod_uid) is task:
                del self._last[entry.pod_uid]
            match self._outcome(task):
                case Prepared() as outcome:
                    self._reports.prepared(entry, outcome)
                case Refused() as outcome:
                    self._reports.refused(entry, outcome)

        task.add_done_callback(done)
        return task

    async def _work(self, entry: Entry, before: asyncio.Task[Outcome] | None) -> Outcome:
        if before is not None:
            await asyncio.wait([before])
        if self._slice_id(entry):
            return await self._prepare(entry)
        return await self._foreign(entry)

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
