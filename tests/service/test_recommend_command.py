"""``hami recommend`` in a cluster: monitors behind the API server's pod proxy, and ``--apply``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner

from hami.cli.app import app
from hami.monitor.table import NodeTable, SliceFigures
from hami.signing import new_private_pem
from tests.monitor.serving import a_monitor
from tests.monitor.tables import GIB, MIB, NOW, a_device, a_node, a_slice, held

from .world.objects import Json, a_pod, a_quota
from .world.process import Service
from .world.users import a_user
from .world.world import World

MONITOR = {"app.kubernetes.io/name": "hami", "app.kubernetes.io/component": "monitor"}


@dataclass
class Cluster:
    """Two nodes with a monitor each; ``used`` by pod in bytes, 1 GiB where it is not named."""

    world: World
    service: Service
    kubeconfig: str
    used: dict[str, int] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    liar: str = ""
    port: int = 0

    async def runs(self, *arguments: str, answer: str = ""):
        env = {"HAMI_SERVER": self.service.plain, "KUBECONFIG": self.kubeconfig, "COLUMNS": "160"}
        options = ["recommend", "--monitor-port", str(self.port), *arguments]
        return await asyncio.to_thread(CliRunner().invoke, app, options, env=env, input=answer)

    async def says(self, *arguments: str) -> tuple[int, Json]:
        done = await self.runs("--json", *arguments)
        assert done.stdout, done.stderr
        return done.exit_code, json.loads(done.stdout)

    def table(self, node: str) -> NodeTable:
        """What the node's pods have, as their annotations say, and as the agent enforces it."""
        pods = [pod for pod in self.world.pods() if self.world.node_of(pod) in (node, self.liar)]
        device = a_device(0, id=f"GPU-{node}-0", memory_total_bytes=16000 * MIB)
        slices = [made for pod in pods if (made := self._slice(pod, node))]
        return a_node(*slices, node=node, devices=(device,))

    def _slice(self, pod: Json, node: str) -> SliceFigures | None:
        text = self.world.annotation(pod, "vgpu-devices-allocated")
        if not text:
            return None
        _, _, memory, cores = text.split(":")[0].split(",")
        about = pod["metadata"]
        signature = self.world.annotation(pod, "allocation-signature")
        device = held(
            device_id=f"GPU-{node}-0",
            memory_limit_bytes=int(memory) * MIB,
            guarantee=int(cores),
            used_bytes=self.used.get(about["name"], GIB),
            utilisation=20.0 if about["name"] in self.waiting else 10.0,
        )
        return a_slice(
            about["name"], device, pod_uid=about["uid"], namespace=about["namespace"],
            created_at=NOW - 7200, generation=int(signature.split(".")[1]),
        )  # fmt: skip

    def memory(self, name: str) -> int:
        pod = self.world.pod(name, "team")
        text = self.world.annotation(pod, "vgpu-devices-allocated")
        return int(text.split(",")[2])


@pytest.fixture
async def cluster(world) -> AsyncIterator[Cluster]:
    keys = world.folder / "keys.pem"
    keys.write_bytes(new_private_pem())
    for name in ("team", "hami"):
        await world.add_namespace(name)
    await world.add_nodes("n1", "n2")
    service = await world.service(signing_key_file=keys)
    config = world.server.kubeconfig()
    config["users"][0]["user"] = {"token": await a_user(world, "tenant", namespace="team")}
    config["contexts"][0]["context"]["namespace"] = "team"
    file = world.folder / "tenant.kubeconfig"
    file.write_text(json.dumps(config))
    cluster = Cluster(world, service, str(file))
    async with AsyncExitStack() as stack:
        for number, node in enumerate(("n1", "n2"), 1):
            host = f"127.0.0.{number}"
            monitor = a_monitor(
                lambda node=node: cluster.table(node),
                host=host,
                port=cluster.port,
                waiting=cluster.waiting,
            )
            url = await stack.enter_async_context(monitor)
            cluster.port = int(url.rpartition(":")[2])
            await a_monitor_pod(world, f"monitor-{number}", node, host)
        yield cluster


async def a_monitor_pod(world: World, name: str, node: str, host: str) -> None:
    pod = a_pod(name, namespace="hami", labels=MONITOR, spec={"nodeName": node})
    await world.set_status(await world.server.create(pod), podIP=host, phase="Running")


async def a_replica(cluster: Cluster, name: str, **asks: Any) -> Json:
    """A pod of Deployment ``train``."""
    owner = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train-7d4f9", "uid": "rs-1",
        "controller": True,
    }  # fmt: skip
    pod = a_pod(name, namespace="team", labels={"pod-template-hash": "7d4f9"}, **asks)
    pod["metadata"]["ownerReferences"] = [owner]
    pod = await cluster.world.server.create(pod)
    filtered = await cluster.world.filter(cluster.service, pod)
    assert await cluster.world.bind(cluster.service, pod, filtered.node) == ""
    return pod


async def test_a_deployment_is_one_line_with_its_highest_pod(cluster):
    await a_replica(cluster, "train-a", gpu=1, mem=8000, cores=20)
    await a_replica(cluster, "train-b", gpu=1, mem=8000, cores=20)
    await cluster.world.place(cluster.service, "alone", namespace="team", gpu=1, mem=2000)
    await cluster.world.place(cluster.service, "elsewhere", gpu=1, mem=2000)
    cluster.used = {"train-b": 2 * GIB}
    code, found = await cluster.says()
    assert code == 0
    alone, train = sorted(found["workloads"], key=lambda one: one["name"])
    assert (train["kind"], train["name"], train["pods"]) == (
        "Deployment",
        "train",
        ["train-a", "train-b"],
    )
    assert train["couldAsk"] == {"memoryMiB": 2560, "cores": 15}
    assert train["saves"] == {"memoryMiB": 2 * (8000 - 2560), "cores": 10}
    assert (alone["kind"], alone["name"], alone["couldAsk"]) == (
        "Pod",
        "alone",
        {"memoryMiB": 1280, "cores": None},
    )
    assert found["silent"] == []
    _, everywhere = await cluster.says("-A")
    assert {one["name"] for one in everywhere["workloads"]} == {"train", "alone", "elsewhere"}
    assert {cluster.memory(name) for name in ("train-a", "train-b")} == {8000}, "nothing changed"


async def test_apply_resizes_what_runs_and_says_what_to_write(cluster):
    await a_replica(cluster, "train-a", gpu=1, mem=8000, cores=20)
    await a_replica(cluster, "train-b", gpu=1, mem=8000, cores=20)
    done = await cluster.runs("--apply", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "team/train-a on n1: generation 2" in done.stdout
    assert done.stdout.endswith(
        "  team Deployment/train, container main: nvidia.com/gpumem: 1280, nvidia.com/gpucores: 15\n"
    )
    assert {cluster.memory(name) for name in ("train-a", "train-b")} == {1280}
    code, again = await cluster.says("--apply")
    assert (code, again["resized"]) == (0, [])
    assert again["workloads"][0]["why"]["reason"] == "FITS"


async def test_a_repetition_before_the_monitors_see_it_asks_for_nothing_new(cluster, monkeypatch):
    await a_replica(cluster, "train-a", gpu=1, mem=8000, cores=20)
    before = cluster.table("n1"), cluster.table("n2")
    monkeypatch.setattr(cluster, "table", lambda node: before[node == "n2"])
    _, first = await cluster.says("--apply", "--yes")
    code, second = await cluster.says("--apply", "--yes")
    assert (code, second["resized"]) == (0, first["resized"])
    assert second["resized"][0]["generation"] == 2


async def test_it_asks_before_it_resizes(cluster):
    await a_replica(cluster, "train-a", gpu=1, mem=8000, cores=20)
    done = await cluster.runs("--apply", answer="n\n")
    assert done.exit_code == 1
    assert "resize 1 pod now? [y/N]" in done.stderr
    assert cluster.memory("train-a") == 8000
    assert (await cluster.runs("--apply", "--json")).exit_code == 2
    assert cluster.memory("train-a") == 8000
    assert (await cluster.runs("--apply", answer="y\n")).exit_code == 0
    assert cluster.memory("train-a") == 1280


async def test_one_refusal_keeps_none_of_the_others(cluster):
    await cluster.world.server.create(a_quota("q", namespace="team", mem=10000))
    await a_replica(cluster, "train-a", gpu=1, mem=2000, cores=20)
    await cluster.world.place(cluster.service, "z", namespace="team", gpu=1, mem=8000, cores=20)
    cluster.used = {"train-a": 12000 * MIB}
    done = await cluster.runs("--apply", "--yes")
    assert done.exit_code == 1
    assert "hami: team/train-a:\nhami: not resized: ResourceQuotaNotFit" in done.stderr
    assert (cluster.memory("train-a"), cluster.memory("z")) == (2000, 1280)


@pytest.mark.parametrize(("limit", "code"), [("22", 1), ("60", 0)])
async def test_a_limit_of_compute_stays(cluster, limit, code):
    annotations = {"hami.io/gpucores-limit": limit}
    asks = {"namespace": "team", "gpu": 1, "mem": 1280, "cores": 20, "annotations": annotations}
    await cluster.world.place(cluster.service, "p", **asks)
    cluster.waiting.add("p")
    found, answer = await cluster.says("--apply", "--yes")
    assert answer["workloads"][0]["couldAsk"] == {"memoryMiB": None, "cores": 25}
    assert found == code
    refusals = answer["resized"][0].get("refusals", [])
    assert [one["reason"] for one in refusals] == ["CoresLimitNotFit"] * code


async def test_who_shrinks_makes_room_for_who_grows(cluster):
    await a_replica(cluster, "train-a", gpu=1, mem=2000, cores=20)
    await cluster.world.place(cluster.service, "z", namespace="team", gpu=1, mem=8000, cores=20)
    assert len({cluster.world.node_of(pod) for pod in cluster.world.pods()} - {"n2"}) == 1
    cluster.used = {"train-a": 12000 * MIB}
    done = await cluster.runs("--apply", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert (cluster.memory("train-a"), cluster.memory("z")) == (14592, 1280)


async def test_a_monitor_speaks_of_its_own_node_alone(cluster):
    await a_replica(cluster, "train-a", gpu=1, mem=8000, cores=20)
    node = cluster.world.node_of(cluster.world.pod("train-a", "team"))
    other = {"n1": "n2", "n2": "n1"}[node]
    cluster.liar, cluster.used = node, {"train-a": 1}
    _, found = await cluster.says()
    assert len(found["workloads"]) == 1
    await cluster.world.remove(
        next(
            pod for pod in cluster.world.pods()
            if pod["metadata"]["namespace"] == "hami" and pod["spec"]["nodeName"] == node
        )
    )  # fmt: skip
    _, found = await cluster.says()
    assert found["workloads"] == [], f"{other} alone has spoken"


async def test_a_node_without_an_answer_hides_no_other(cluster):
    await a_replica(cluster, "train-a", gpu=1, mem=8000, cores=20)
    await a_monitor_pod(cluster.world, "monitor-3", "n3", "127.0.0.3")
    await a_monitor_pod(cluster.world, "monitor-4", "n4", "127.0.0.1")
    code, found = await cluster.says()
    assert (code, len(found["workloads"])) == (0, 1)
    silent = {one["node"]: one["why"] for one in found["silent"]}
    assert "error trying to reach service" in silent["n3 (pod hami/monitor-3)"]
    assert "it speaks of node n1, on which it does not run" in silent["n4 (pod hami/monitor-4)"]


async def test_no_monitor(cluster):
    done = await cluster.runs("--monitor-namespace", "team")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "no pod of namespace team has the labels app.kubernetes.io/name=hami" in done.stderr
