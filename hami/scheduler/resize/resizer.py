"""Carries out one resize: reserved, signed, written once, and in force when the watch shows it.

A patch that got no answer may yet be carried out, so it is sent again until somebody says what
became of it; it is the same bytes, and its tests admit it once. Meanwhile the pod is charged the
larger of both allocations. A crash at any point leaves what the pod's annotations say.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import structlog

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.resizes import ResizeRefusal
from hami.domain.units import PodUid
from hami.kube.client import KubeClient
from hami.kube.errors import CONFLICT, INVALID, NOT_FOUND, ApiError
from hami.kube.leases.leadership import Leadership
from hami.kube.resources import PODS
from hami.scheduler.bookings.charges import Charge
from hami.scheduler.bookings.decision import CannotBeWritten, resize_annotations, signed
from hami.scheduler.bookings.resizes import PendingResize
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.events import PodSeen
from hami.signing import Signer
from hami.wire import keys
from hami.wire.resizes import Remembered, ResizeBody, read_remembered, remember

LOOK_AGAIN = 1.0
"""Seconds until the books are looked at again, should the watch say nothing: a pod may be gone."""

NotDoneWord = Literal[
    "not_leading", "not_found", "busy", "reused_id", "superseded", "refused", "conflict",
    "unknown", "error",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The pod has this allocation; ``again``: since an earlier request with the same id."""

    pod: Pod
    allocation: PodAllocation
    generation: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class NotDone:
    """Nothing has changed, or (``unknown``) nobody can tell yet; the text is for people."""

    word: NotDoneWord
    text: str
    refusals: tuple[ResizeRefusal, ...] = ()


Outcome = Done | NotDone


@dataclass(frozen=True, slots=True)
class Told:
    """An event on the pod."""

    reason: str
    text: str
    warning: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeSettings:
    """In seconds. ``timeout``: for one patch; ``retry``: between patches of unknown outcome;
    ``patience``: until the caller has an answer.
    """

    timeout: float = 5.0
    retry: float = 1.0
    patience: float = 8.0


@dataclass(slots=True, eq=False)
class _Job:
    """One resize under way. ``operations`` is the JSON patch that makes it."""

    body: ResizeBody
    pending: PendingResize
    operations: list[dict[str, Any]]
    seen: asyncio.Event = field(default_factory=asyncio.Event)
    written: bool = False

    @property
    def done(self) -> Done:
        pending = self.pending
        return Done(pod=pending.pod, allocation=pending.allocation, generation=pending.generation)


class Resizer:
    """Owns the resizes under way, one at a time for each pod."""

    def __init__(
        self,
        state: ClusterState,
        client: KubeClient,
        leadership: Leadership,
        *,
        settings: Callable[[], ResizeSettings],
        signer: Callable[[], Signer],
        told: Callable[[Pod, Told], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``told`` hears of every resize that was made, or refused for what it asks."""
        self._state = state
        self._client = client
        self._leadership = leadership
        self._settings = settings
        self._signer = signer
        self._told = told
        self._clock = clock
        self._jobs: dict[PodUid, _Job] = {}
        self._tasks: dict[PodUid, asyncio.Task[Outcome]] = {}
        self._posting: set[PodUid] = set()
        self._lost_until = float("-inf")
        self._log = structlog.get_logger("hami.resizing")

    async def resize(self, namespace: str, name: str, body: ResizeBody) -> Outcome:
        """Never raises for what a caller sends or the API server answers."""
        if not self._leadership.leading:
            return self._not_leading()
        try:
            # By uid and as it is now: an older pod of this name may be in the books still.
            pod = await self._client.get(PODS, name, namespace=namespace)
        except ApiError as error:
            word: NotDoneWord = "not_found" if error.status == NOT_FOUND else "error"
            return NotDone(word, str(error))
        if (job := self._jobs.get(pod.uid)) is not None:
            return await self._joined(job, body)
        charge = self._state.charges.get(pod.uid)
        if charge is None:
            return NotDone("busy", f"pod {pod.full_name} is not bound with devices, or just now")
        if (known := self._known(pod, charge, body)) is not None:
            return known
        begun = self._begun(charge, body)
        return begun if isinstance(begun, NotDone) else await self._answer(begun)

    def _not_leading(self) -> NotDone:
        holder = self._leadership.holder or "none"
        return NotDone("not_leading", f"this replica does not lead; {holder} does")

    async def _joined(self, job: _Job, body: ResizeBody) -> Outcome:
        """The same request once more while it is under way; any other has to wait."""
        if body != job.body:
            return NotDone(
                "busy",
                f"another resize of pod {job.pending.pod.full_name} is under way, with the id "
                f"{job.body.request_id}; try again",
            )
        return await self._answer(job)

    def _known(self, pod: Pod, charge: Charge, body: ResizeBody) -> Outcome | None:
        """What became of the request, if it has been made before."""
        # What was read may be older than the books by now, and the books older than the pod.
        remembered = {
            one.request_id: one
            for seen in (charge.pod, pod)
            for one in read_remembered(seen.annotations.get(keys.RESIZES, ""))
        }
        known = remembered.get(body.request_id)
        if known is None:
            return None
        if known.digest != body.digest:
            text = f"request {body.request_id} asked for something else before; take a new id"
            return NotDone("reused_id", text)
        if charge.generation < known.generation:
            return NotDone("busy", "the books are not up to date with the pod yet; try again")
        if charge.generation > known.generation:
            return NotDone(
                "superseded",
                f"request {body.request_id} became generation {known.generation}; generation "
                f"{charge.generation} is in force",
            )
        return Done(
            pod=pod,
            allocation=charge.account.allocation,
            generation=charge.generation,
            again=True,
        )

    def _begun(self, charge: Charge, body: ResizeBody) -> _Job | NotDone:
        """Reserve in one turn, and begin to write it."""
        uid = charge.pod.uid
        pending = self._state.resizes.reserve(uid, body.wanted)
        if not isinstance(pending, PendingResize):
            refused = NotDone("refused", "; ".join(map(str, pending)), pending)
            self._told(charge.pod, Told("ResizeRefused", refused.text, warning=True))
            return refused
        try:
            job = _Job(body, pending, self._operations(pending, body))
        except Exception as error:
            self._state.resizes.end(uid)
            if isinstance(error, CannotBeWritten):
                return NotDone("error", str(error))
            raise
        self._jobs[uid] = job
        task = asyncio.create_task(self._carried_out(job))
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._ended(job, done))
        return job

    def _operations(self, pending: PendingResize, body: ResizeBody) -> list[dict[str, Any]]:
        """The patch: what is new, if the pod is the same and its allocation the former one."""
        pod, table = pending.pod, self._state.table
        written = resize_annotations(pod, pending.allocation, table, datetime.now(UTC))
        made = signed(pod, pending.allocation, written, table, self._signer(), pending.generation)
        self._state.resizes.sign(pod.uid, made.signature)
        new = Remembered(body.request_id, pending.generation, body.digest)
        known = read_remembered(pod.annotations.get(keys.RESIZES, ""))
        former = pod.annotations[keys.ALLOCATION_SIGNATURE]
        return [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": _path(keys.ALLOCATION_SIGNATURE), "value": former},
            *_added({**made.annotations, keys.RESIZES: remember(known, new)}),
        ]

    async def _answer(self, job: _Job) -> Outcome:
        """When it has come to its end, or after a while what is known of it."""
        task = self._tasks[job.pending.pod.uid]
        await asyncio.wait([task], timeout=self._settings().patience)
        if task.done() and not task.cancelled():
            return task.result()
        if job.written:
            return job.done
        text = "whether it is written is not known yet; ask again with the same id"
        return NotDone("unknown", text)

    def _ended(self, job: _Job, task: asyncio.Task[Outcome]) -> None:
        uid = job.pending.pod.uid
        del self._jobs[uid], self._tasks[uid]
        self._state.resizes.end(uid)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._log.error("a resize failed", pod=job.pending.pod.full_name, exc_info=error)
            return
        if isinstance(task.result(), Done):
            self._told(job.pending.pod, Told("Resized", _said(job.pending), warning=False))

    async def _carried_out(self, job: _Job) -> Outcome:
        pod, refused = job.pending.pod, await self._written(job)
        if refused is not None:
            return refused
        job.written = True
        while pod.uid in self._state.charges and not self._is_seen(job):
            try:
                async with asyncio.timeout(LOOK_AGAIN):
                    await job.seen.wait()
            except TimeoutError:
                continue
        return job.done

    def _is_seen(self, job: _Job) -> bool:
        """The books have it, or a newer one."""
        charge = self._state.charges.get(job.pending.pod.uid)
        return charge is not None and charge.generation >= job.pending.generation

    def pod_seen(self, event: PodSeen) -> None:
        """The informer has shown a pod."""
        if (job := self._jobs.get(event.pod.uid)) is not None and self._is_seen(job):
            job.seen.set()

    async def _written(self, job: _Job) -> NotDone | None:
        """None: the patch was carried out."""
        pod, lost = job.pending.pod, False
        while self._leadership.leading:
            try:
                await self._patch(job)
                return None
            except ApiError as error:
                lost = lost or error.outcome_unknown
                if not lost:
                    return _refused(pod, error)
                settled = await self._settled(job, error)
            if settled == "written":
                return None
            if settled is not None:
                return settled
            await asyncio.sleep(self._settings().retry)
        # Nothing is sent that could arrive after our term. Our books follow the pod from now on, as
        # the next leader's do.
        return self._not_leading()

    async def _patch(self, job: _Job) -> None:
        pod, timeout = job.pending.pod, self._settings().timeout
        self._posting.add(pod.uid)
        try:
            await self._client.patch(
                PODS,
                pod.name,
                job.operations,
                namespace=pod.namespace,
                kind="json",
                timeout=timeout,
            )
        except BaseException as error:
            if not isinstance(error, ApiError) or error.outcome_unknown:
                self._lost_until = self._clock() + timeout
            raise
        finally:
            self._posting.discard(pod.uid)

    async def _settled(self, job: _Job, error: ApiError) -> NotDone | Literal["written"] | None:
        """What became of a patch without an answer, after ``error``; None: nobody knows yet."""
        pod = job.pending.pod
        if self._is_seen(job):
            return "written"
        try:
            found = await self._client.get(PODS, pod.name, namespace=pod.namespace)
        except ApiError as silence:
            return _refused(pod, silence) if silence.status == NOT_FOUND else None
        if found.uid != pod.uid:
            return NotDone("not_found", f"pod {pod.full_name} is another one by now")
        text = found.annotations.get(keys.ALLOCATION_SIGNATURE, "")
        if text == job.pending.signature:
            return "written"
        # Its tests fail now whenever it arrives; or it was refused, and no other is on its way.
        late = text != pod.annotations[keys.ALLOCATION_SIGNATURE]
        refused = not error.outcome_unknown and self._clock() >= self._lost_until
        return _refused(pod, error) if late or refused else None

    @property
    def quiet(self) -> bool:
        """No patch of ours can reach the API server any more."""
        return not self._posting and self._clock() >= self._lost_until

    async def close(self) -> None:
        """Stop; what became of the resizes under way, the next start reads from the pods."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _said(pending: PendingResize) -> str:
    changed = (
        f"container {new.name} has "
        + ", ".join(f"{g.device_id}: {g.memory_mib} MiB, {g.cores} %" for g in new.grants)
        + (f", up to {new.cores_limit} % where compute is idle" if new.cores_limit else "")
        for old, new in zip(pending.before.containers, pending.allocation.containers, strict=True)
        if old != new
    )
    return f"generation {pending.generation}: {'; '.join(changed) or 'as before'}"


def _refused(pod: Pod, error: ApiError) -> NotDone:
    if error.status == NOT_FOUND:
        return NotDone("not_found", f"pod {pod.full_name} is gone")
    if error.status in (INVALID, CONFLICT):
        text = f"the allocation of pod {pod.full_name} has changed meanwhile; try again"
        return NotDone("conflict", text)
    return NotDone("error", str(error))


def _path(annotation: str) -> str:
    """As a JSON pointer, RFC 6901."""
    return f"/metadata/annotations/{annotation.replace('~', '~0').replace('/', '~1')}"


def _added(annotations: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"op": "add", "path": _path(key), "value": text} for key, text in annotations.items()]
