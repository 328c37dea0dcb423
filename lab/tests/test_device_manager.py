"""kubelet's device manager, as the stand-in plays it, against a small device plugin."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import msgspec
import pytest
from hami_lab.kubelet.devices.devices import DeviceSettings, NodeDevices
from hami_lab.kubelet.devices.ledger import NotAllocated
from hami_lab.kubelet.devices.races import Races

from hami.domain.errors import ConfigError
from hami.domain.kubernetes.objects import Pod
from hami.node.kubelet.api import v1beta1_pb2 as api
from hami.node.kubelet.checkpoint import read_checkpoint

from .embedded import eventually
from .fake_plugin import GPU, FakePlugin


@pytest.fixture
def folder():
    # pytest's own folders may be too deep for a socket's path.
    with TemporaryDirectory(prefix="hami-", dir="/tmp") as name:
        yield Path(name)


def a_container(name: str = "main", count: int | None = 1, **more: Any) -> dict[str, Any]:
    limits = {} if count is None else {GPU: str(count)}
    return {"name": name, "resources": {"limits": limits, "requests": limits}, **more}


def a_pod(uid: str, *containers: dict[str, Any], inits: tuple[dict[str, Any], ...] = ()) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": uid, "namespace": "default", "uid": uid},
            "spec": {
                "containers": list(containers) or [a_container()],
                "initContainers": list(inits),
            },
        },
        Pod,
    )


class Active:
    """The pods that kubelet counts as active."""

    def __init__(self) -> None:
        self.uids: set[str] = set()

    def __call__(self):
        return set(self.uids)


async def a_look(holds: bool) -> bool | None:
    return holds or None


@asynccontextmanager
async def a_node(folder: Path, *, active: Active | None = None, **settings: Any):
    problems: list[str] = []
    devices = NodeDevices(
        folder,
        DeviceSettings(active=active or Active(), on_problem=problems.append, **settings),
    )
    await devices.start()
    try:
        yield devices
    finally:
        await devices.stop()
    assert problems == []


def held(devices: NodeDevices) -> dict[tuple[str, str], list[str]]:
    return {(e.pod_uid, e.container): sorted(e.held.flat) for e in devices.entries()}


def on_disk(folder: Path) -> dict[tuple[str, str], list[str]]:
    data = json.loads((folder / "kubelet_internal_checkpoint").read_text())["Data"]
    return {
        (e["PodUID"], e["ContainerName"]): sorted(i for ids in e["DeviceIDs"].values() for i in ids)
        for e in data["PodDeviceEntries"] or []
    }


async def test_a_plugin_registers_and_the_node_has_its_devices(folder):
    async with a_node(folder) as devices, FakePlugin(folder, "a", "b", "c") as plugin:
        await devices.healthy(GPU, 3)
        plugin.send(b=False)
        await eventually(lambda: a_look(devices.counts().allocatable == {GPU: 2}))
        assert devices.counts().capacity == {GPU: 3}


@pytest.mark.parametrize(
    ("version", "resource", "why"),
    [
        ("v1alpha", GPU, "API version 'v1alpha' is not supported"),
        ("v1beta1", "gpu", "ResourceName 'gpu' is invalid"),
    ],
)
async def test_a_registration_that_kubelet_refuses(folder, version, resource, why):
    async with a_node(folder):
        plugin = FakePlugin(folder, "a", resource=resource)
        await plugin.serve()
        with pytest.raises(grpc.aio.AioRpcError, match=why):
            await plugin.register(version)
        await plugin.end()


async def test_a_folder_that_is_too_deep_for_a_socket_is_named(folder):
    with pytest.raises(ConfigError, match="longer than 107 bytes"):
        await NodeDevices(folder / ("x" * 100)).start()


async def test_the_plugins_preference_counts_and_the_answer_is_kept_byte_for_byte(folder):
    async with a_node(folder) as devices, FakePlugin(folder, "a", "b", "c") as plugin:
        plugin.preferred = lambda available, size: sorted(available)[-size:]
        # Options are read when it registers.
        await plugin.register()
        await devices.healthy(GPU)
        assert await devices.admit(a_pod("p", a_container(count=2))) is None
        assert plugin.calls == [("prefer", (["a", "b", "c"], [], 2)), ("allocate", ["b", "c"])]
        data = json.loads((folder / "kubelet_internal_checkpoint").read_text())["Data"]
        (entry,) = data["PodDeviceEntries"]
        answer = api.ContainerAllocateResponse.FromString(base64.b64decode(entry.pop("AllocResp")))
        assert answer.cdi_devices[0].name == "acme.hami.io/slice=s1"
        assert entry == {
            "PodUID": "p",
            "ContainerName": "main",
            "ResourceName": GPU,
            "DeviceIDs": {"-1": ["b", "c"]},
        }
        assert data["RegisteredDevices"] == {GPU: ["a", "b", "c"]}


async def test_the_node_agent_reads_the_checkpoint(folder):
    async with a_node(folder) as devices, FakePlugin(folder, "a", "b"):
        await devices.healthy(GPU)
        await devices.admit(a_pod("p", a_container(count=2)))
        (entry,) = read_checkpoint(folder)
        assert (entry.pod_uid, entry.container, entry.resource) == ("p", "main", GPU)
        assert (entry.ids, entry.edits.cdi_device("acme.hami.io/slice")) == ({"a", "b"}, "s1")


async def test_devices_with_a_topology_are_grouped_by_numa_node(folder):
    async with a_node(folder) as devices:
        plugin = FakePlugin(folder, "a", "b")
        plugin.numa = {"a": 0, "b": 1}
        async with plugin:
            await devices.healthy(GPU)
            assert await devices.admit(a_pod("p", a_container(count=2))) is None
            data = json.loads((folder / "kubelet_internal_checkpoint").read_text())["Data"]
            assert data["PodDeviceEntries"][0]["DeviceIDs"] == {"0": ["a"], "1": ["b"]}


async def test_ids_of_init_containers_go_on_to_later_ones_but_those_of_sidecars_stay(folder):
    pod = a_pod(
        "p",
        a_container("app1", 1),
        a_container("app2", 1),
        inits=(
            a_container("init1", 1),
            a_container("sidecar", 1, restartPolicy="Always"),
            a_container("init2", 2),
        ),
    )
    async with a_node(folder) as devices, FakePlugin(folder, *"abcdef") as plugin:
        await devices.healthy(GPU)
        assert await devices.admit(pod) is None
        assert held(devices) == {
            ("p", "init1"): ["a"],
            ("p", "sidecar"): ["a"],
            ("p", "init2"): ["b", "c"],
            ("p", "app1"): ["b"],
            ("p", "app2"): ["c"],
        }
        assert len(plugin.called("allocate")) == 5
        assert on_disk(folder) == held(devices)


@pytest.mark.parametrize(
    ("count", "why"),
    [
        (
            3,
            r"requested number of devices unavailable for acme.com/gpu. Requested: 3, Available: 2",
        ),
        (1, r"rpc error: code = Internal desc = broken"),
    ],
)
async def test_a_container_that_gets_no_devices_is_told_why(folder, count, why):
    async with a_node(folder) as devices, FakePlugin(folder, "a", "b") as plugin:
        await devices.healthy(GPU)
        plugin.refuse_allocate = "broken"
        assert await devices.admit(a_pod("p", a_container(count=count))) == NotAllocated(why)
        plugin.refuse_allocate = ""
        assert await devices.admit(a_pod("q", a_container(count=2))) is None


async def test_containers_that_ask_for_nothing_of_a_plugin_are_not_its_business(folder):
    async with a_node(folder) as devices, FakePlugin(folder, "a") as plugin:
        await devices.healthy(GPU)
        pod = a_pod("p", a_container(count=None), a_container("zero", 0))
        assert await devices.admit(pod) is None
        assert [await devices.before_start(pod, c) for c in pod.spec.containers] == [[], []]
        assert plugin.calls == []


async def test_devices_are_taken_back_when_the_next_pod_comes_after_the_owner_is_gone(folder):
    active = Active()
    async with a_node(folder, active=active) as devices, FakePlugin(folder, "a") as plugin:
        await devices.healthy(GPU)
        active.uids = {"p"}
        assert await devices.admit(a_pod("p")) is None
        refused = await devices.admit(a_pod("q"))
        assert "Requested: 1, Available: 0" in refused.text
        active.uids = set()
        assert held(devices) == {("p", "main"): ["a"]}
        assert await devices.admit(a_pod("q")) is None
        assert held(devices) == {("q", "main"): ["a"]}
        assert plugin.called("allocate") == [["a"], ["a"]]


async def test_prestart_comes_before_each_start_with_the_containers_ids(folder):
    async with a_node(folder) as devices, FakePlugin(folder, "a", "b") as plugin:
        await devices.healthy(GPU)
        pod = a_pod("p", a_container(count=2))
        await devices.admit(pod)
        for _ in range(2):
            (answer,) = await devices.before_start(pod, pod.spec.containers[0])
            assert answer.cdi_devices[0].name == "acme.hami.io/slice=s1"
        assert plugin.called("start") == [["a", "b"], ["a", "b"]]
        plugin.refuse_start = "pod default/p: its allocation is not signed"
        assert await devices.before_start(pod, pod.spec.containers[0]) == NotAllocated(
            "device plugin PreStartContainer rpc failed with err: rpc error: code = "
            "FailedPrecondition desc = pod default/p: its allocation is not signed"
        )


async def test_a_prestart_that_takes_too_long_is_given_up(folder):
    async with (
        a_node(folder, prestart_timeout=0.05) as devices,
        FakePlugin(folder, "a") as plugin,
    ):
        await devices.healthy(GPU)
        pod = a_pod("p")
        await devices.admit(pod)
        plugin.starting.clear()
        refused = await devices.before_start(pod, pod.spec.containers[0])
        assert "code = DeadlineExceeded" in refused.text


# Plugins that go.


async def test_a_plugin_that_ends_takes_its_devices_along_and_its_resource_after_a_while(folder):
    async with a_node(folder, stopped_grace=0.05) as devices:
        async with FakePlugin(folder, "a"):
            await devices.healthy(GPU)
        await devices.lost(GPU)
        await eventually(lambda: a_look(devices.counts().capacity == {GPU: 0}))
        pod = a_pod("p")
        # Nobody's resource any more: kubelet lets the pod in, and it gets nothing.
        assert await devices.admit(pod) is None
        assert await devices.before_start(pod, pod.spec.containers[0]) == []


async def test_while_a_plugin_is_away_pods_fail_and_starts_wait(folder):
    active = Active()
    active.uids = {"p"}
    async with a_node(folder, active=active) as devices:
        async with FakePlugin(folder, "a", "b"):
            await devices.healthy(GPU)
            pod = a_pod("p")
            await devices.admit(pod)
        await devices.lost(GPU)
        assert (devices.counts().capacity, devices.counts().allocatable) == ({GPU: 2}, {GPU: 0})
        refused = await devices.admit(a_pod("q"))
        assert (
            refused.text == f"no healthy devices present; cannot allocate unhealthy devices {GPU}"
        )
        refused = await devices.before_start(pod, pod.spec.containers[0])
        assert refused.text.endswith(f"endpoint {GPU} has been stopped")


async def test_a_lost_stream_is_a_lost_registration_and_the_plugin_sees_it(folder):
    async with a_node(folder) as devices, FakePlugin(folder, "a") as plugin:
        await devices.healthy(GPU)
        devices.drop_stream(GPU)
        await plugin.stream_ended.wait()
        await devices.lost(GPU)
        assert devices.counts().allocatable == {GPU: 0}
        await plugin.register()
        await devices.healthy(GPU)
        assert await devices.admit(a_pod("p")) is None


async def test_an_old_stream_that_ends_late_disconnects_the_newer_registration(folder):
    async with a_node(folder) as devices:
        devices.races.stream_end.clear()
        async with FakePlugin(folder, "a", name="old.sock"):
            await devices.healthy(GPU)
        async with FakePlugin(folder, "a", "b", name="new.sock") as newer:
            await devices.healthy(GPU, 2)
            devices.races.stream_end.set()
            await newer.stream_ended.wait()
            await devices.lost(GPU)
            assert devices.counts().allocatable == {GPU: 0}


# Kubelet's restart.


async def test_a_restart_deletes_every_file_but_the_checkpoint_and_has_no_devices(folder):
    async with a_node(folder) as devices, FakePlugin(folder, "a", "b") as plugin:
        await devices.healthy(GPU)
        pod = a_pod("p")
        await devices.admit(pod)
        (folder / "sub").mkdir()
        await devices.stop()
        await devices.start()
        names = {path.name for path in folder.iterdir()}
        assert names == {"kubelet_internal_checkpoint", "kubelet.sock", "sub"}
        assert devices.counts().capacity == {GPU: 0}
        assert held(devices) == {("p", "main"): ["a"]}
        # A container that restarts now gets its stored answer, and nobody is asked.
        (answer,) = await devices.before_start(pod, pod.spec.containers[0])
        assert answer.cdi_devices[0].name == "acme.hami.io/slice=s1"
        assert plugin.called("start") == []


@pytest.mark.parametrize(
    ("running", "registered", "a_healthy", "why"),
    [
        pytest.param({"main"}, False, True, "", id="what runs goes on"),
        pytest.param((), False, True, "no healthy devices present", id="before registration"),
        pytest.param((), True, True, "", id="after registration"),
        pytest.param((), True, False, "no longer healthy", id="with a failed device"),
    ],
)
async def test_pods_are_admitted_again_after_a_restart(folder, running, registered, a_healthy, why):
    active = Active()
    active.uids = {"p"}
    pod = a_pod("p")
    async with a_node(folder, active=active) as devices:
        async with FakePlugin(folder, "a", "b"):
            await devices.healthy(GPU)
            await devices.admit(pod)
        await devices.stop()
        await devices.start()
        async with FakePlugin(folder, "a", "b") as plugin:
            plugin.send(a=a_healthy)
            if registered:
                await devices.healthy(GPU)
                await eventually(
                    lambda: a_look(devices.counts().allocatable == {GPU: 1 + a_healthy})
                )
            else:
                devices.races.registration.clear()
                await devices.stop()
                await devices.start()
            refused = await devices.admit(pod, running)
            assert why in (refused.text if refused else "")
            assert (refused is None) == (not why)
            assert plugin.called("allocate") == []
            devices.races.registration.set()


async def test_a_checkpoint_that_cannot_be_read_is_reported_and_gone(folder):
    (folder / "kubelet_internal_checkpoint").write_text("{")
    problems: list[str] = []
    devices = NodeDevices(folder, DeviceSettings(on_problem=problems.append))
    await devices.start()
    await devices.stop()
    assert devices.counts().capacity == {}
    assert ["checkpoint is corrupted" in problem for problem in problems] == [True]


# Races.


async def test_an_older_checkpoint_overwrites_a_newer_one_until_the_next_list(folder):
    async with (
        a_node(folder, races=Races(stale_checkpoints=0)) as devices,
        FakePlugin(folder, "a", "b") as plugin,
    ):
        await devices.healthy(GPU)
        await devices.admit(a_pod("p"))
        devices.races.stale_checkpoints = 1
        await devices.admit(a_pod("q"))
        assert set(on_disk(folder)) == {("p", "main")}
        plugin.send()
        await eventually(lambda: a_look(set(on_disk(folder)) == {("q", "main")}))


async def test_an_allocate_that_is_forgotten_under_way_gives_its_ids_to_two_pods(folder):
    active = Active()
    active.uids = {"p", "q"}
    async with a_node(folder, active=active) as devices, FakePlugin(folder, "a", "b"):
        await devices.healthy(GPU)
        devices.races.forgotten_allocations = 1
        assert await devices.admit(a_pod("p")) is None
        assert await devices.admit(a_pod("q")) is None
        assert held(devices) == {("p", "main"): ["a"], ("q", "main"): ["a"]}


async def test_pod_resources_list_makes_kubelet_forget_an_allocate_under_way(folder):
    active = Active()
    async with a_node(folder, active=active) as devices, FakePlugin(folder, *"abc") as plugin:
        await devices.healthy(GPU)
        active.uids = {"gone"}
        await devices.admit(a_pod("gone"))
        plugin.allocating.clear()
        active.uids |= {"p"}
        admission = asyncio.create_task(devices.admit(a_pod("p")))
        await eventually(lambda: a_look(len(plugin.called("allocate")) == 2))
        active.uids = {"p"}
        devices.list_pod_resources()
        plugin.allocating.set()
        assert await admission is None
        active.uids = {"p", "q"}
        assert await devices.admit(a_pod("q", a_container(count=2))) is None
        assert held(devices) == {("p", "main"): ["b"], ("q", "main"): ["a", "b"]}
