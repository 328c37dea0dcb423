"""The embedded cluster, put together."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

import msgspec

from hami.domain.errors import HamiError
from hami.domain.kubernetes.objects import Node
from hami.hookspecs import PluginConfig
from hami.kube.client import KubeClient
from hami.kube.events import EventLimits, EventRecorder
from hami.kube.identity.settings import KubeSettings
from hami.kube.informer import Key
from hami.simulate.documents import Document, read_documents
from hami.vendors.registry import Vendors, load_vendors
from hami_lab.api import ApiServer, Faults, TlsFiles
from hami_lab.cluster.definitions import definitions
from hami_lab.cluster.objects import AnyObject, apply, flattened
from hami_lab.cluster.observer import PATIENCE, Observer
from hami_lab.cluster.parts import Parts
from hami_lab.cluster.plugin_nodes import NodeAgent, NodeFolders, NodeGpus, PluginNodes
from hami_lab.cluster.problems import NotInTime
from hami_lab.cluster.service import SchedulerService, extender_of
from hami_lab.controllers import WorkloadControllers
from hami_lab.kube_scheduler.loop import KubeScheduler, SchedulerSettings
from hami_lab.kube_scheduler.queue import Pace
from hami_lab.kubelet.kubelet import Kubelet
from hami_lab.kubelet.nodes import LIVE_NODES, LiveNode, NodeReports
from hami_lab.kubelet.plugin_node import PluginNode, PluginNodeSettings
from hami_lab.live import LIVE_PODS, LivePod

T = TypeVar("T")

Texts = str | Mapping[str, Any] | Iterable[Mapping[str, Any]]
"""Manifests: YAML or JSON text, one object, or several."""
_REMEMBERED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """How the cluster is made.

    ``config``: the device configuration, for the plugins here and for the service. ``flags`` are
    further flags of ``hami scheduler``. ``port``: the API server's; 0 is any free one. ``tls``:
    whether it speaks HTTPS, which kubectl insists on. ``pace`` is kube-scheduler's back-off, which
    the charts set to one second; ``percentage`` its ``percentageOfNodesToScore``.
    """

    config: PluginConfig = field(default_factory=lambda: MappingProxyType({}))
    flags: Sequence[str] = ()
    port: int = 0
    tls: bool = True
    pace: Pace = field(default_factory=lambda: Pace(most=1.0))
    percentage: int = 100


class EmbeddedCluster:
    """``async with EmbeddedCluster() as cluster:`` — ready when the block begins, gone after it.

    ``faults`` makes the API server misbehave on demand; ``client`` and ``kubeconfig`` speak to it.
    """

    def __init__(
        self,
        settings: ClusterSettings | None = None,
        *,
        vendors: Vendors | None = None,
    ) -> None:
        self.settings = settings or ClusterSettings()
        self.faults = Faults()
        self.problems: deque[str] = deque(maxlen=_REMEMBERED)
        self.vendors = vendors if vendors is not None else load_vendors(self.settings.config)
        self.server: ApiServer
        self.client: KubeClient
        self.service: SchedulerService
        self.kubeconfig: Path
        self._observer: Observer
        self._plugin_nodes: PluginNodes
        self._parts = Parts(self._part_failed)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        settings = self.settings
        folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="hami-")))
        folders = NodeFolders(folder, self._stack)
        self.server = ApiServer(faults=self.faults, token=secrets.token_urlsafe(24))
        # kubectl sends its token over TLS alone.
        tls = TlsFiles.self_signed(folder) if settings.tls else None
        await self.server.start(port=settings.port, tls=tls)
        self._stack.push_async_callback(self.server.stop)
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_bytes(msgspec.json.encode(self.server.kubeconfig()))
        self.service = SchedulerService(
            folder, kubeconfig=self.kubeconfig, config=settings.config, flags=settings.flags
        )
        self._stack.push_async_callback(self.service.stop)
        self.client = await KubeClient.connect(KubeSettings(kubeconfig=self.kubeconfig))
        self._stack.push_async_callback(self.client.close)
        for definition in definitions():
            await apply(self.client, definition)
        await self.service.launch()
        self._observer = Observer(self.client, self._note)
        self._stack.push_async_callback(self._parts.close)
        self._parts.start("observer", self._observer.run())
        kubelet = Kubelet(
            self.client, NodeReports(self.vendors, settings.config), on_problem=self._note
        )
        self._parts.start("kubelet", kubelet.run())
        self._plugin_nodes = PluginNodes(
            self.client,
            kubelet,
            self.vendors,
            parts=self._parts,
            stack=self._stack,
            folders=folders,
            service=self.service,
            on_problem=self._note,
        )
        controllers = WorkloadControllers(self.client, on_problem=self._note)
        self._parts.start("controllers", controllers.run())
        await self.service.ready()
        self._watch_service()
        await apply(self.client, self.service.webhook_configuration())
        await self._start_kube_scheduler()

    async def _start_kube_scheduler(self) -> None:
        events = EventRecorder(
            self.client,
            component="default-scheduler",
            limits=EventLimits(rate=1000.0, burst=5000),
            on_problem=self._note,
        )
        self._parts.start("events", events.run())
        extenders = (extender_of(self.service, self.vendors),)
        scheduler = KubeScheduler(
            self.client,
            SchedulerSettings(
                extenders=extenders, percentage=self.settings.percentage, pace=self.settings.pace
            ),
            events=events,
            on_problem=self._note,
        )
        self._parts.start("kube-scheduler", scheduler.run())
        await scheduler.synced.wait()

    # What fails.

    def _note(self, text: str) -> None:
        self.problems.append(text)

    def _part_failed(self, name: str, error: BaseException | None) -> None:
        if self._observer.failure.done():
            return
        if isinstance(error, HamiError):
            self._observer.failure.set_result(error)
            return
        failure = HamiError(f"the embedded cluster's {name} ended: {error!r}")
        failure.__cause__ = error
        self._observer.failure.set_result(failure)

    def _watch_service(self) -> None:
        self._parts.start("scheduler service", self._service_died())

    async def _service_died(self) -> None:
        raise await self.service.until_death()

    async def failed(self) -> HamiError:
        """Waits until the cluster breaks; says how."""
        return await self._observer.failure

    # The service's life.

    async def kill_scheduler(self) -> None:
        """SIGKILL the scheduler service."""
        await self._parts.stop("scheduler service")
        await self.service.kill()

    async def restart_scheduler(self) -> None:
        """Start it again, on the same addresses; ready when this returns."""
        await self._parts.stop("scheduler service")
        await self.service.stop()
        await self.service.start()
        self._watch_service()

    # Objects.

    async def apply(self, manifests: Texts) -> list[AnyObject]:
        """Create or change objects, in their order.

        Raises:
            ConfigError: something is no object of a known kind.
            ApiError: the API server, or the service's webhook, refuses one.
        """
        return [
            await apply(self.client, document.value) for document in flattened(_read(manifests))
        ]

    async def add_node(self, name: str, devices: str = "", **annotations: str) -> None:
        """A node, with devices such as ``a100-40gx2`` that the mock plugin simulates; ready."""
        wanted = {"mock.hami.io/devices": devices} if devices else {}
        await self.client.create(
            LIVE_NODES, {"metadata": {"name": name, "annotations": wanted | annotations}}
        )
        await self.ready_nodes(name)

    async def add_plugin_node(
        self, name: str, settings: PluginNodeSettings | None = None, **annotations: str
    ) -> PluginNode:
        """A node whose devices come from device plugins; ready, and without any yet."""
        node = self._plugin_nodes.add(name, settings)
        await self.client.create(
            LIVE_NODES, {"metadata": {"name": name, "annotations": annotations}}
        )
        await self.ready_nodes(name)
        return node

    async def start_agent(
        self, node: PluginNode, vendor: str, *flags: str, gpus: NodeGpus | None = None
    ) -> NodeAgent:
        """The real node agent, ``hami device-plugin``, for a vendor on such a node.

        ``gpus``: what ``agents.simulate_gpus`` made for it. When this returns, kubelet has its
        devices and the node's annotations name them.

        Raises:
            ConfigError: no plugin serves nodes with this vendor.
            ServiceDied: it ended instead.
            NotInTime: it takes too long.
        """
        agent = await self._plugin_nodes.start_agent(node, vendor, flags, gpus)
        register = agent.profile.node_annotations.register

        async def registered() -> bool | None:
            found = await self.client.get(LIVE_NODES, node.name)
            return True if found.annotations.get(register) else None

        await self.eventually(f"{vendor} devices registered on {node.name}", registered)
        return agent

    @property
    def agents(self) -> PluginNodes:
        """Nodes with device plugins, and their agents: to be killed, stopped, started again."""
        return self._plugin_nodes

    async def ready_nodes(self, *names: str, timeout: float = PATIENCE) -> None:
        """Until these nodes report themselves ready.

        Raises:
            NotInTime: one does not.
        """

        async def ready() -> Sequence[LiveNode] | None:
            nodes = [await self.client.get(LIVE_NODES, name) for name in names]
            return nodes if all(node.ready and not node.tainted for node in nodes) else None

        await self._observer.eventually(f"nodes {', '.join(names)} ready", ready, timeout=timeout)

    async def nodes(self) -> list[Node]:
        return [*await self.client.list(LIVE_NODES)]

    async def delete_pod(self, name: str, *, namespace: str = "default") -> None:
        await self.client.delete(LIVE_PODS, name, namespace=namespace)

    # Pods, and waiting for them.

    @property
    def pods(self) -> Mapping[Key, LivePod]:
        """All pods by namespace and name, as they are now."""
        return self._observer.pods

    async def bound(
        self, *names: str, namespace: str = "default", timeout: float = PATIENCE
    ) -> list[LivePod]:
        """Until these pods have nodes.

        Raises:
            NotInTime: one has none; says why, and what the service logged last.
            ServiceDied: the service is gone.
        """
        return [
            await self.pod(name, "bound", _node, namespace=namespace, timeout=timeout)
            for name in names
        ]

    async def phase(
        self, name: str, phase: str, *, namespace: str = "default", timeout: float = PATIENCE
    ) -> LivePod:
        """Until the pod is in this phase; raises as :meth:`bound`."""

        def reached(pod: LivePod) -> bool:
            return pod.status is not None and pod.status.phase == phase

        return await self.pod(
            name, f"in phase {phase}", reached, namespace=namespace, timeout=timeout
        )

    async def refused(
        self, name: str, saying: str = "", *, namespace: str = "default", timeout: float = PATIENCE
    ) -> str:
        """kube-scheduler's message, once it has refused the pod in these words.

        Raises as :meth:`bound`.
        """

        def said(pod: LivePod) -> bool:
            condition = pod.condition("PodScheduled")
            waits = condition is not None and condition.status == "False"
            return condition is not None and waits and saying in condition.message

        pod = await self.pod(name, f"refused: {saying}", said, namespace=namespace, timeout=timeout)
        condition = pod.condition("PodScheduled")
        return condition.message if condition else ""

    async def gone(
        self, name: str, *, namespace: str = "default", timeout: float = PATIENCE
    ) -> None:
        """Until there is no such pod; raises as :meth:`bound`."""
        key = (namespace, name)
        await self._observer.until(
            f"pod {namespace}/{name} gone",
            lambda: None if key in self.pods else key,
            timeout=timeout,
        )

    async def pod(
        self,
        name: str,
        what: str,
        holds: Callable[[LivePod], object],
        *,
        namespace: str = "default",
        timeout: float = PATIENCE,
    ) -> LivePod:
        """Until ``holds`` for the pod; ``what`` says so in words. Raises as :meth:`bound`."""

        def look() -> LivePod | None:
            pod = self.pods.get((namespace, name))
            return pod if pod is not None and holds(pod) else None

        try:
            return await self._observer.until(
                f"pod {namespace}/{name} {what}", look, timeout=timeout
            )
        except NotInTime as error:
            story = await self._observer.story(namespace, name)
            raise NotInTime(f"{error}\n{story}\n{self.logs()}") from error

    async def eventually(
        self, what: str, look: Callable[[], Awaitable[T | None]], *, timeout: float = PATIENCE
    ) -> T:
        """The first answer of ``look`` that is not None; it is asked again and again.

        Raises as :meth:`bound`.
        """
        try:
            return await self._observer.eventually(what, look, timeout=timeout)
        except NotInTime as error:
            raise NotInTime(f"{error}\n{self.logs()}") from error

    def logs(self) -> str:
        """What may explain a failure: the service's last lines, and what went wrong here."""
        problems = [f"problem: {text}" for text in self.problems]
        processes = (self.service, *self._plugin_nodes.agents)
        lines = [f"{one.name}'s last lines:\n{one.last_lines()}" for one in processes]
        return "\n".join([*lines, *problems])


def _node(pod: LivePod) -> bool:
    return bool(pod.spec.node_name)


def _read(manifests: Texts) -> list[Document]:
    match manifests:
        case str():
            return read_documents("<manifests>", manifests)
        case Mapping():
            return [Document("<manifests>", 1, manifests)]
        case _:
            return [Document("<manifests>", n, one) for n, one in enumerate(manifests, start=1)]
