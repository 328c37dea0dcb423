"""A node whose devices come from device plugins: admission, starts and restarts as kubelet's.

Pods are admitted one after the other. A pod's containers are started in their order, each after
its plugins were told; different pods do not wait for each other.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hami.domain.kubernetes.objects import Container
from hami.domain.units import PodUid
from hami_lab.kubelet.container import FIRST_BACKOFF
from hami_lab.kubelet.devices.devices import (
    PRESTART_TIMEOUT,
    STOPPED_GRACE,
    DeviceSettings,
    NodeDevices,
)
from hami_lab.kubelet.devices.ledger import NotAllocated
from hami_lab.kubelet.devices.races import Races
from hami_lab.kubelet.life import Life
from hami_lab.kubelet.runtime.runtime import NotCreated, Runtime
from hami_lab.kubelet.runtime.traces import Traces
from hami_lab.live import LivePod

REJECTED = "UnexpectedAdmissionError"
CONFIG_ERROR, CREATE_ERROR = "CreateContainerConfigError", "CreateContainerError"


class Host(Protocol):
    """Whoever leads the pods' lives."""

    def pods_of(self, node: str) -> Sequence[LivePod]:
        """Those that the API server has, the oldest first."""

    def life_of(self, uid: PodUid) -> Life | None: ...

    def moved(self, uid: PodUid) -> None:
        """A life has gone on."""

    def counted(self, node: str) -> None:
        """The node's devices may be others than before."""

    def heard(self, node: str) -> None:
        """The node is no longer ``deaf``: what was kept from it is due."""


async def _a_second() -> None:
    await asyncio.sleep(1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginNodeSettings:
    """kubelet's paces, in seconds.

    ``hear`` returns when kubelet, started again, has heard from the API server. ``retry`` is the
    range of the pause before a container that could not be started is tried again, ``backoff``
    the first pause before one that ended. ``record`` is told of events: pod, reason, message.
    """

    hear: Callable[[], Awaitable[None]] = _a_second
    retry: tuple[float, float] = (10.0, 15.0)
    backoff: float = FIRST_BACKOFF
    prestart_timeout: float = PRESTART_TIMEOUT
    stopped_grace: float = STOPPED_GRACE
    races: Races = field(default_factory=Races)
    record: Callable[[LivePod, str, str], None] = lambda *_: None
    on_problem: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.time


class PluginNode:
    """One node; :meth:`run` is its kubelet, which :meth:`down` and :meth:`up` end and start again.

    Below ``folder``: ``plugins`` (kubelet's plugin folder), ``cdi``, ``slices``, ``cgroup`` and
    ``proc``, for the flags of an agent. Containers run on while kubelet is down; from its end until
    it has heard from the API server again it is ``deaf``.
    """

    def __init__(self, name: str, folder: Path, settings: PluginNodeSettings | None = None) -> None:
        self.name = name
        self.folder = folder
        self._settings = settings = settings or PluginNodeSettings()
        for path in (self.plugins, self.cdi, self.slices):
            path.mkdir(parents=True, exist_ok=True)
        self._traces = Traces(folder)
        self.devices = NodeDevices(
            self.plugins,
            DeviceSettings(
                active=self._active,
                on_change=self._counted,
                on_problem=settings.on_problem,
                prestart_timeout=settings.prestart_timeout,
                stopped_grace=settings.stopped_grace,
                races=settings.races,
            ),
        )
        self.runtime = Runtime([self.cdi], traces=self._traces, clock=settings.clock)
        self.deaf = False
        self.serving = asyncio.Event()
        self.synced = asyncio.Event()
        self._host: Host | None = None
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._unwanted = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._tasks: asyncio.TaskGroup | None = None
        self._queue: asyncio.Queue[PodUid] = asyncio.Queue()
        self._seen: set[PodUid] = set()
        self._taken: set[PodUid] = set()
        self._busy: set[PodUid] = set()

    @property
    def plugins(self) -> Path:
        return self.folder / "plugins"

    @property
    def cdi(self) -> Path:
        return self.folder / "cdi"

    @property
    def slices(self) -> Path:
        return self.folder / "slices"

    @property
    def cgroups(self) -> Path:
        return self._traces.cgroups

    @property
    def proc(self) -> Path:
        return self._traces.proc

    @property
    def races(self) -> Races:
        return self._settings.races

    @property
    def backoff(self) -> float:
        return self._settings.backoff

    def attach(self, host: Host) -> None:
        self._host = host

    # Kubelet's life.

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._wanted.wait()
            self._ended.clear()
            kubelet = asyncio.create_task(self._kubelet())
            unwanted = asyncio.create_task(self._unwanted.wait())
            try:
                await asyncio.wait({kubelet, unwanted}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                kubelet.cancel()
                unwanted.cancel()
                await asyncio.gather(kubelet, unwanted, return_exceptions=True)
                self._ended.set()
            if not kubelet.cancelled() and (error := kubelet.exception()):
                raise error

    async def down(self) -> None:
        """End kubelet; returns when it serves no more."""
        self._wanted.clear()
        self._unwanted.set()
        await self._ended.wait()

    async def up(self) -> None:
        """Start it again; returns when plugins can register."""
        self._unwanted.clear()
        self._wanted.set()
        await self.serving.wait()

    async def restart(self) -> None:
        """:meth:`down` and :meth:`up`; ``synced`` is set when all pods were admitted again."""
        await self.down()
        await self.up()

    async def _kubelet(self) -> None:
        self._queue = asyncio.Queue()
        try:
            await self.devices.start()
            self.serving.set()
            if self.deaf:
                await self._settings.hear()
            self.deaf = False
            async with asyncio.TaskGroup() as tasks:
                await self._serve(tasks)
        finally:
            self.deaf = True
            self.serving.clear()
            self.synced.clear()
            for uids in (self._seen, self._taken, self._busy):
                uids.clear()
            await self.devices.stop()

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        try:
            if self._host is not None:
                self._host.heard(self.name)
            for pod in self._pods():
                self.look(pod.uid)
            while True:
                if self._queue.empty():
                    self.synced.set()
                await self._admit(await self._queue.get())
        finally:
            self._tasks = None

    # Pods.

    def look(self, uid: PodUid) -> None:
        """Something about a pod of this node has changed: do what is due."""
        life = self._life(uid)
        if life is None:
            return
        self.runtime.keep(uid, life.running)
        if self._tasks is None or life.over:
            return
        if uid not in self._seen:
            self._seen.add(uid)
            self.synced.clear()
            self._queue.put_nowait(uid)
        elif uid in self._taken and life.wanted and uid not in self._busy:
            self._busy.add(uid)
            self._tasks.create_task(self._start_containers(uid, life))

    def gone(self, uid: PodUid) -> None:
        """The pod's life is over, and the API server has it no more."""
        self.runtime.forget(uid)
        self._seen.discard(uid)
        self._taken.discard(uid)

    async def _admit(self, uid: PodUid) -> None:
        pod, life = self._pod(uid), self._life(uid)
        if pod is None or life is None or life.over or pod.metadata.deletion_timestamp:
            return
        refused = await self.devices.admit(pod, self.runtime.running_of(uid))
        if life.over:
            return
        now = self._settings.clock()
        if refused is not None:
            text = f"Allocate failed due to {refused.text}, which is unexpected"
            self._settings.record(pod, REJECTED, text)
            life.reject(REJECTED, f"Pod was rejected: {text}", now)
        else:
            self._taken.add(uid)
            if not life.admitted:
                life.admit(now)
        self._moved(uid)

    async def _start_containers(self, uid: PodUid, life: Life) -> None:
        """Every container whose turn has come, until none is left."""
        try:
            while (pod := self._pod(uid)) is not None and life.wanted:
                await self._start(pod, life, life.wanted[0])
                self._moved(uid)
        finally:
            self._busy.discard(uid)

    async def _start(self, pod: LivePod, life: Life, name: str) -> None:
        container = _container(pod, name)
        answers = await self.devices.before_start(pod, container)
        if name not in life.wanted:
            return  # The pod was told to stop meanwhile.
        if isinstance(answers, NotAllocated):
            self._refuse(pod, life, name, CONFIG_ERROR, answers.text)
            return
        created = self.runtime.create(pod, container, answers)
        if isinstance(created, NotCreated):
            self._refuse(pod, life, name, CREATE_ERROR, created.text)
            return
        life.started(name, f"containerd://{created.id}", created.at)

    def _refuse(self, pod: LivePod, life: Life, name: str, reason: str, text: str) -> None:
        self._settings.record(pod, "Failed", f"Error: {text}")
        pause = random.uniform(*self._settings.retry)  # noqa: S311 -- jitter is no secret
        life.refused(name, reason, text, self._settings.clock() + pause)

    # The host, once there is one.

    def _active(self) -> frozenset[PodUid]:
        return frozenset(
            pod.uid for pod in self._pods() if (life := self._life(pod.uid)) and not life.over
        )

    def _pods(self) -> Sequence[LivePod]:
        return self._host.pods_of(self.name) if self._host else ()

    def _pod(self, uid: PodUid) -> LivePod | None:
        return next((pod for pod in self._pods() if pod.uid == uid), None)

    def _life(self, uid: PodUid) -> Life | None:
        return self._host.life_of(uid) if self._host else None

    def _moved(self, uid: PodUid) -> None:
        if self._host is not None:
            self._host.moved(uid)

    def _counted(self) -> None:
        if self._host is not None:
            self._host.counted(self.name)


def _container(pod: LivePod, name: str) -> Container:
    return next(container for container, _ in pod.each_container() if container.name == name)
