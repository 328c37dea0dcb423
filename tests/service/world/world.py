"""A whole cluster in a test: the embedded API server, services as processes, a kube-scheduler.

The kube-scheduler is the test itself, so that the order of calls is in its hands.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from hami_lab.api.http.faults import Fault, Faults

from .api import GatedServer
from .objects import Json, a_node, a_pod
from .process import Forge, Service, until
from .recount import Books, holds, limits, used_in, used_of_devices

OURS = "hami/"
"""The beginning of the service's user agent."""


@dataclass(frozen=True)
class Filtered:
    """A filter's answer: ``node`` is empty for a refusal; ``reasons`` by node, or one ``error``."""

    node: str = ""
    reasons: dict[str, str] = field(default_factory=dict)
    error: str = ""


class World:
    """Open with :func:`a_world`."""

    def __init__(
        self, folder: Path, forge: Forge, session: aiohttp.ClientSession, seed: int
    ) -> None:
        self.folder = folder
        self.server = GatedServer(faults=Faults(seed))
        self.faults = self.server.faults
        self.calls = self.server.calls
        self.session = session
        self.books = Books()
        self.server.on_change(self.books.changed)
        self.kubeconfig = folder / "kubeconfig"
        self._forge = forge
        self._services: list[Service] = []
        self._asked: set[asyncio.Task[Any]] = set()

    # Who is there.

    def replica(self, name: str = "hami", **flags: object) -> Service:
        """A replica that is not started yet."""
        flags = {"kubeconfig": self.kubeconfig, **flags}
        service = Service(self._forge, self.session, self.folder, name, **flags)
        self._services.append(service)
        return service

    async def service(self, name: str = "hami", **flags: object) -> Service:
        service = self.replica(name, **flags)
        await service.start()
        return service

    def complaints(self) -> list[str]:
        """Complaints of all services; see ``Service.complaints``."""
        return [line for service in self._services for line in service.complaints()]

    async def end(self) -> None:
        for service in self._services:
            if service.process:
                await service.kill()
        await asyncio.gather(*self._asked)

    # What there is.

    async def add_nodes(self, *names: str, **shape: Any) -> None:
        for name in names:
            await self.server.create(a_node(name, **shape))

    async def add_pod(self, name: str, **asks: Any) -> Json:
        return await self.server.create(a_pod(name, **asks))

    async def add_namespace(self, name: str) -> None:
        await self.server.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )

    async def remove(self, pod: Json, *, grace: int | None = 0) -> None:
        about = pod["metadata"]
        await self.server.delete("pods", about["name"], namespace=about["namespace"], grace=grace)

    async def annotate(
        self, plural: str, name: str, *, namespace: str = "", **more: str | None
    ) -> None:
        """Set annotations; names as in :func:`a_node`; None removes one."""
        annotations = {f"hami.io/{key.replace('_', '-')}": text for key, text in more.items()}
        patch = {"metadata": {"annotations": annotations}}
        await self.server.patch(plural, name, patch, namespace=namespace)

    async def set_status(self, pod: Json, **status: Any) -> None:
        about = pod["metadata"]
        await self.server.patch(
            "pods",
            about["name"],
            {"status": status},
            namespace=about["namespace"],
            subresource="status",
        )

    async def set_quota(self, name: str, namespace: str = "default", **hard: int) -> None:
        keys = {"gpu": "nvidia.com/gpu", "mem": "nvidia.com/gpumem", "cores": "nvidia.com/gpucores"}
        spec = {"hard": {f"limits.{keys[key]}": str(amount) for key, amount in hard.items()}}
        await self.server.patch("resourcequotas", name, {"spec": spec}, namespace=namespace)

    def pod(self, name: str, namespace: str = "default") -> Json:
        return self.server.get("pods", name, namespace=namespace)

    def pods(self) -> list[Json]:
        return self.server.objects("pods")

    def nodes(self) -> list[Json]:
        return self.server.objects("nodes")

    def node_of(self, pod: Json) -> str:
        """The pod's node; empty while it is not bound, and when it is gone."""
        return str((self.now(pod) or {"spec": {}})["spec"].get("nodeName", ""))

    def now(self, pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The pod as it is now; None when it is gone, even if another has its name."""
        return self.books.pods.get(pod["metadata"]["uid"])

    def there(self, pod: Json) -> bool:
        return self.now(pod) is not None

    def annotation(self, pod: Json, key: str) -> str:
        about = pod["metadata"]
        found = self.pod(about["name"], about["namespace"])["metadata"].get("annotations", {})
        return str(found.get(f"hami.io/{key}", ""))

    def events(self, reason: str) -> list[str]:
        return [e["message"] for e in self.server.objects("events") if e["reason"] == reason]

    def writes(self) -> list[tuple[str, str, str, int, int]]:
        """The services' writes without events and leases: verb, resource, status, how often."""
        return [
            (call.verb, call.resource, call.subresource, call.status, times)
            for call, times in self.calls
            if call.user_agent.startswith(OURS)
            and call.verb in ("create", "update", "patch", "delete")
            and call.resource not in ("events", "leases")
        ]

    def fault(self, **fault: Any) -> Fault:
        """A fault for the services alone."""
        return self.faults.add(Fault(user_agent=OURS, **fault))

    # What a kube-scheduler does.

    def ask(self, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Call in the background; await the answer, or the exception instead."""

        async def outcome() -> Any:
            try:
                return await call
            except (aiohttp.ClientError, OSError) as error:
                return error

        task = asyncio.create_task(outcome())
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        return task

    async def filter(self, service: Service, pod: Json, *nodes: str) -> Filtered:
        """Filter a pod; over all nodes by default."""
        names = list(nodes) or [node["metadata"]["name"] for node in self.nodes()]
        self.books.asked(pod)
        answer = await self._post(
            service, "filter", {"Pod": pod, "Nodes": None, "NodeNames": names}
        )
        if answer["Error"]:
            return Filtered(error=answer["Error"])
        if answer["NodeNames"]:
            (node,) = answer["NodeNames"]
            return Filtered(node=node)
        self.books.refused(pod)
        reasons = {**(answer["FailedNodes"] or {}), **(answer["FailedAndUnresolvableNodes"] or {})}
        return Filtered(reasons=reasons)

    async def filter_until(self, service: Service, pod: Json, *nodes: str) -> Filtered:
        """Filter the pod again and again, until it has a node."""
        found: list[Filtered] = []

        async def placed() -> bool:
            found[:] = [await self.filter(service, pod, *nodes)]
            return bool(found[0].node)

        await until("a node is found", placed, story=lambda: f"{found}\n{service.last_lines()}")
        return found[0]

    async def preempt(self, service: Service, pod: Json, **victims: list[Json]) -> list[str]:
        """The nodes where evicting these victims would help the pod."""
        named = {
            node: {"Pods": [{"UID": victim["metadata"]["uid"]} for victim in pods]}
            for node, pods in victims.items()
        }
        body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": named}
        answer = await self._post(service, "preempt", body)
        return sorted(answer["NodeNameToMetaVictims"] or ())

    async def bind(self, service: Service, pod: Json, node: str) -> str:
        """Bind the pod; the error, empty when it is bound."""
        about = pod["metadata"]
        body = {
            "PodName": about["name"], "PodNamespace": about["namespace"], "PodUID": about["uid"],
            "Node": node,
        }  # fmt: skip
        return str((await self._post(service, "bind", body))["Error"])

    async def place(self, service: Service, name: str, **asks: Any) -> Json:
        """Create, filter and bind a pod."""
        pod = await self.add_pod(name, **asks)
        filtered = await self.filter(service, pod)
        assert filtered.node, filtered
        assert await self.bind(service, pod, filtered.node) == ""
        return pod

    async def _post(self, service: Service, verb: str, body: Json) -> Any:
        async with self.session.post(f"{service.extender}/{verb}", data=json.dumps(body)) as answer:
            text = await answer.text()
            assert answer.status == 200, (verb, answer.status, text)
            return json.loads(text)

    # What must hold.

    async def agree(self, service: Service) -> None:
        """Wait until the service's books agree with a recount of all annotations.

        Also checks that only bound pods hold anything, and that nothing was ever given twice.
        """
        said: list[str] = []

        async def same() -> bool:
            said[:] = [text async for text in self._differences(service)]
            return not said

        def story() -> str:
            return "\n".join([*said, service.last_lines()])

        await until(f"{service.name} agrees with a recount", same, story=story)
        assert self.books.violations == [], f"{self.books.violations}\n{service.last_lines()}"

    async def _differences(self, service: Service) -> AsyncIterator[str]:
        pods = self.pods()
        ours, theirs = used_of_devices(pods, self.nodes()), await service.used()
        for key in sorted(ours.keys() | theirs.keys()):
            if ours.get(key) != theirs.get(key):
                yield f"{key}: {ours.get(key)} are in use, the service says {theirs.get(key)}"
        theirs_of_quotas = await quotas_of(service)
        for quota in self.server.objects("resourcequotas"):
            about, hard = quota["metadata"], limits(quota)
            used = used_in(about["namespace"], pods)
            amounts = {
                "limits.nvidia.com/gpu": used.slots,
                "limits.nvidia.com/gpumem": used.memory,
                "limits.nvidia.com/gpucores": used.cores,
            }
            expected = {key: (limit, amounts[key]) for key, limit in hard.items()}
            found = theirs_of_quotas.get((about["namespace"], about["name"]), {})
            if found != expected:
                yield f"quota {about['namespace']}/{about['name']}: {expected} became {found}"
        bound = sum(map(holds, pods))
        phases = (await service.summary())["pods"]
        if (phases["reserved"], phases["binding"], phases["bound"]) != (0, 0, bound):
            yield f"{bound} pods are bound, the service says {phases}"


async def quotas_of(service: Service) -> dict[tuple[str, str], dict[str, tuple[int, int]]]:
    """Limit and usage by key of each object that has limits."""
    return {
        (quota["namespace"], quota["name"]): {
            key: (amount["hard"], amount["used"]) for key, amount in quota["limits"].items()
        }
        for quota in await service.each("quotas")
    }


@asynccontextmanager
async def a_world(folder: Path, forge: Forge, *, seed: int = 0) -> AsyncIterator[World]:
    """A running world; at the end all its processes are gone."""
    async with AsyncExitStack() as stack:
        # Each side of an HTTP connection may close it first: a request into a closing one fails.
        session = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        )
        world = World(folder, forge, session, seed)
        await stack.enter_async_context(world.server)
        world.kubeconfig.write_text(json.dumps(world.server.kubeconfig()))
        stack.push_async_callback(world.end)
        yield world
