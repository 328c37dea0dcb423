"""The scheduling loop: one pod at a time to a node, bindings beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from hami.domain.errors import HamiError
from hami.domain.kubernetes.objects import Node, Pod
from hami.domain.units import PodUid
from hami.kube.client import KubeClient, PodBinding
from hami.kube.informer import Informer
from hami.kube.resources import NODES
from hami.simulate.simulation import unavailable
from hami_lab.kube_scheduler.conditions import Conditions
from hami_lab.kube_scheduler.extender import Extender, ExtenderFailed, ExtenderSettings
from hami_lab.kube_scheduler.queue import Pace, Place, SchedulingQueue
from hami_lab.kube_scheduler.view import ClusterView
from hami_lab.live import POD_DOCUMENTS, LivePod, PodDocument


class Recorder(Protocol):
    """Takes events; never blocks."""

    def record(self, about: Pod, reason: str, message: str, *, warning: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """What a KubeSchedulerConfiguration would say.

    ``names``: whose pods are ours (``spec.schedulerName``). ``percentage`` is
    ``percentageOfNodesToScore``; 0 is kube-scheduler's own choice. ``bind_timeout`` in seconds.
    """

    names: frozenset[str] = frozenset({"default-scheduler", "hami-scheduler"})
    extenders: tuple[ExtenderSettings, ...] = ()
    percentage: int = 100
    pace: Pace = field(default_factory=Pace)
    bind_timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Unfit:
    """No node takes the pod; the text is kube-scheduler's."""

    message: str


class KubeScheduler:
    """Binds pending pods, until cancelled."""

    def __init__(
        self,
        client: KubeClient,
        settings: SchedulerSettings,
        *,
        events: Recorder,
        on_problem: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.synced = asyncio.Event()
        self._client = client
        self._settings = settings
        self._events = events
        self._on_problem = on_problem
        self._clock = clock
        self._ignored = frozenset(
            resource.name
            for extender in settings.extenders
            for resource in extender.managed
            if resource.ignored
        )
        self._queue = SchedulingQueue(settings.pace)
        self._view = ClusterView()
        self._conditions = Conditions(client, on_problem)
        self._extenders: list[Extender] = []
        self._pods: dict[PodUid, tuple[PodDocument, LivePod]] = {}
        self._news = asyncio.Event()
        self._bindings: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Follow the cluster and schedule; what is under way when cancelled is cancelled too."""
        pods = Informer(self._client, POD_DOCUMENTS, _Pods(self), on_problem=self._on_problem)
        nodes = Informer(self._client, NODES, _Nodes(self), on_problem=self._on_problem)
        async with AsyncExitStack() as stack:
            for settings in self._settings.extenders:
                self._extenders.append(await stack.enter_async_context(Extender(settings)))
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(pods.run())
                    tasks.create_task(nodes.run())
                    tasks.create_task(self._conditions.run())
                    await pods.synced.wait()
                    await nodes.synced.wait()
                    self.synced.set()
                    await self._schedule()
            finally:
                for task in self._bindings:
                    task.cancel()
                await asyncio.gather(*self._bindings, return_exceptions=True)

    async def _schedule(self) -> None:
        while True:
            now = self._clock()
            if (entry := self._queue.pop(now)) is not None:
                await self._attempt(entry.uid)
                continue
            due = self._queue.next_at(now)
            self._news.clear()
            try:
                async with asyncio.timeout(None if due is None else due - now):
                    await self._news.wait()
            except TimeoutError:
                continue  # A back-off or a flush is due.

    # What the informers say.

    def pod_changed(self, document: PodDocument) -> None:
        known = self._pods.get(document.metadata.uid)
        pod = document.read()
        if pod.finished:
            self.pod_gone(document)
            return
        self._pods[pod.uid] = (document, pod)
        if pod.spec.node_name:
            self._view.charge(pod, pod.spec.node_name)
            self._leaves(pod)
        elif pod.metadata.deletion_timestamp or pod.spec.scheduler_name not in self._settings.names:
            self._leaves(pod)
        else:
            self._queue.add(pod.uid, pod.spec.priority or 0, gated=pod.gated)
            if known is not None and _tells_apart(known[1]) != _tells_apart(pod):
                self._queue.wake(pod.uid, self._clock())
            self._news.set()

    def pod_gone(self, document: PodDocument) -> None:
        uid = document.metadata.uid
        known = self._pods.pop(uid, None)
        if known is not None:
            self._leaves(known[1])
        if self._view.release(uid):
            self._wake_all()

    def node_changed(self, node: Node) -> None:
        if self._view.set_node(node):
            self._wake_all()

    def node_gone(self, node: Node) -> None:
        self._view.remove_node(node.name)

    def _leaves(self, pod: Pod) -> None:
        self._queue.remove(pod.uid)
        self._conditions.forget(pod)

    def _wake_all(self) -> None:
        self._queue.wake_all(self._clock())
        self._news.set()

    # One pod.

    async def _attempt(self, uid: PodUid) -> None:
        if uid not in self._pods:
            self._queue.remove(uid)
            return
        document, pod = self._pods[uid]
        try:
            outcome = await self._choose(document, pod)
        except ExtenderFailed as error:
            self._queue.failed(uid, self._clock())
            self._say(pod, "SchedulerError", str(error))
            return
        if isinstance(outcome, Unfit):
            self._queue.refused(uid, self._clock())
            self._say(pod, "Unschedulable", outcome.message)
            return
        if self._queue.place(uid) is not Place.IN_FLIGHT:
            return  # It went away meanwhile.
        self._view.charge(pod, outcome)
        self._beside(self._bind(pod, outcome))

    async def _choose(self, document: PodDocument, pod: LivePod) -> str | Unfit:
        """The node for the pod.

        Raises:
            ExtenderFailed: one that may not be ignored gave no usable answer.
        """
        if not len(self._view):
            return Unfit("no nodes available to schedule pods")
        feasible = self._view.feasible(pod, self._ignored, self._settings.percentage)
        names, refused = list(feasible.names), dict(feasible.refused)
        for extender in self._extenders:
            if not names or not extender.settings.concerns(pod):
                continue
            try:
                verdict = await extender.filter(document, names)
            except ExtenderFailed as error:
                if not extender.settings.ignorable:
                    raise
                self._on_problem(f"ignored for pod {pod.full_name}: {error}")
                continue
            names = list(verdict.kept)
            refused |= {node: [text] for node, text in verdict.refused.items()}
        if not names:
            said = (text for texts in refused.values() for text in texts)
            return Unfit(unavailable(len(self._view), said))
        return names[0] if len(names) == 1 else self._view.best(pod, names)

    async def _bind(self, pod: LivePod, node: str) -> None:
        binder = next(
            (e for e in self._extenders if e.settings.binds and e.settings.concerns(pod)), None
        )
        try:
            if binder is not None:
                await binder.bind(pod, node)
            else:
                await self._client.bind(_binding(pod, node), timeout=self._settings.bind_timeout)
        except HamiError as error:
            self._not_bound(pod, str(error))
            return
        self._events.record(
            pod,
            "Scheduled",
            f"Successfully assigned {pod.full_name} to {node}",
            warning=False,
        )

    def _not_bound(self, pod: LivePod, problem: str) -> None:
        known = self._pods.get(pod.uid)
        if known is not None and known[1].spec.node_name:
            return  # The binding took place all the same, and the informer has shown it.
        self._view.release(pod.uid)
        self._queue.failed(pod.uid, self._clock())
        self._say(pod, "SchedulerError", f"binding rejected: {problem}")
        self._wake_all()

    def _say(self, pod: LivePod, reason: str, message: str) -> None:
        if pod.uid in self._pods:
            self._conditions.say(self._pods[pod.uid][1], reason, message)
            self._events.record(pod, "FailedScheduling", message, warning=True)

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._bindings.add(task)
        task.add_done_callback(self._bindings.discard)


def _binding(pod: Pod, node: str) -> PodBinding:
    return PodBinding(
        namespace=pod.namespace, name=pod.name, uid=pod.uid, node=node, annotations={}, labels={}
    )


def _tells_apart(pod: LivePod) -> object:
    """What a pending pod's retry depends on: everything that people change, its status not."""
    return (pod.labels, pod.annotations, pod.spec)


class _Pods:
    def __init__(self, owner: KubeScheduler) -> None:
        self._owner = owner

    def changed(self, new: PodDocument, old: PodDocument | None) -> None:  # noqa: ARG002 -- the handler's signature
        self._owner.pod_changed(new)

    def gone(self, last: PodDocument) -> None:
        self._owner.pod_gone(last)


class _Nodes:
    def __init__(self, owner: KubeScheduler) -> None:
        self._owner = owner

    def changed(self, new: Node, old: Node | None) -> None:  # noqa: ARG002 -- the handler's signature
        self._owner.node_changed(new)

    def gone(self, last: Node) -> None:
        self._owner.node_gone(last)
