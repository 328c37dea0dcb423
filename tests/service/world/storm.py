"""A storm: everything happens at once, in an order that a seed decides, on a misbehaving API
server.

Pods come and go, end, end their init containers, are made anew under their names; devices are
cordoned, fall ill and vanish, nodes are deleted and come back; quotas are raised, lowered, removed.
Meanwhile bindings are refused, hang, and are carried out without an answer; watches lie and break.
``Books`` looks at every single change; in the end everything is counted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiohttp
from hami_lab.api.objects.refusals import Refusal

from .objects import Json, a_container, a_node, a_pod, a_quota
from .process import Service, until
from .recount import Amount, against_quota, beyond, holds, limits, used_in, used_of_devices
from .world import World, quotas_of

NODES = ("n1", "n2")
DEVICES, MEMORY, SLOTS = 2, 16000, 4
NAMESPACES = ("default", "team")
BREAKS = 5
"""How many watches break: each break makes an informer wait longer, up to half a minute."""
TRIES = 400
"""How often one pod is tried, which is enough for the whole storm."""


class Storm:
    """One seed's storm: pods with this many names, at most ``alive`` of them at a time.

    ``kills``: how often the service is killed meanwhile.
    """

    def __init__(
        self, world: World, service: Service, seed: int, *, pods: int, alive: int, kills: int
    ) -> None:
        self.world, self.service = world, service
        self.random = random.Random(seed)
        self._pods, self._alive, self._kills = pods, alive, kills
        self._cycle = asyncio.Lock()
        self._over = False
        self._limit = self._breaks = 0
        self._shape: dict[str, dict[str, Any]] = {name: {} for name in NODES}

    async def run(self) -> None:
        """Run until every pod has been made and tried."""
        for name in NODES:
            await self.world.server.create(self._node(name))
        await self.world.add_namespace("team")
        await self._quota()
        self._trouble()
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(self._again(act, most)) for act, most in (
                (self._change_node, 0.2), (self._quota, 0.25), (self._end_some, 0.05),
                (self._break_watches, 0.5), (self._look, 0.2),
            )]  # fmt: skip
            pods = [group.create_task(self._pod(n)) for n in range(self._pods)]
            for _ in range(self._kills):
                await asyncio.sleep(self.random.uniform(0.1, 0.6))
                await self._kill()
            await asyncio.gather(*pods)
            for task in others:
                task.cancel()
        self.world.faults.clear()
        self.world.server.front.gates.clear()
        for name in NODES:
            await self._restore(name)

    async def _again(self, act: Callable[[], Any], most: float) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.0, most))
            # It may have been killed, and be about to be started again.
            with suppress(aiohttp.ClientError, OSError):
                await act()

    async def _kill(self) -> None:
        """Kill the service, and start it again once none of its bindings is under way."""
        await self.service.kill()
        await until("no binding is under way", lambda: not self.world.server.front.bindings)
        await self.service.start()

    # What goes wrong.

    def _trouble(self) -> None:
        chance = self.random.uniform
        bind = {"verb": "create", "resource": "pods", "subresource": "binding"}
        for status in (409, 429, 500, 503):
            self.world.fault(**bind, status=status, probability=chance(0.0, 0.06))
        for drop in ("before", "after"):
            self.world.fault(**bind, drop=drop, probability=chance(0.0, 0.08))
        # Longer than the bind's timeout: carried out when nobody waits for it any more, or never.
        self.world.fault(**bind, latency=0.9, probability=chance(0.0, 0.25))
        self.world.fault(**bind, latency=0.9, drop="before", probability=chance(0.0, 0.04))
        self.world.fault(**bind, latency=0.03, probability=0.3)
        self.world.fault(verb="get", status=500, probability=chance(0.0, 0.2))
        self.world.fault(verb="patch", status=429, probability=chance(0.0, 0.3))
        self.world.fault(verb="list", status=500, probability=0.3, times=1)
        self.world.fault(verb="watch", status=429, probability=0.3, times=1)
        # What happens meanwhile comes in one batch.
        self.world.fault(verb="watch", latency=chance(0.0, 0.2), probability=0.5)
        self.world.fault(verb="watch", duplicate=True, probability=chance(0.0, 1.0))
        # A watch that is cut in the middle of a batch must not have sent the end of it first.
        if self.random.random() < 0.6:
            self.world.fault(verb="watch", reorder=True, probability=chance(0.3, 1.0))
        else:
            self.world.fault(
                verb="watch", cut_after=self.random.randint(3, 30), probability=0.5, times=6
            )
        self._fail_late()

    def _fail_late(self) -> None:
        for _ in range(self.random.randint(0, 3)):
            name = f"p{self.random.randrange(self._pods)}"
            self.world.server.fail_late(500, suffix=f"/{name}/binding")

    async def _break_watches(self) -> None:
        if self._breaks == BREAKS:
            return
        self._breaks += 1
        if self.random.random() < 0.5:
            self.world.server.forget_history()
        self.world.faults.cut_watches(self.random.choice(["", "pods", "nodes", "resourcequotas"]))

    # Nodes and quotas.

    def _node(self, name: str) -> Json:
        return a_node(name, devices=DEVICES, memory=MEMORY, slots=SLOTS, **self._shape[name])

    async def _restore(self, name: str) -> None:
        self._shape[name] = {}
        try:
            await self.world.server.delete("nodes", name)
        except Refusal as refusal:
            if refusal.code != 404:
                raise
        await self.world.server.create(self._node(name))

    async def _change_node(self) -> None:
        name = self.random.choice(NODES)
        kind = self.random.choice(["ill", "without", "cordon", "well", "label", "away", "away"])
        if kind == "away":
            await self.world.server.delete("nodes", name)
            await asyncio.sleep(self.random.uniform(0.0, 0.05))
            await self.world.server.create(self._node(name))
            return
        if kind == "label":
            patch = {"metadata": {"labels": {"n": str(self.random.random())}}}
            await self.world.server.patch("nodes", name, patch)
            return
        device = self.random.randrange(DEVICES)
        cordon = {"device_cordon": f"GPU-{name}-{device}"}
        self._shape[name] = {
            "ill": {"ill": [device]}, "without": {"without": [device]}, "cordon": cordon, "well": {},
        }[kind]  # fmt: skip
        annotations = {"hami.io/device-cordon": None} | self._node(name)["metadata"]["annotations"]
        await self.world.server.patch("nodes", name, {"metadata": {"annotations": annotations}})

    async def _quota(self) -> None:
        """A quota whose limits were never used before, so that each is known from the others."""
        self._limit += 1
        memory, slots = self.random.choice([5000, 12000, 20000]) + self._limit, 40
        there = bool(self.world.server.objects("resourcequotas", namespace="team"))
        if there and self.random.random() < 0.2:
            await self.world.server.delete("resourcequotas", "q", namespace="team")
        elif there:
            await self.world.set_quota("q", "team", mem=memory, gpu=slots + self._limit)
        else:
            quota = a_quota(
                "q", "team", mem=memory, gpu=slots + self._limit, cores=250 + self._limit
            )
            await self.world.server.create(quota)

    async def _look(self) -> None:
        """Learn which limit the service acts on by now."""
        moment = self.world.books.moment
        shown = (await quotas_of(self.service)).get(("team", "q"))
        limit = None if shown is None else {key: hard for key, (hard, _) in shown.items()}
        self.world.books.ceilings.known("team", "q", limit, moment)

    # Pods.

    def _manifest(self, name: str) -> Json:
        choose = self.random.choice
        asks: dict[str, object] = {"gpu": choose([1, 1, 1, 2]), "cores": choose([0, 10, 30])}
        asks |= choose([{"mem": choose([1000, 3000, 7000])}, {"percent": choose([25, 50])}])
        inits = []
        if self.random.random() < 0.4:
            inits.append(a_container("once", gpu=1, mem=choose([500, 9000])))
        if self.random.random() < 0.15:
            inits.insert(
                choose([0, len(inits)]), a_container("side", policy="Always", gpu=1, mem=800)
            )
        return a_pod(name, namespace=choose(NAMESPACES), inits=inits, **asks)

    async def _pod(self, number: int) -> None:
        """One name's life: pods with that name, one after another."""
        await asyncio.sleep(self.random.uniform(0.0, 0.5))
        for _ in range(self.random.choice([1, 2, 3])):
            while sum(map(holds, self.world.books.pods.values())) >= self._alive:
                await asyncio.sleep(0.02)
            pod = await self.world.server.create(self._manifest(f"p{number}"))
            patience = self.random.choice([3, 8, 15])
            await self._try(pod, patience)
            if self.random.random() < 0.5 or not self.world.there(pod):
                await self._remove(pod)
            else:
                return

    async def _try(self, pod: Json, patience: int) -> None:
        """Try a pod as kube-scheduler does: filters one after another, bindings beside them."""
        for attempt in range(patience):
            if not self.world.there(pod) or self.world.node_of(pod):
                return
            with suppress(aiohttp.ClientError, OSError):
                await self._attempt(pod)
            await asyncio.sleep(self.random.uniform(0.0, 0.02 * attempt))

    async def _attempt(self, pod: Json) -> None:
        async with self._cycle:
            current = self.world.now(pod)
            nodes = self.random.sample(NODES, self.random.randint(1, len(NODES)))
            filtered = await self.world.filter(self.service, current or pod, *nodes)
        if filtered.node and self.random.random() < 0.95:  # Sometimes another plugin says no.
            await asyncio.sleep(self.random.choice([0.0, 0.0, self.random.uniform(0.0, 0.05)]))
            await self.world.bind(self.service, pod, filtered.node)

    async def _end_some(self) -> None:
        """End a pod as kubelet or a user would."""
        pods = [pod for pod in self.world.books.pods.values() if holds(pod)]
        if not pods:
            return
        pod = self.random.choice(pods)
        match self.random.choice(
            ["init", "init", "init", "ended", "deleted", "nothing", "nothing"]
        ):
            case "init" if starting := [p for p in pods if p["spec"].get("initContainers")]:
                await self._end_init(self.random.choice(starting))
            case "ended":
                await self.world.set_status(pod, phase=self.random.choice(["Succeeded", "Failed"]))
            case "deleted":
                await self._remove(pod)

    async def _end_init(self, pod: Json) -> None:
        """End an init container; after exit 1 it will be started again."""
        before = pod["status"].get("initContainerStatuses", ())
        if any(s["state"].get("terminated", {}).get("exitCode") == 0 for s in before):
            return
        ended = {"terminated": {"exitCode": self.random.choice([0, 0, 1])}}
        statuses = [
            {"name": c["name"], "state": ended if c["name"] == "once" else {"running": {}}}
            for c in pod["spec"].get("initContainers", ())
        ]
        await self.world.set_status(pod, phase="Running", initContainerStatuses=statuses)

    async def _remove(self, pod: Json) -> None:
        grace = self.random.choice([0, 0, 1])
        for seconds in (grace, 0) if grace else (0,):
            if not self.world.there(pod):
                return
            await self.world.remove(pod, grace=seconds)
            await asyncio.sleep(self.random.uniform(0.0, 0.03) if seconds else 0)

    # Afterwards.

    async def settle(self) -> None:
        """Stop all trouble: what fits is bound, and what is refused cannot fit."""
        world, service = self.world, self.service
        for pod in filter(holds, list(world.books.pods.values())):
            await self._end_init(pod)
        for _ in range(TRIES):
            placed = False
            for pod in self._waiting():
                filtered = await world.filter(service, pod)
                placed |= bool(filtered.node or filtered.error)
                if filtered.node:
                    await world.bind(service, pod, filtered.node)
            if not placed:
                await world.agree(service)
                if not any(map(self._fits, self._waiting())):
                    return
            await asyncio.sleep(0.05)
        waiting = [pod for pod in self._waiting() if self._fits(pod)]
        raise AssertionError(f"these fit and are not bound: {waiting}\n{service.last_lines()}")

    def _waiting(self) -> list[Json]:
        return [
            pod for pod in self.world.pods()
            if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        ]  # fmt: skip

    def _fits(self, pod: Json) -> bool:
        """Whether the pod fits by the recount alone; for pods with one container and one device."""
        (container,) = pod["spec"]["containers"]
        asked = container["resources"]["limits"]
        if pod["spec"].get("initContainers") or asked["nvidia.com/gpu"] != "1":
            return False
        share = int(asked.get("nvidia.com/gpumem-percentage", "0"))
        memory = MEMORY * share // 100 or _number(asked["nvidia.com/gpumem"])
        wanted = Amount(1, memory, _number(asked["nvidia.com/gpucores"]))
        namespace = pod["metadata"]["namespace"]
        pods = self.world.pods()
        for quota in self.world.server.objects("resourcequotas", namespace=namespace):
            if beyond(used_in(namespace, pods) + wanted, limits(quota)):
                return False
        there = Amount(SLOTS, MEMORY, 100)
        used = used_of_devices(pods, self.world.nodes())
        return any(not (amount + wanted).exceeds(there) for amount in used.values())

    async def clear(self) -> None:
        """Delete everything; the service's books are empty then."""
        for pod in self.world.pods():
            await self.world.remove(pod)
        await self.world.agree(self.service)

        async def empty() -> bool:
            return not any((await self.service.summary())["pods"].values())

        await until("nobody holds or awaits anything", empty)
        assert set((await self.service.used()).values()) == {Amount()}
        assert all(against_quota(pod) == Amount() for pod in self.world.pods())


def _number(text: str) -> int:
    return int(text.replace("k", "000"))
