"""While a container runs: does it really have its slice?

A runtime that does not read CDI specs starts it without one and says nothing; another plugin may
have answered for it; and a pod can put a file of its own over its limits, at its start or later.
So each is looked at when it has started, and all of them again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import assert_never

import structlog

from hami.domain.errors import Malformed
from hami.domain.units import PodUid
from hami.kube.node_pod import NodeContainerStatus, NodePod
from hami.node.kubelet.checkpoint import CheckpointEntry
from hami.node.pod.pods import NotGranted
from hami.node.running.slice_seen import Fine, Foreign, Looking, Running, Seen, Unclear, Without
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.live_slices import LiveSlice
from hami.node.slice.other_agents import STARTED

UNMOUNTED = "SliceMissing"
EVERY = 10.0
"""Seconds between looks at all of them."""


class MountCheck:
    """``entries`` reads kubelet's record, which says who answered for one without a slice;
    ``stop`` says whether one without its slice is killed.
    """

    def __init__(
        self,
        around: AgentContext,
        *,
        proc: Path,
        entries: Callable[[], Sequence[CheckpointEntry] | Malformed],
        stop: Callable[[], bool],
        every: float = EVERY,
    ) -> None:
        profile = around.vendor.profile
        self._around = around
        self._resource = profile.resources.count
        self._looking = Looking(
            vendor=profile.key,
            resource=self._resource,
            kind=around.kind,
            proc=proc,
            cgroups=around.cgroups,
            entries=entries,
        )
        self._stop = stop
        self._every = every
        self._pods: dict[PodUid, NodePod] = {}
        self._seen: dict[PodUid, dict[str, Seen]] = {}
        self._due: set[PodUid] = set()
        self._waiting = asyncio.Event()
        self._log = structlog.get_logger("hami.mounts")

    def pod_changed(self, pod: NodePod) -> None:
        running = [status.container_id for status in pod.running if status.container_id]
        if not running or not self._concerns(pod):
            self.pod_gone(pod)
            return
        before = self._seen.get(pod.uid, {})
        self._pods[pod.uid] = pod
        self._seen[pod.uid] = {id: before.get(id, Unclear()) for id in running}
        if not before.keys() >= set(running):
            self._due.add(pod.uid)
            self._waiting.set()

    def pod_gone(self, pod: NodePod) -> None:
        self._pods.pop(pod.uid, None)
        self._seen.pop(pod.uid, None)

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        again = loop.time() + self._every
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(again):
                    await self._waiting.wait()
            self._waiting.clear()
            if loop.time() >= again:
                self._due.update(self._pods)
                again = loop.time() + self._every
            due, self._due = self._due, set()
            await self._look([one for uid in due for one in self._containers(uid)])

    def _concerns(self, pod: NodePod) -> bool:
        """It has a slice, or asks for what one is made for."""
        return bool(self._around.slices.of_pod(pod.uid)) or any(
            container.quantity(self._resource) for container, _ in pod.each_container()
        )

    def _containers(self, uid: PodUid) -> Iterator[Running]:
        pod = self._pods.get(uid)
        if pod is None:
            return
        slices = {live.record.container: live for live in self._around.slices.of_pod(uid)}
        for status in pod.running:
            if not status.container_id:
                continue
            live = slices.get(status.name)
            found = self._without(pod, status) if live is None else self._with(pod, status, live)
            if found is not None:
                yield found

    def _with(self, pod: NodePod, status: NodeContainerStatus, live: LiveSlice) -> Running | None:
        if live.record.state != "enforced" or live.record.identity == "lock":
            return None  # in the mode ``lock`` its limits are in its environment
        return Running(
            pod=pod,
            name=status.name,
            id=status.container_id,
            granted=live.granted,
            page=self._around.store.state_dir(live.id) / "limits",
            had_it=isinstance(self._seen[pod.uid][status.container_id], Fine),
        )

    def _without(self, pod: NodePod, status: NodeContainerStatus) -> Running | None:
        """Judged once: how it was started does not change."""
        seen = self._seen[pod.uid]
        if not isinstance(seen[status.container_id], Unclear):
            return None
        granted = self._around.granting.granted(pod, status.name)
        if isinstance(granted, NotGranted):
            seen[status.container_id] = Fine()  # nothing of ours is its
            return None
        return Running(
            pod=pod,
            name=status.name,
            id=status.container_id,
            granted=granted,
            page=None,
            had_it=False,
        )

    async def _look(self, containers: Sequence[Running]) -> None:
        if not containers:
            return
        around = self._around
        answers = await around.disk.run(
            self._looking.seen, containers, tuple(around.inventory.devices), stop=self._stop()
        )
        for container, answer in zip(containers, answers, strict=True):
            seen = self._seen.get(container.pod.uid, {})
            before = seen.get(container.id)
            if before is None or isinstance(answer, Unclear):
                continue  # it has gone meanwhile, or the next look tells
            seen[container.id] = answer
            self._tell(container, before, answer)

    def _tell(self, container: Running, before: Seen, now: Seen) -> None:
        """Once, as long as it is the same; the processes that a problem names may be others."""
        who = f"container {container.name}"
        match now:
            case Fine() | Unclear():
                return
            case Without():
                if isinstance(before, Without) and before.advice == now.advice:
                    return
                reason = UNMOUNTED
                text = f"{who} runs without its slice: {now.problem}; {now.advice}"
            case Foreign():
                reason = STARTED
                text = (
                    f"{who} runs as another device plugin answered for it, with its devices and "
                    "without our limits; delete the pod, so that it is made anew"
                )
            case _:
                assert_never(now)
        self._log.error("a container runs without its slice", pod=container.pod.full_name, why=text)
        self._around.events.record(container.pod, reason, text, warning=True)
