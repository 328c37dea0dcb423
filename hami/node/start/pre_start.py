"""PreStartContainer: which containers may kubelet mean by these ids, and are their slices ready?

kubelet names ids, not a container. Its checkpoint, written after our answer to Allocate, says whose
they are; one call can mean several: an init container and a later one that inherits its ids, or
two pods, by a race in kubelet. Each is prepared on its own. One that is refused cannot start, for
its CDI spec is absent; so the call fails only when none could be prepared, or when one that is
refused has a spec from a former start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog

from hami.domain.errors import Malformed
from hami.domain.units import PodUid
from hami.node.device.threads import Threads
from hami.node.disk.files import StoreFailed
from hami.node.kubelet.checkpoint import CheckpointEntry, read_checkpoint
from hami.node.kubelet.server import CallRefused
from hami.node.pod.granting import NotGranted
from hami.node.slice.preparing import Outcome, Prepared

T = TypeVar("T")

ANSWER_WITHIN = 25.0
"""Seconds; kubelet gives up after 30."""
REWRITTEN_WITHIN = 2.0
"""Seconds for kubelet to write its checkpoint again after it was sent the device list again."""
LOOK_EVERY = 0.05
REMEMBERED = 4096
"""Answers to Allocate; sets of ids come again, so that there are few more than ids."""

_STILL = NotGranted("its slice is still being prepared")


class StartReports(Protocol):
    """Told of every outcome; must not block."""

    def prepared(self, entry: CheckpointEntry, outcome: Prepared) -> None: ...

    def refused(self, entry: CheckpointEntry, outcome: NotGranted) -> None: ...


class Starts:
    """Answers PreStartContainer for one resource.

    ``prepare`` is asked about slices of ours, ``foreign`` about what another agent answered;
    ``specified`` (it blocks) says which slices have a CDI spec, ``resend`` makes kubelet write its
    checkpoint again. ``locked``: slices of the mode ``lock`` are ours too.
    """

    def __init__(
        self,
        resource: str,
        kind: str,
        folder: Path,
        *,
        prepare: Callable[[CheckpointEntry], Awaitable[Outcome]],
        foreign: Callable[[CheckpointEntry], Awaitable[Outcome]],
        reports: StartReports,
        specified: Callable[[], Collection[str]],
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
        self._specified = specified
        self._resend = resend
        self._disk = disk
        self._locked = locked
        self._rewritten_within = rewritten_within
        self._answer_within = answer_within
        self._issued: dict[frozenset[str], str] = {}
        self._running: dict[tuple[str, PodUid, str], asyncio.Task[Outcome]] = {}
        self._last: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._log = structlog.get_logger("hami.starting")

    def issue(self, ids: frozenset[str], slice_id: str) -> None:
        """Allocate answered this slice id for these ids."""
        self._issued.pop(ids, None)
        self._issued[ids] = slice_id
        if len(self._issued) > REMEMBERED:
            del self._issued[next(iter(self._issued))]

    def busy(self, slice_id: str) -> bool:
        """It is being prepared, or something else is done with it."""
        return ("slice", slice_id) in self._last

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
        refused = [
            (entry, one)
            for entry, one in zip(entries, outcomes, strict=True)
            if isinstance(one, NotGranted)
        ]
        if len(refused) < len(entries) and not await self._could_start(
            entry for entry, one in refused if not one.ended
        ):
            return
        raise CallRefused("; ".join(one.text for _, one in refused))

    async def _could_start(self, refused: Iterable[CheckpointEntry]) -> bool:
        """No missing CDI spec would keep one of these from starting."""
        ids = [entry.slice_id(self._kind) for entry in refused]
        if not ids:
            return False
        try:
            specified = await self._disk.run(self._specified)
        except StoreFailed as error:
            raise CallRefused(str(error)) from error
        return any(not id or id in specified for id in ids)

    def _outcome(self, task: asyncio.Task[Outcome]) -> Outcome:
        if task.cancelled():
            return NotGranted("the node agent is stopping")
        if (error := task.exception()) is not None:
            # A defect of ours; kubelet tries again.
            return NotGranted(f"the node agent failed: {type(error).__name__}: {error}")
        return task.result()

    async def _entries(self, ids: frozenset[str]) -> list[CheckpointEntry]:
        """Whoever holds exactly these ids; read again while the newest of them is missing."""
        loop = asyncio.get_running_loop()
        found = await self._read(ids)
        newest = self._issued.get(ids, "")
        if self._has(found, newest):
            return _readable(found, self._folder)
        # kubelet may overwrite its checkpoint with an older one; any device list makes it write.
        self._resend()
        end = loop.time() + self._rewritten_within
        while loop.time() < end:
            await asyncio.sleep(LOOK_EVERY)
            found = await self._read(ids)
            if self._has(found, newest):
                break
        entries = _readable(found, self._folder)
        if not newest or self._has(entries, newest):
            return entries
        # It was never admitted, or is gone: nobody needs to wait for it again.
        if self._issued.get(ids) == newest:
            del self._issued[ids]
        if self._locked:
            raise CallRefused(
                f"kubelet has not written down yet who got {', '.join(sorted(ids))} of "
                f"{self._resource} last; kubelet tries again"
            )
        return entries

    def _has(self, entries: list[CheckpointEntry] | Malformed, newest: str) -> bool:
        """The newest answer is among them; one that nobody knows any more (empty) may be any."""
        if isinstance(entries, Malformed):
            return False
        if not newest:
            return bool(entries)
        return any(self._slice_id(entry) == newest for entry in entries)

    def _slice_id(self, entry: CheckpointEntry) -> str:
        """Empty: another agent answered."""
        named = entry.slice_id(self._kind)
        return entry.locked_slice_id(self._kind) if self._locked and not named else named

    async def _read(self, ids: frozenset[str]) -> list[CheckpointEntry] | Malformed:
        entries = await self._disk.run(read_checkpoint, self._folder)
        if isinstance(entries, Malformed):
            return entries
        return [e for e in entries if e.resource == self._resource and e.ids == ids]

    def _task(self, entry: CheckpointEntry) -> asyncio.Task[Outcome]:
        """One preparation of a container at a time, which kubelet's retries join."""
        slice_id = self._slice_id(entry)
        key = (slice_id, entry.pod_uid, entry.container)
        if (running := self._running.get(key)) is not None:
            return running
        task = self._in_turn(entry.pod_uid, slice_id, lambda: self._work(entry))
        self._running[key] = task

        def done(task: asyncio.Task[Outcome]) -> None:
            del self._running[key]
            match self._outcome(task):
                case Prepared() as outcome:
                    self._reports.prepared(entry, outcome)
                case NotGranted() as outcome:
                    self._reports.refused(entry, outcome)

        task.add_done_callback(done)
        return task

    async def alone(self, pod: PodUid, slice_id: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do something else with a slice, when nothing of its pod is being prepared."""
        await self._in_turn(pod, slice_id, work)

    def _in_turn(
        self, pod: PodUid, slice_id: str, work: Callable[[], Awaitable[T]]
    ) -> asyncio.Task[T]:
        """After whatever is under way of the same pod, and of the same slice."""
        whose = [("pod", pod), *([("slice", slice_id)] if slice_id else [])]
        before = {self._last[one] for one in whose if one in self._last}
        task = asyncio.create_task(_after(before, work))
        self._last |= dict.fromkeys(whose, task)

        def ended(task: asyncio.Task[T]) -> None:
            for one in whose:
                if self._last.get(one) is task:
                    del self._last[one]

        task.add_done_callback(ended)
        return task

    async def _work(self, entry: CheckpointEntry) -> Outcome:
        try:
            if self._slice_id(entry):
                return await self._prepare(entry)
            return await self._foreign(entry)
        except Exception:
            self._log.exception("a preparation failed", container=entry.container)
            raise

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._last.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _after(before: Collection[asyncio.Task[Any]], work: Callable[[], Awaitable[T]]) -> T:
    if before:
        await asyncio.wait(before)
    return await work()


def _readable(entries: list[CheckpointEntry] | Malformed, folder: Path) -> list[CheckpointEntry]:
    if isinstance(entries, Malformed):
        raise CallRefused(
            f"kubelet's checkpoint in {folder} cannot be read: {entries.problem}; nobody can say "
            "whose container this is, restart kubelet"
        )
    return entries
