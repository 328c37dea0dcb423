"""Live resize: a newer signed allocation of a pod that runs becomes its limits at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from hami.domain.units import PodUid
from hami.kube.events import EventRecorder
from hami.node.granting import Granted, Granting, Refused
from hami.node.pods import NodePod
from hami.node.preparing import Prepared
from hami.node.table import LiveSlice, LiveSlices
from hami.wire import keys

RESIZED, NOT_RESIZED = "SliceResized", "SliceNotResized"


class Resizing:
    """One worker. Only an allocation of a higher generation, on the same devices, counts."""

    def __init__(
        self,
        granting: Granting,
        slices: LiveSlices,
        events: EventRecorder,
        resize: Callable[[Granted, LiveSlice], Awaitable[Prepared | Refused]],
        busy: Callable[[str], bool],
    ) -> None:
        self._granting = granting
        self._slices = slices
        self._events = events
        self._resize = resize
        self._busy = busy
        self._due: dict[PodUid, NodePod] = {}
        self._waiting = asyncio.Event()
        self._log = structlog.get_logger("hami.resizing")

    def pod_changed(self, pod: NodePod) -> None:
        signature = pod.annotations.get(keys.ALLOCATION_SIGNATURE)
        for live in self._slices.of_pod(pod.uid):
            if live.record.pod.annotations.get(keys.ALLOCATION_SIGNATURE) != signature:
                self._due[pod.uid] = pod
                self._waiting.set()

    def pod_gone(self, pod: NodePod) -> None:
        self._due.pop(pod.uid, None)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            while self._due:
                _, pod = self._due.popitem()
                for live in self._slices.of_pod(pod.uid):
                    # One that is being prepared reads the newest allocation itself.
                    if not self._busy(live.id) and live.record.state == "enforced":
                        await self._one(pod, live)

    async def _one(self, pod: NodePod, live: LiveSlice) -> None:
        granted = self._granting.granted(pod, live.record.container)
        if isinstance(granted, Granted):
            if granted.generation <= live.record.generation:
                return
            if [g.device_id for g in granted.grants] != [g.device_id for g in live.grants]:
                granted = Refused(
                    f"pod {pod.full_name}, container {live.record.container}: generation "
                    f"{granted.generation} of its allocation names other devices than it has"
                )
            elif live.record.identity == "lock":
                granted = Refused(
                    f"pod {pod.full_name}, container {live.record.container}: its limits are in "
                    "its environment, as HAMi's protocol has it; only a new pod gets others"
                )
        outcome = granted if isinstance(granted, Refused) else await self._resize(granted, live)
        if isinstance(outcome, Refused):
            self._log.warning("a slice keeps its limits", slice=live.id, why=outcome.text)
            self._events.record(pod, NOT_RESIZED, outcome.text, warning=True)
            return
        text = ", ".join(
            f"{g.device_id}: {g.memory_mib} MiB, {g.cores} %" for g in outcome.granted.grants
        )
        self._log.info("a slice has new limits", slice=live.id, limits=text)
        about = f"container {live.record.container} now has {text}"
        self._events.record(pod, RESIZED, about, warning=False)
