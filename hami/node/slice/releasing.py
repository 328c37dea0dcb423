"""Frees the slices of pods that are gone: not before their last process has ended.

A pod that was force-deleted runs on for a while. Until its cgroup is empty it keeps its devices,
whoever else was granted them meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

import msgspec
import structlog

from hami.domain.errors import HamiError
from hami.domain.units import PodUid
from hami.kube.node_pod import NodePod
from hami.kube.pace import Backoff
from hami.node.disk.store import StoreFailed
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.live_slices import LiveSlice
from hami.node.slice.preparing import ENFORCE
from hami.node.slice.views import as_slice

LOOK_EVERY = 1.0
"""Seconds between looks at the cgroups of pods that are gone."""
LOOK_ANYWAY = 60.0
"""Seconds: nobody tells when a pod that only a list has shown counts as gone."""
RELEASE_SECONDS = 20.0
FIRST_RETRY = 1.0


class Releasing:
    """Releases slices. Looks when a pod goes, and every second while its processes still run."""

    def __init__(self, around: AgentContext, *, every: float = LOOK_EVERY) -> None:
        self._mine = around
        self._every = every
        self._wake = asyncio.Event()
        self._passed = asyncio.Event()
        self._retry: dict[str, tuple[float, Backoff]] = {}
        self._log = structlog.get_logger("hami.releasing")

    def pod_changed(self, pod: NodePod) -> None:
        if pod.finished and self._mine.slices.of_pod(pod.uid):
            self._wake.set()

    def pod_gone(self, pod: NodePod) -> None:
        self._mine.granting.forget(pod.uid)
        if self._mine.slices.of_pod(pod.uid):
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled; not before it is known which pods there are."""
        await self._mine.pods.synced.wait()
        while True:
            self._wake.clear()
            waiting = await self._pass()
            passed, self._passed = self._passed, asyncio.Event()
            passed.set()
            try:
                async with asyncio.timeout(self._every if waiting else LOOK_ANYWAY):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def make_room(self, pods: Collection[PodUid], patience: float = 2.0) -> None:
        """Release what these pods no longer use, as far as ``patience`` seconds allow."""
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while any(self._ended(uid) for uid in pods) and loop.time() < end:
            passed = self._passed
            self._wake.set()
            try:
                async with asyncio.timeout_at(end):
                    await passed.wait()
            except TimeoutError:
                return
            await asyncio.sleep(min(0.05, self._every))

    def _ended(self, uid: PodUid) -> bool:
        """Whether the pod has slices, and is gone or has ended."""
        mine = self._mine
        if not mine.slices.of_pod(uid):
            return False
        pod = mine.pods.get(uid)
        return mine.pods.is_gone(uid) if pod is None else pod.finished

    async def _pass(self) -> bool:
        """Whether something is left that must be looked at again."""
        mine = self._mine
        ended = [uid for uid in mine.slices.pods if self._ended(uid)]
        if not ended:
            return False
        busy = await mine.disk.run(mine.cgroups.busy, ended)
        left = bool(busy)
        for uid in ended:
            if uid in busy:
                continue
            for live in mine.slices.of_pod(uid):
                if self._in_use(live.id) or not await self._released(live):
                    left = True
        return left

    def _in_use(self, slice_id: str) -> bool:
        """Whether somebody prepares it, or a hook of the vendor still works on it."""
        return self._mine.slices.busy(slice_id) or self._mine.hooks.under_way(ENFORCE, slice_id)

    async def _released(self, live: LiveSlice) -> bool:
        """Release a slice; False if that failed. Each further try comes later."""
        loop = asyncio.get_running_loop()
        due, backoff = self._retry.get(live.id, (0.0, Backoff(first=FIRST_RETRY, most=60.0)))
        if loop.time() < due:
            return False
        try:
            await self._release(live)
        except HamiError as error:
            self._retry[live.id] = (loop.time() + backoff.delay(), backoff)
            self._log.warning(
                "cannot release a slice; it is tried again",
                slice=live.id,
                pod=live.record.pod.full_name,
                error=str(error),
            )
            return False
        self._retry.pop(live.id, None)
        return True

    async def _release(self, live: LiveSlice) -> None:
        """Undo a slice. Its CDI spec goes first, so that no container starts with it any more."""
        mine = self._mine
        if live.record.state != "releasing":
            record = msgspec.structs.replace(live.record, state="releasing")
            with suppress(StoreFailed):
                # Only for the record: on a full disk, removing is what helps.
                await mine.disk.run(mine.store.save, record)
            live = LiveSlice(record, live.granted)
            mine.slices.put(live)
        await mine.disk.run(mine.folders.remove, live.id)
        slice = as_slice(live, mine.store.state_dir(live.id))
        config, vendor = mine.config.now, mine.vendor
        await mine.hooks.call(
            ("hami_release", live.id), RELEASE_SECONDS, vendor.release, slice, config
        )
        await mine.disk.run(mine.store.remove, live.id)
        mine.slices.drop(live.id)
        mine.slices.changed.set()
        self._log.info("released a slice", slice=live.id, pod=live.record.pod.full_name)
