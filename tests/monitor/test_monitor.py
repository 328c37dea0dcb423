"""The whole monitor in this process: with an API server, without one, and when it is told to stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hami_lab.api import ApiServer

from hami.domain.devices import Device
from hami.domain.errors import ConfigError
from hami.domain.measurements import MeasuredDevice, MeasuredProcess, Measurement
from hami.kube.client import KubeClient
from hami.kube.identity.settings import KubeSettings
from hami.kube.resources import EVENTS, PODS
from hami.monitor import monitor
from hami.monitor.settings.source import MonitorSource
from hami.monitor.tick.pod_warnings import BYPASS, STRANGER
from hami.slices.c_layout import SLOT_BYPASS

from ..builders import a_plugin, answering
from ..kube.fake_api import kubeconfig
from .world import GIB, NVIDIA, NodeSlice, NodeSlices, ProcTree

GPU = "GPU-0"


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NODE_NAME", "NodeName", "HOOK_PATH"):
        monkeypatch.delenv(name, raising=False)


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slices = NodeSlices(folder / "slices")
        self.proc = ProcTree(folder / "proc")
        self.processes: list[MeasuredProcess] = []

    def measure(self) -> Measurement:
        return Measurement(
            devices=(MeasuredDevice(id=GPU, utilisation=1.0),), processes=tuple(self.processes)
        )

    def source(self, **settings: object) -> MonitorSource:
        return MonitorSource(
            flags={
                "slices": str(self.folder / "slices"),
                "proc_root": str(self.folder / "proc"),
                "hook_path": str(self.folder / "hook"),
                "tick": "100ms",
                "metrics_bind_address": f"unix:{self.folder}/http",
                **settings,
            }
        )

    @asynccontextmanager
    async def serving(self, **settings: object):
        source = self.source(**settings)
        ready = asyncio.Event()
        serving = asyncio.ensure_future(
            monitor.serve(source.load(), source=source, ready=ready.set)
        )
        waiting = asyncio.ensure_future(ready.wait())
        await asyncio.wait({serving, waiting}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if serving.done():
            serving.result()
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture
def world(tmp_path, install) -> World:
    made = World(tmp_path)
    install(
        nvidia=a_plugin(
            answering("hami_discover", (Device(id=GPU, vendor=NVIDIA),)),
            measuring(made.measure),
            vendors=(NVIDIA,),
        )
    )
    return made


def measuring(answer: Callable[[], Measurement]):
    from hami.hookspecs import hookimpl

    @hookimpl
    def hami_measure():
        return answer()

    return hami_measure


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.02)


async def asked(world: World, target: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_unix_connection(str(world.folder / "http"))
    writer.write(f"GET {target} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


async def test_without_an_api_server_everything_but_events_works(world):
    one = world.slices.add(GPU)
    async with world.serving(node_name="n1"):
        await until(lambda: one.observed.heartbeat > 1)
        assert (await asked(world, "/healthz"))[0] == 200
        assert (await asked(world, "/readyz"))[0] == 200
        assert one.id in (await asked(world, "/api/v1/node"))[1]
    reached = one.observed.heartbeat
    await asyncio.sleep(0.3)
    assert one.observed.heartbeat == reached
    async with world.serving():
        await until(lambda: one.observed.heartbeat > reached)


async def test_pods_are_told_once_what_concerns_them(world):
    async with ApiServer() as api:
        config = kubeconfig(world.folder, api.url)
        async with await KubeClient.connect(KubeSettings(kubeconfig=config)) as client:
            uids = [await put_pod(client, name) for name in ("pod-1", "pod-2")]
            bypassing = world.slices.add(GPU, pod_uid=uids[0])
            bypassing.charge(0, 7, GIB, flags=SLOT_BYPASS)
            world.proc.add(100, pod_uid=uids[1], container_id="c1")
            world.processes = [MeasuredProcess(device_id=GPU, pid=100, memory_bytes=GIB)]
            async with world.serving(node_name="n1", kubeconfig=str(config)):
                async with asyncio.timeout(20):
                    while len(events := await client.list(EVENTS)) < 2:
                        await asyncio.sleep(0.05)
                await asyncio.sleep(0.5)
                events = await client.list(EVENTS)
                [stranger] = json.loads((await asked(world, "/api/v1/node"))[1])["strangers"]
    assert {(e.involved_object.name, e.reason, e.count) for e in events} == {
        ("pod-1", BYPASS, 1),
        ("pod-2", STRANGER, 1),
    }
    assert (stranger["namespace"], stranger["pod"]) == ("default", "pod-2")


async def put_pod(client: KubeClient, name: str) -> str:
    """Its UID."""
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "i"}]}
    pod = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    return (await client.create(PODS, pod, namespace="default")).uid


async def test_a_vendor_that_is_not_there_is_named(world):
    with pytest.raises(ConfigError, match="'dcu'"):
        async with world.serving(vendors="dcu"):
            pass


async def test_a_second_monitor_waits_for_the_first_to_end(world):
    one: NodeSlice = world.slices.add(GPU)
    async with world.serving(metrics_bind_address="off"):
        await until(lambda: one.observed.heartbeat > 0)
        second = asyncio.ensure_future(_once(world, one))
        await asyncio.sleep(0.3)
        assert not second.done()
    await second


async def _once(world: World, one: NodeSlice) -> None:
    async with world.serving(metrics_bind_address="off"):
        reached = one.observed.heartbeat
        await until(lambda: one.observed.heartbeat > reached)
