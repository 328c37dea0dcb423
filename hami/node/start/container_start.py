"""A container starts: what kubelet is answered at Allocate and at PreStartContainer.

Allocate names ids and no pod, so the answer carries a fresh slice id, as the name of a CDI device
that nothing defines yet. kubelet writes the answer into its checkpoint, beside pod and container,
and asks again before it creates the container. PreStartContainer then finds in the checkpoint whose
the ids are, and has their slices prepared. (The API is described in
https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/.)

One call can mean several containers: an init container and a later one that inherits its ids, or
two pods, by a race in kubelet. Each is prepared on its own. One that is refused cannot start, for
its CDI spec is absent; so the call fails only when none could be prepared, or when one that is
refused has a spec from a former start.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from hami.domain.errors import Malformed
from hami.domain.slices import ContainerEdits
from hami.domain.units import PodUid
from hami.node.kubelet.checkpoint import CheckpointEntry, read_checkpoint
from hami.node.kubelet.device_list import DeviceList
from hami.node.kubelet.server import CallRefused
from hami.node.pod.pods import NotGranted
from hami.node.pod.refusal_causes import RefusalCause
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.live_slices import Outcome, Prepared
from hami.node.slice.other_agents import start_foreign
from hami.slices.files import StoreFailed

SLICE_ID_BYTES = 12
ANSWER_WITHIN = 25.0
"""Seconds; kubelet gives up after 30."""
REWRITTEN_WITHIN = 2.0
"""Seconds for kubelet to write its checkpoint again after it was sent the device list again."""
LOOK_EVERY = 0.05
REMEMBERED = 4096
"""Answers to Allocate; sets of ids come again, so that there are few more than ids."""

_NUMBER = re.compile(r"\d+")
_STILL = NotGranted("its slice is still being prepared", RefusalCause.LATE)

PREPARE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25)
"""In seconds. A start takes some 3 ms; kubelet is answered within 25 s."""


Prepare = Callable[[CheckpointEntry], Awaitable[Outcome]]
"""Makes the slice ready that our answer named; each mode of identity has its own."""


class StartReports(Protocol):
    """Hears of every outcome. Must not block."""

    def prepared(self, entry: CheckpointEntry, outcome: Prepared) -> None: ...

    def refused(self, entry: CheckpointEntry, outcome: NotGranted) -> None: ...


class StartCounts:
    """How the starts of containers went, and how long those took that were prepared.

    ``refused`` by cause, failures included. ``took``: how many took at most each of
    ``PREPARE_BUCKETS`` and more than the one before, then those that took longer; ``seconds`` is
    the sum.
    """

    def __init__(self) -> None:
        self.prepared = 0
        self.refused = dict.fromkeys(RefusalCause, 0)
        self.took = [0] * (len(PREPARE_BUCKETS) + 1)
        self.seconds = 0.0

    def count(self, outcome: Outcome, seconds: float) -> None:
        """One container; ``seconds`` since kubelet asked."""
        if isinstance(outcome, NotGranted):
            self.refused[outcome.cause] += 1
            return
        self.prepared += 1
        self.took[bisect_left(PREPARE_BUCKETS, seconds)] += 1
        self.seconds += seconds


class Starts:
    """Answers PreStartContainer for the vendor's count resource; ``counts`` says how that went.

    ``folder`` is where kubelet's checkpoint lies; sending ``devices`` again makes kubelet write it
    again. ``locked``: slices of the mode ``lock`` are ours too.
    """

    def __init__(
        self,
        around: AgentContext,
        folder: Path,
        prepare: Prepare,
        reports: StartReports,
        devices: DeviceList,
        *,
        locked: bool = False,
        rewritten_within: float = REWRITTEN_WITHIN,
        answer_within: float = ANSWER_WITHIN,
    ) -> None:
        self._around = around
        self._resource = around.vendor.profile.resources.count
        self._kind = around.kind
        self._folder = folder
        self._prepare = prepare
        self._reports = reports
        self._devices = devices
        self._locked = locked
        self._rewritten_within = rewritten_within
        self._answer_within = answer_within
        self.counts = StartCounts()
        self._issued: dict[frozenset[str], str] = {}
        self._running: dict[tuple[str, PodUid, str], asyncio.Task[Outcome]] = {}
        self._log = structlog.get_logger("hami.starting")

    def issue(self, ids: frozenset[str], slice_id: str) -> None:
        """Remember that Allocate answered these ids with this slice id."""
        self._issued.pop(ids, None)
        self._issued[ids] = slice_id
        if len(self._issued) > REMEMBERED:
            del self._issued[next(iter(self._issued))]

    async def start(self, ids: frozenset[str]) -> None:
        """Prepare whatever may start with these ids.

        Raises:
            CallRefused: nothing could be prepared; the text says for each container why.
        """
        asked = asyncio.get_running_loop().time()
        try:
            entries = await self._claimed(ids)
        except CallRefused:
            self.counts.refused[RefusalCause.CHECKPOINT] += 1
            raise
        tasks = [self._task(entry, asked) for entry in entries]
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
        """Whether one of these has a CDI spec already, so that only our refusal stops it."""
        ids = [entry.edits.cdi_device(self._kind) for entry in refused]
        if not ids:
            return False
        try:
            specified = await self._around.disk.run(self._around.folders.written)
        except StoreFailed as error:
            raise CallRefused(str(error)) from error
        return any(not id or id in specified for id in ids)

    def _outcome(self, task: asyncio.Task[Outcome]) -> Outcome:
        if task.cancelled():
            return NotGranted("the node agent is stopping", RefusalCause.STOPPING)
        if (error := task.exception()) is not None:
            # A defect of ours; kubelet tries again.
            said = f"the node agent failed: {type(error).__name__}: {error}"
            return NotGranted(said, RefusalCause.DEFECT)
        return task.result()

    async def _claimed(self, ids: frozenset[str]) -> list[CheckpointEntry]:
        """:meth:`_entries`, of which there must be one.

        Raises:
            CallRefused: kubelet's checkpoint names none, or cannot be read.
        """
        entries = await self._entries(ids)
        if not entries:
            raise CallRefused(
                f"kubelet's checkpoint in {self._folder} names no container that holds "
                f"{', '.join(sorted(ids))} of {self._resource}; kubelet tries again"
            )
        return entries

    async def _entries(self, ids: frozenset[str]) -> list[CheckpointEntry]:
        """The containers that hold exactly these ids.

        kubelet's checkpoint is read again while it lacks the answer that Allocate gave last.
        """
        loop = asyncio.get_running_loop()
        found = await self._read(ids)
        newest = self._issued.get(ids, "")
        if self._has(found, newest):
            return _readable(found, self._folder)
        # kubelet may overwrite its checkpoint with an older one; any device list makes it write.
        self._devices.resend()
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
        """Whether the newest answer is among them; if none is remembered (empty), any will do."""
        if isinstance(entries, Malformed):
            return False
        if not newest:
            return bool(entries)
        return any(self._slice_id(entry) == newest for entry in entries)

    def _slice_id(self, entry: CheckpointEntry) -> str:
        """The slice that our answer named; empty if another agent answered."""
        named = entry.edits.cdi_device(self._kind)
        return entry.locked_slice_id(self._kind) if self._locked and not named else named

    async def _read(self, ids: frozenset[str]) -> list[CheckpointEntry] | Malformed:
        entries = await self._around.disk.run(read_checkpoint, self._folder)
        if isinstance(entries, Malformed):
            return entries
        return [e for e in entries if e.resource == self._resource and e.ids == ids]

    def _task(self, entry: CheckpointEntry, asked: float) -> asyncio.Task[Outcome]:
        """Prepare a container, or join the preparation that a former call of kubelet's began."""
        slice_id = self._slice_id(entry)
        key = (slice_id, entry.pod_uid, entry.container)
        if (running := self._running.get(key)) is not None:
            return running
        task = self._around.slices.in_turn(entry.pod_uid, slice_id, lambda: self._work(entry))
        self._running[key] = task

        def done(task: asyncio.Task[Outcome]) -> None:
            del self._running[key]
            outcome = self._outcome(task)
            self.counts.count(outcome, task.get_loop().time() - asked)
            match outcome:
                case Prepared():
                    self._reports.prepared(entry, outcome)
                case NotGranted():
                    self._reports.refused(entry, outcome)

        task.add_done_callback(done)
        return task

    async def _work(self, entry: CheckpointEntry) -> Outcome:
        try:
            if self._slice_id(entry):
                return await self._prepare(entry)
            return await start_foreign(entry, self._around)
        except Exception:
            self._log.exception("a preparation failed", container=entry.container)
            raise


class KubeletCalls:
    """kubelet's calls in the mode ``kubelet``. Allocate is answered without knowing for whom.

    The answer carries a fresh slice id as the name of a CDI device. kubelet writes it down beside
    pod and container, and nothing defines that device before PreStartContainer does.
    """

    def __init__(self, kind: str, hidden: Mapping[str, str], starts: Starts) -> None:
        self._kind = kind
        self._hidden = hidden
        self._starts = starts

    async def allocate(self, requests: Sequence[tuple[str, ...]]) -> Sequence[ContainerEdits]:
        return [self._answer(frozenset(ids)) for ids in requests]

    async def prefer(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        """The lowest free numbers: tokens are alike, and so those in use stay together."""
        chosen = list(dict.fromkeys(must_include))
        free = sorted(set(available) - set(chosen), key=_by_number)
        return [*chosen, *free[: max(0, size - len(chosen))]]

    async def prepare(self, ids: frozenset[str]) -> None:
        await self._starts.start(ids)

    def _answer(self, ids: frozenset[str]) -> ContainerEdits:
        slice_id = secrets.token_hex(SLICE_ID_BYTES)
        self._starts.issue(ids, slice_id)
        return ContainerEdits(env=dict(self._hidden), cdi_devices=(f"{self._kind}={slice_id}",))


def _by_number(token: str) -> tuple[int, str]:
    numbers = _NUMBER.findall(token)
    return (int(numbers[-1]) if numbers else 0), token


def _readable(entries: list[CheckpointEntry] | Malformed, folder: Path) -> list[CheckpointEntry]:
    if isinstance(entries, Malformed):
        raise CallRefused(
            f"kubelet's checkpoint in {folder} cannot be read: {entries.problem}; nobody can say "
            "whose container this is, restart kubelet"
        )
    return entries
