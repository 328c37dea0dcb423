"""The kubelets of any number of nodes: a client that runs pods by the clock."""

from __future__ import annotations

import asyncio
import heapq
import ipaddress
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from hami.domain.errors import ConfigError
from hami.domain.units import PodUid
from hami.kube.client import KubeClient
from hami.kube.errors import CONFLICT, NOT_FOUND, ApiError
from hami.kube.informer import Informer
from hami.kube.pace import Backoff
from hami_lab.kubelet.life import Life
from hami_lab.kubelet.nodes import LIVE_NODES, LiveNode, NodeReports
from hami_lab.kubelet.plugin_node import PluginNode
from hami_lab.live import LIVE_PODS, LivePod

WRITERS = 8
_SETTLED = frozenset({NOT_FOUND, CONFLICT})
_POD_NETWORK = int(ipaddress.ip_address("10.64.0.1"))


class Kubelet:
    """Reports nodes and runs the pods that are bound to them, until cancelled.

    ``serves`` says whose kubelet this is, by the node's name. Nodes that were attached get their
    devices from device plugins, all others from their annotations.
    """

    def __init__(
        self,
        client: KubeClient,
        reports: NodeReports,
        *,
        serves: Callable[[str], bool] = lambda _: True,
        on_problem: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.synced = asyncio.Event()
        self._client = client
        self._reports = reports
        self._serves = serves
        self._on_problem = on_problem
        self._clock = clock
        self._pods: dict[PodUid, LivePod] = {}
        self._lives: dict[PodUid, Life] = {}
        self._nodes: dict[str, LiveNode] = {}
        self._plugin_nodes: dict[str, PluginNode] = {}
        self._unheard: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)
        self._lingering: dict[PodUid, PluginNode] = {}
        self._reported: dict[PodUid, dict[str, Any]] = {}
        self._timers: list[tuple[float, int, PodUid]] = []
        self._serial = itertools.count()
        self._due: asyncio.Queue[PodUid | str] = asyncio.Queue()
        self._queued: set[PodUid | str] = set()
        self._writing: set[PodUid | str] = set()
        self._timer_set = asyncio.Event()

    async def run(self) -> None:
        """Follow nodes and pods until cancelled."""
        pods = Informer(self._client, LIVE_PODS, _Pods(self), on_problem=self._on_problem)
        nodes = Informer(self._client, LIVE_NODES, _Nodes(self), on_problem=self._on_problem)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(nodes.run())
            tasks.create_task(pods.run())
            tasks.create_task(self._tick())
            for _ in range(WRITERS):
                tasks.create_task(self._write())
            await nodes.synced.wait()
            await pods.synced.wait()
            self.synced.set()

    def attach(self, node: PluginNode) -> None:
        """A node with device plugins; to be told before there are pods on it."""
        self._plugin_nodes[node.name] = node
        node.attach(self)

    # What the informers say.

    def node_changed(self, node: LiveNode) -> None:
        if self._serves(node.name):
            self._nodes[node.name] = node
            self._enqueue(node.name)

    def node_gone(self, node: LiveNode) -> None:
        self._nodes.pop(node.name, None)
        self._reports.forget(node.name)

    def pod_changed(self, pod: LivePod) -> None:
        if not pod.spec.node_name or not self._serves(pod.spec.node_name):
            return
        plugin_node = self._plugin_nodes.get(pod.spec.node_name)
        if plugin_node and plugin_node.deaf:
            self._unheard[plugin_node.name].append(lambda: self.pod_changed(pod))
            return
        now = self._clock()
        life = self._lives.get(pod.uid)
        if life is None and pod.finished and not pod.metadata.deletion_timestamp:
            return
        self._pods[pod.uid] = pod
        if life is None:
            life = self._begin(pod, now, plugin_node)
            self._enqueue(pod.uid)
        if pod.metadata.deletion_timestamp:
            life.stop(now, pod.metadata.deletion_grace_period_seconds)
            self._enqueue(pod.uid)
        self._go_on(pod.uid, life)

    def _begin(self, pod: LivePod, now: float, node: PluginNode | None) -> Life:
        # After a restart of ours the same life is led again, up to now.
        begin = _started(pod) or now
        if node is None:
            life = Life(pod, begin=begin, address=self._address())
        else:
            life = Life(
                pod, begin=begin, address=self._address(), staged=True, backoff=node.backoff
            )
        self._lives[pod.uid] = life
        life.advance(now)
        return life

    def pod_gone(self, pod: LivePod) -> None:
        node = self._plugin_nodes.get(pod.spec.node_name)
        if node and node.deaf:
            self._unheard[node.name].append(lambda: self.pod_gone(pod))
            return
        self._pods.pop(pod.uid, None)
        self._reported.pop(pod.uid, None)
        life = self._lives.get(pod.uid)
        if node and life and not life.over:
            # Deleted by force: its containers run on until they have stopped.
            self._lingering[pod.uid] = node
            life.stop(self._clock(), None)
            self._go_on(pod.uid, life)
        else:
            self._lives.pop(pod.uid, None)
            if node:
                node.gone(pod.uid)

    # What nodes with device plugins ask and say.

    def pods_of(self, node: str) -> Sequence[LivePod]:
        pods = [pod for pod in self._pods.values() if pod.spec.node_name == node]
        return sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or "")

    def life_of(self, uid: PodUid) -> Life | None:
        return self._lives.get(uid)

    def moved(self, uid: PodUid) -> None:
        if (life := self._lives.get(uid)) is not None:
            self._enqueue(uid)
            self._go_on(uid, life)

    def counted(self, node: str) -> None:
        if node in self._nodes:
            self._enqueue(node)

    def heard(self, node: str) -> None:
        for told in self._unheard.pop(node, ()):
            told()

    def _go_on(self, uid: PodUid, life: Life) -> None:
        """Wait for what is next, and let the node do what is due now."""
        self._set_timer(uid, life)
        pod = self._pods.get(uid)
        node = self._plugin_nodes.get(pod.spec.node_name) if pod else self._lingering.get(uid)
        if node is None:
            return
        node.look(uid)
        if not pod and life.over:
            del self._lingering[uid]
            del self._lives[uid]
            node.gone(uid)

    def _address(self) -> str:
        return str(ipaddress.ip_address(_POD_NETWORK + next(self._serial) % 2**20))

    # Time.

    def _set_timer(self, uid: PodUid, life: Life) -> None:
        if (at := life.next_at) is not None:
            heapq.heappush(self._timers, (at, next(self._serial), uid))
            self._timer_set.set()

    async def _tick(self) -> None:
        while True:
            now = self._clock()
            while self._timers and self._timers[0][0] <= now:
                _, _, uid = heapq.heappop(self._timers)
                life = self._lives.get(uid)
                if life is not None and life.advance(now):
                    self._enqueue(uid)
                    self._go_on(uid, life)
            self._timer_set.clear()
            wait = self._timers[0][0] - now if self._timers else None
            try:
                async with asyncio.timeout(wait):
                    await self._timer_set.wait()
            except TimeoutError:
                continue

    # Writing.

    def _enqueue(self, what: PodUid | str) -> None:
        if what in self._queued:
            return
        self._queued.add(what)
        if what not in self._writing:
            self._due.put_nowait(what)

    async def _write(self) -> None:
        """One of the writers; an object is in the hands of one of them at a time."""
        backoff = Backoff(first=0.1, most=5.0)
        while True:
            what = await self._due.get()
            self._queued.discard(what)
            self._writing.add(what)
            failed = await self._written(what)
            if failed:
                await asyncio.sleep(backoff.delay())
                self._queued.add(what)
            else:
                backoff.reset()
            self._writing.discard(what)
            if what in self._queued:
                self._due.put_nowait(what)

    async def _written(self, what: PodUid | str) -> bool:
        """Whether it has to be tried again."""
        try:
            if what in self._nodes:
                await self._report(self._nodes[what])
            elif (life := self._lives.get(PodUid(what))) and (pod := self._pods.get(PodUid(what))):
                await self._report_pod(pod, life)
        except ConfigError as error:
            self._on_problem(str(error))
        except ApiError as error:
            if error.status not in _SETTLED:
                self._on_problem(str(error))
                return True
        return False

    async def _report(self, node: LiveNode) -> None:
        plugin_node = self._plugin_nodes.get(node.name)
        counts = plugin_node.devices.counts() if plugin_node else None
        if patch := self._reports.patch(node, self._clock(), counts):
            await self._client.patch(
                LIVE_NODES, node.name, patch, subresource="status", kind="strategic"
            )

    async def _report_pod(self, pod: LivePod, life: Life) -> None:
        status = life.status()
        if self._reported.get(pod.uid) != status:
            patch: dict[str, Any] = {"metadata": {"uid": pod.uid}, "status": status}
            await self._client.patch(
                LIVE_PODS,
                pod.name,
                patch,
                namespace=pod.namespace,
                subresource="status",
                kind="strategic",
            )
            self._reported[pod.uid] = status
        if pod.metadata.deletion_timestamp and life.over:
            await self._client.delete(
                LIVE_PODS, pod.name, namespace=pod.namespace, uid=pod.uid, grace_seconds=0
            )


def _started(pod: LivePod) -> float | None:
    """When a kubelet began to run it, in Unix seconds; None when none did."""
    text = pod.status.start_time if pod.status else None
    return datetime.fromisoformat(text).timestamp() if text else None


class _Pods:
    def __init__(self, owner: Kubelet) -> None:
        self._owner = owner

    def changed(self, new: LivePod, old: LivePod | None) -> None:  # noqa: ARG002 -- the handler's signature
        self._owner.pod_changed(new)

    def gone(self, last: LivePod) -> None:
        self._owner.pod_gone(last)


class _Nodes:
    def __init__(self, owner: Kubelet) -> None:
        self._owner = owner

    def changed(self, new: LiveNode, old: LiveNode | None) -> None:  # noqa: ARG002 -- the handler's signature
        self._owner.node_changed(new)

    def gone(self, last: LiveNode) -> None:
        self._owner.node_gone(last)
