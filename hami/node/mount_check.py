"""After each start of a container: does it really have its slice?

A runtime that does not read CDI specs starts it without one and says nothing: it would run without
limits, or without a device.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

import structlog

from hami.domain.units import PodUid
from hami.node.cgroups import Unreadable
from hami.node.container import seen_limits
from hami.node.mounts import Missing, slice_mount
from hami.node.pods import NodePod
from hami.node.surroundings import Surroundings
from hami.node.table import LiveSlice

UNMOUNTED = "SliceMissing"


class MountCheck:
    """Looks once at each container that runs with a slice; ``stop`` says whether to kill it."""

    def __init__(
        self,
        around: Surroundings,
        *,
        proc: Path,
        stop: Callable[[], bool],
    ) -> None:
        self._around = around
        self._seen_at = PurePosixPath(seen_limits(around.vendor.profile.key))
        self._proc = proc
        self._stop = stop
        self._looked: dict[PodUid, dict[str, str]] = {}
        self._due: asyncio.Queue[tuple[NodePod, LiveSlice, str]] = asyncio.Queue()
        self._log = structlog.get_logger("hami.mounts")

    def pod_changed(self, pod: NodePod) -> None:
        slices = {live.record.container: live for live in self._around.slices.of_pod(pod.uid)}
        for status in pod.running if slices else ():
            live = slices.get(status.name)
            if live is None or live.record.state != "enforced" or not status.container_id:
                continue
            if live.record.identity == "lock":
                continue  # its limits are in its environment
            looked = self._looked.setdefault(pod.uid, {})
            if looked.get(live.id) != status.container_id:
                looked[live.id] = status.container_id
                self._due.put_nowait((pod, live, status.container_id.rpartition("/")[2]))

    def pod_gone(self, pod: NodePod) -> None:
        self._looked.pop(pod.uid, None)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pod, live, container_id = await self._due.get()
            problem = await self._around.disk.run(self._problem, live, container_id)
            if not problem:
                continue
            text = (
                f"container {live.record.container} runs without its slice: {problem}; let the "
                "container runtime read CDI specs, or run the agent with --identity lock"
            )
            self._log.error("a container runs without its slice", pod=pod.full_name, why=text)
            self._around.events.record(pod, UNMOUNTED, text, warning=True)

    def _problem(self, live: LiveSlice, container_id: str) -> str:
        """What the container lacks; empty when it lacks nothing, or nobody can say."""
        pids = self._around.cgroups.pids(live.pod_uid, container_id)
        if isinstance(pids, Unreadable) or not pids:
            return ""
        seen = slice_mount(
            min(pids),
            self._seen_at,
            self._around.store.state_dir(live.id) / "limits",
            proc=self._proc,
        )
        if not isinstance(seen, Missing):
            return ""
        return f"{seen.problem}; {_stopped(pids)}" if self._stop() else seen.problem


def _stopped(pids: Iterable[int]) -> str:
    """What came of it, in words."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except OSError as error:
            return f"it cannot be stopped ({error.strerror}; run the agent as root with hostPID)"
    return "it was stopped"
