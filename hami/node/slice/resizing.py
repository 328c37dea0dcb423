"""Live resize: a newer signed allocation of a pod that runs becomes its limits at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

import structlog

from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.kube.node_pod import NodePod
from hami.kube.pace import Backoff
from hami.node.pod.pods import Granted, NotGranted
from hami.node.pod.refusal_causes import RefusalCause
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.live_slices import LiveSlice, Outcome
from hami.node.slice.preparing import MakeRoom, resize
from hami.wire import keys

RESIZED, NOT_RESIZED = "SliceResized", "SliceNotResized"
FIRST_RETRY, LAST_RETRY = 2.0, 300.0
"""Seconds until a resize that was refused is tried again: what stood in the way may be gone."""


@dataclass(slots=True)
class _Refusals:
    """The refusals of one pod and signature: the last text, and the pause until the next try."""

    signature: str | None
    text: str
    backoff: Backoff


class Resizing:
    """Gives slices the limits of a newer allocation (by its generation) of the same devices.

    ``counts`` says how often that came to what: a try that is refused is made again.
    """

    def __init__(
        self,
        around: AgentContext,
        make_room: MakeRoom,
        *,
        first_retry: float = FIRST_RETRY,
    ) -> None:
        self._mine = around
        self.counts = {"resized": 0, "refused": 0, "failed": 0}
        self._slices = around.slices
        self._make_room = make_room
        self._first_retry = first_retry
        self._due: dict[PodUid, NodePod] = {}
        self._refusals: dict[PodUid, _Refusals] = {}
        self._later: dict[PodUid, asyncio.TimerHandle] = {}
        self._waiting = asyncio.Event()
        self._log = structlog.get_logger("hami.resizing")

    def pod_changed(self, pod: NodePod) -> None:
        signature = _signature(pod)
        known = self._refusals.get(pod.uid)
        if known is not None and known.signature != signature:
            self._forget(pod.uid)
        if all(_signature(live.record.pod) == signature for live in self._slices.of_pod(pod.uid)):
            return
        self._due[pod.uid] = pod
        if pod.uid not in self._later:
            self._waiting.set()

    def pod_gone(self, pod: NodePod) -> None:
        self._forget(pod.uid)

    def _forget(self, uid: PodUid) -> None:
        self._due.pop(uid, None)
        self._refusals.pop(uid, None)
        if (later := self._later.pop(uid, None)) is not None:
            later.cancel()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._waiting.wait()
                self._waiting.clear()
                for uid in [uid for uid in self._due if uid not in self._later]:
                    if (pod := self._due.pop(uid, None)) is not None:
                        await self._pod(pod)
        finally:
            for later in self._later.values():
                later.cancel()

    async def _pod(self, pod: NodePod) -> None:
        refused: list[str] = []
        for live in self._slices.of_pod(pod.uid):
            work = partial(self._one, pod, live.id, refused)
            try:
                await self._slices.in_turn(pod.uid, live.id, work)
            except Exception as error:  # noqa: BLE001 -- one pod's trouble, not the agent's end
                self._log.exception("a resize failed", slice=live.id)
                self.counts["failed"] += 1
                refused.append(f"the node agent failed: {type(error).__name__}: {error}")
        if refused:
            self._tell(pod, "; ".join(refused))
        else:
            self._refusals.pop(pod.uid, None)

    async def _one(self, pod: NodePod, slice_id: str, refused: list[str]) -> None:
        live = self._slices.get(slice_id)
        # A container that was never prepared reads the newest allocation at its start.
        if live is None or live.record.state != "enforced":
            return
        granted = self._wanted(pod, live)
        if granted is None:
            return
        outcome: Outcome = (
            granted
            if isinstance(granted, NotGranted)
            else await resize(granted, live, self._mine, self._make_room)
        )
        if isinstance(outcome, NotGranted):
            self.counts["failed" if outcome.cause.failed else "refused"] += 1
            refused.append(outcome.text)
            return
        self.counts["resized"] += 1
        text = ", ".join(
            f"{g.device_id}: {g.memory_mib} MiB, {g.cores} %" for g in outcome.granted.grants
        )
        self._log.info("a slice has new limits", slice=live.id, limits=text)
        about = f"container {live.record.container} now has {text}"
        self._mine.events.record(pod, RESIZED, about, warning=False)

    def _wanted(self, pod: NodePod, live: LiveSlice) -> Granted | NotGranted | None:
        """What the slice shall have, why it may not, or None if it has the newest already."""
        granted = self._mine.granting.granted(pod, live.record.container)
        if isinstance(granted, NotGranted):
            return granted
        if granted.generation <= live.record.generation:
            return None
        who = f"pod {pod.full_name}, container {live.record.container}"
        if [g.device_id for g in granted.grants] != [g.device_id for g in live.grants]:
            return NotGranted(
                f"{who}: generation {granted.generation} of its allocation names other devices "
                "than it has",
                RefusalCause.BAD_ALLOCATION,
            )
        if live.record.identity == "lock":
            return NotGranted(
                f"{who}: its limits are in its environment, as HAMi's protocol has it; only a new "
                "pod gets others",
                RefusalCause.BAD_ALLOCATION,
            )
        return granted

    def _tell(self, pod: NodePod, text: str) -> None:
        """Say a refusal once, and set the next try."""
        known = self._refusals.get(pod.uid)
        if known is None:
            backoff = Backoff(first=self._first_retry, most=LAST_RETRY)
            known = _Refusals(_signature(pod), "", backoff)
            self._refusals[pod.uid] = known
        if known.text != text:
            known.text = text
            self._log.warning("a slice keeps its limits", pod=pod.full_name, why=text)
            self._mine.events.record(pod, NOT_RESIZED, text, warning=True)
        if self._due.setdefault(pod.uid, pod) is not pod:
            return  # it has changed meanwhile, and is looked at again at once
        loop = asyncio.get_running_loop()
        self._later[pod.uid] = loop.call_later(known.backoff.delay(), self._again, pod.uid)

    def _again(self, uid: PodUid) -> None:
        self._later.pop(uid, None)
        self._waiting.set()


def _signature(pod: Pod) -> str | None:
    return pod.annotations.get(keys.ALLOCATION_SIGNATURE)
