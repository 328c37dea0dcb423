"""Nodes with device plugins: pods are admitted, started, refused and restarted as kubelet does."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import pytest
from hami_lab.kubelet.kubelet import Kubelet
from hami_lab.kubelet.nodes import LIVE_NODES, NodeReports
from hami_lab.kubelet.plugin_node import PluginNode, PluginNodeSettings
from hami_lab.live import LIVE_PODS

from hami.kube.client import PodBinding
from tests.simulate.builders import the_vendors

from .embedded import Pods, a_pod, a_server, eventually, running
from .embedded import a_container as any_container
from .fake_plugin import GPU, FakePlugin, preparing, slices_of, write_spec

SHORT = (0.02, 0.03)


class Site:
    """One node, its plugin, and what was recorded of them."""

    def __init__(self, pods: Pods, node: PluginNode, plugin: FakePlugin) -> None:
        self.pods = pods
        self.node = node
        self.plugin = plugin
        self.events: list[tuple[str, str, str]] = []
        self.heard = asyncio.Event()

    @property
    def runtime(self):
        return self.node.runtime

    async def add(self, *bodies: dict[str, Any]) -> None:
        """Create pods, and put them on the node as kube-scheduler does."""
        for body in bodies:
            await self.pods.add(body)
            pod = await self.pods.get(body["metadata"]["name"])
            await self.pods.client.bind(
                PodBinding(
                    namespace="default",
                    name=pod.name,
                    uid=pod.uid,
                    node="n1",
                    annotations={},
                    labels={},
                ),
                timeout=5,
            )

    async def uid(self, name: str) -> str:
        return (await self.pods.get(name)).uid

    async def waiting(self, name: str, reason: str) -> str:
        """The message of the pod's first container, once it waits for this reason."""

        def waits(pod):
            statuses = (pod.status.container_statuses if pod.status else None) or [{}]
            return statuses[0].get("state", {}).get("waiting", {}).get("reason") == reason

        pod = await self.pods.until(name, waits)
        return pod.status.container_statuses[0]["state"]["waiting"]["message"]

    async def allocatable(self, count: str) -> None:
        async def look():
            node = await self.pods.client.get(LIVE_NODES, "n1")
            return True if (node.allocatable or {}).get(GPU) == count else None

        await eventually(look, f"allocatable {count}")

    async def delete(self, name: str, **options: Any) -> None:
        await self.pods.client.delete(LIVE_PODS, name, namespace="default", **options)


@pytest.fixture
def folder():
    # pytest's own folders may be too deep for a socket's path.
    with TemporaryDirectory(prefix="hami-", dir="/tmp") as name:
        yield Path(name)


@asynccontextmanager
async def a_site(folder: Path, *ids: str, **settings: Any):
    async with a_server(folder) as (_, client):
        problems: list[str] = []
        holder: list[Site] = []

        async def hear() -> None:
            await holder[0].heard.wait()

        node = PluginNode(
            "n1",
            folder / "n1",
            PluginNodeSettings(
                hear=hear,
                record=lambda pod, reason, text: holder[0].events.append((pod.name, reason, text)),
                on_problem=problems.append,
                **{"retry": SHORT, "backoff": 0.02, **settings},
            ),
        )
        kubelet = Kubelet(
            client, NodeReports(the_vendors(), MappingProxyType({})), on_problem=problems.append
        )
        kubelet.attach(node)
        plugin = FakePlugin(node.plugins, *(ids or "abcd"))
        plugin.on_start = preparing(node.plugins, node.cdi)
        site = Site(Pods(client), node, plugin)
        holder.append(site)
        async with running(kubelet, node):
            await client.create(LIVE_NODES, {"metadata": {"name": "n1"}})
            await plugin.begin()
            await site.allocatable(str(len(plugin.healthy)))
            try:
                yield site
            finally:
                await plugin.end()
        assert problems == []


def a_container(name: str = "main", count: int = 1, **more: Any) -> dict[str, Any]:
    return any_container(name, **({GPU: str(count)} if count else {})) | more


def a_gpu_pod(name: str, *containers: dict[str, Any], **options: Any) -> dict[str, Any]:
    return a_pod(name, *(containers or [a_container()]), **options)


async def test_the_node_shows_what_its_plugin_lists_and_which_kubelet_it_has(folder):
    async with a_site(folder, "a", "b", "c") as site:
        site.plugin.send(a=False)
        await site.allocatable("2")
        node = await site.pods.client.get(LIVE_NODES, "n1")
        assert node.status.capacity[GPU] == "3"
        info = node.status.node_info
        assert info["kubeletVersion"] == "v1.36.3"
        assert info["containerRuntimeVersion"] == "containerd://2.4.2"


async def test_a_container_gets_what_its_plugin_and_its_cdi_spec_say(folder):
    async with a_site(folder) as site:
        env = [{"name": "ACME_VISIBLE_DEVICES", "value": "all"}, {"name": "MINE", "value": "1"}]
        await site.add(a_gpu_pod("p", a_container(env=env)), a_pod("plain"))
        await site.pods.phase("plain", "Running")
        pod = await site.pods.phase("p", "Running")
        (started,) = site.runtime.starts_of("p")
        assert started.env == {
            "ACME_VISIBLE_DEVICES": "GPU-1",
            "MINE": "1",
            "OWNER": f"{pod.uid}/main",
        }
        assert started.cdi_devices == ("acme.hami.io/slice=s1",)
        assert pod.status.container_statuses[0]["containerID"] == f"containerd://{started.id}"
        (plain,) = site.runtime.starts_of("plain")
        assert (plain.env, plain.cdi_devices) == ({}, ())


async def test_mounts_are_read_when_the_container_starts(folder):
    async with a_site(folder) as site:
        page = folder / "limits"
        page.write_bytes(b"first")
        mounts = [
            {"hostPath": str(page), "containerPath": "/run/hami/acme/limits", "options": ["ro"]},
            {"hostPath": "/nowhere/lib.so", "containerPath": "/lib.so"},
        ]
        nodes = [{"path": "/dev/acme0"}]

        def prepare(ids: frozenset[str]) -> None:
            for _, _, slice in slices_of(site.node.plugins, ids):
                write_spec(site.node.cdi, slice, "o", mounts=mounts, deviceNodes=nodes)

        site.plugin.on_start = prepare
        await site.add(a_gpu_pod("p"))
        await site.pods.phase("p", "Running")
        page.write_bytes(b"later")
        (started,) = site.runtime.starts_of("p")
        assert started.files == {"/run/hami/acme/limits": b"first"}
        assert started.missing == ("/nowhere/lib.so",)
        assert [(m.container_path, m.read_only) for m in started.mounts] == [
            ("/run/hami/acme/limits", True),
            ("/lib.so", False),
        ]
        assert [node.container_path for node in started.device_nodes] == ["/dev/acme0"]
        process = site.node.proc / str(started.pid)
        assert f"{page} /run/hami/acme/limits" in (process / "mountinfo").read_text()
        shown = process / "root" / "run/hami/acme/limits"
        assert shown.stat().st_ino == page.stat().st_ino


async def test_a_refused_prestart_shows_in_the_status_and_is_tried_again(folder):
    async with a_site(folder) as site:
        site.plugin.refuse_start = "pod default/p is not signed"
        await site.add(a_gpu_pod("p"))
        message = await site.waiting("p", "CreateContainerConfigError")
        assert message == (
            "device plugin PreStartContainer rpc failed with err: rpc error: code = "
            "FailedPrecondition desc = pod default/p is not signed"
        )
        assert site.events[0] == ("p", "Failed", f"Error: {message}")
        site.plugin.refuse_start = ""
        await site.pods.phase("p", "Running")
        assert len(site.plugin.called("start")) >= 2


async def test_a_cdi_device_without_a_spec_is_no_container_and_is_tried_again(folder):
    async with a_site(folder) as site:
        careful, site.plugin.on_start = site.plugin.on_start, lambda ids: None
        await site.add(a_gpu_pod("p"))
        message = await site.waiting("p", "CreateContainerError")
        assert message.endswith("unresolvable CDI devices acme.hami.io/slice=s1")
        assert not site.runtime.started
        site.plugin.on_start = careful
        await site.pods.phase("p", "Running")


async def test_one_container_that_is_refused_does_not_keep_the_others_from_starting(folder):
    async with a_site(folder) as site:
        careful = site.plugin.on_start
        site.plugin.on_start = lambda ids: careful(ids) if ids == {"b"} else None
        await site.add(a_gpu_pod("p", a_container("first"), a_container("second")))
        await site.waiting("p", "CreateContainerError")
        await eventually(lambda: found(site.runtime.starts_of("p", "second")))


async def found(what: Any) -> Any:
    return what or None


@pytest.mark.parametrize(
    ("count", "refuse", "why"),
    [
        pytest.param(1, "broken", "desc = broken, which is unexpected", id="Allocate fails"),
        pytest.param(9, "", "Requested: 9, Available: 4, which is unexpected", id="too few"),
    ],
)
async def test_a_pod_that_gets_no_devices_has_failed_for_good(folder, count, refuse, why):
    async with a_site(folder) as site:
        site.plugin.refuse_allocate = refuse
        await site.add(a_gpu_pod("p", a_container(count=count)))
        pod = await site.pods.phase("p", "Failed")
        assert pod.status.reason == "UnexpectedAdmissionError"
        assert pod.status.message.startswith("Pod was rejected: Allocate failed due to ")
        assert pod.status.message.endswith(why)
        assert [event[:2] for event in site.events] == [("p", "UnexpectedAdmissionError")]


async def test_pods_are_admitted_one_after_the_other(folder):
    async with a_site(folder) as site:
        site.plugin.allocating.clear()
        await site.add(a_gpu_pod("p"), a_gpu_pod("q"))
        await eventually(lambda: found(site.plugin.called("allocate")))
        assert (await site.pods.get("q")).status.phase == "Pending"
        assert len(site.plugin.called("allocate")) == 1
        site.plugin.allocating.set()
        await site.pods.phase("q", "Running")
        assert site.plugin.called("allocate") == [["a"], ["b"]]


async def test_init_containers_and_sidecars_start_in_order_each_after_its_prestart(folder):
    inits = [a_container("init"), a_container("sidecar", restartPolicy="Always")]
    async with a_site(folder) as site:
        await site.add(a_gpu_pod("p", a_container("main", 2), initContainers=inits))
        pod = await site.pods.phase("p", "Running")
        owners = [(one.container, one.env["OWNER"]) for one in site.runtime.started]
        assert owners == [(n, f"{pod.uid}/{n}") for n in ("init", "sidecar", "main")]
        # The sidecar took over the init container's id.
        assert site.plugin.called("start") == [["a"], ["a"], ["b", "c"]]


async def test_a_container_that_restarts_is_announced_again_and_keeps_its_answer(folder):
    async with a_site(folder) as site:
        about = {"hami.io/sim-duration": "0", "hami.io/sim-exit-code": "1"}
        await site.add(a_gpu_pod("p", annotations=about, restartPolicy="Always"))
        await eventually(lambda: found(len(site.runtime.starts_of("p")) >= 3))
        starts = site.runtime.starts_of("p")[:3]
        assert {one.cdi_devices for one in starts} == {("acme.hami.io/slice=s1",)}
        assert [one.attempt for one in starts] == [0, 1, 2]
        assert len(site.plugin.called("start")) >= 3
        assert len(site.plugin.called("allocate")) == 1


async def test_devices_of_a_finished_pod_go_to_the_next_one(folder):
    async with a_site(folder, "a") as site:
        await site.add(a_gpu_pod("p", annotations={"hami.io/sim-duration": "0"}))
        await site.pods.phase("p", "Succeeded")
        await site.add(a_gpu_pod("q"))
        await site.pods.phase("q", "Running")
        assert site.plugin.called("allocate") == [["a"], ["a"]]


async def test_a_pod_that_is_deleted_while_it_is_prepared_never_starts(folder):
    async with a_site(folder) as site:
        site.plugin.starting.clear()
        await site.add(a_gpu_pod("p"))
        await eventually(lambda: found(site.plugin.called("start")))
        await site.delete("p")
        await eventually(lambda: gone(site, "p"))
        site.plugin.starting.set()
        await site.add(a_gpu_pod("q"))
        await site.pods.phase("q", "Running")
        assert site.runtime.starts_of("p") == []


async def gone(site: Site, name: str) -> bool | None:
    pods = await site.pods.client.list(LIVE_PODS, namespace="default")
    return name not in {pod.name for pod in pods} or None


async def test_a_pod_deleted_by_force_runs_on_while_its_devices_are_given_away(folder):
    async with a_site(folder, "a") as site:
        await site.add(a_gpu_pod("p", annotations={"hami.io/sim-stop-duration": "20s"}))
        await site.pods.phase("p", "Running")
        uid = await site.uid("p")
        procs = site.node.cgroups / "kubepods" / f"pod{uid}"
        await site.delete("p", grace_seconds=0)
        await eventually(lambda: gone(site, "p"))
        await site.add(a_gpu_pod("q"))
        await site.pods.phase("q", "Running")
        assert {one.pod for one in site.runtime.running.values()} == {"p", "q"}
        (started,) = site.runtime.starts_of("p")
        assert (procs / started.id / "cgroup.procs").read_text() == f"{started.pid}\n"


@pytest.mark.parametrize("options", [{}, {"grace_seconds": 0}], ids=["gracefully", "by force"])
async def test_nothing_is_left_of_a_deleted_pod(folder, options):
    async with a_site(folder) as site:
        await site.add(a_gpu_pod("p", a_container("a"), a_container("b")))
        await site.pods.phase("p", "Running")
        await site.delete("p", **options)
        await eventually(lambda: found(not site.runtime.running))
        assert list((site.node.cgroups / "kubepods").iterdir()) == []
        assert list(site.node.proc.iterdir()) == []


# Kubelet's restart.


async def test_running_pods_survive_a_restart_of_kubelet(folder):
    async with a_site(folder) as site:
        await site.add(a_gpu_pod("p"))
        await site.pods.phase("p", "Running")
        await site.node.restart()
        await site.allocatable("0")
        await site.plugin.end()
        await site.plugin.begin()
        await site.allocatable("4")
        site.heard.set()
        await site.node.synced.wait()
        await site.add(a_gpu_pod("q"))
        await site.pods.phase("q", "Running")
        assert (await site.pods.get("p")).status.phase == "Running"
        assert len(site.runtime.starts_of("p")) == 1
        assert site.plugin.called("allocate") == [["a"], ["b"]]


@pytest.mark.parametrize("in_time", [True, False])
async def test_a_pod_with_a_finished_init_container_needs_the_plugin_in_time(folder, in_time):
    async with a_site(folder) as site:
        await site.add(a_gpu_pod("p", initContainers=[a_container("init")]))
        await site.pods.phase("p", "Running")
        await site.plugin.end()
        await site.node.restart()
        if in_time:
            await site.plugin.begin()
            await site.node.devices.healthy(GPU)
        site.heard.set()
        await site.node.synced.wait()
        if in_time:
            assert (await site.pods.get("p")).status.phase == "Running"
        else:
            pod = await site.pods.phase("p", "Failed")
            assert "no healthy devices present" in pod.status.message
            assert not site.runtime.running


async def test_a_container_that_restarts_before_registration_starts_without_prestart(folder):
    async with a_site(folder) as site:
        about = {"hami.io/sim-duration": "500ms"}
        await site.add(a_gpu_pod("p", annotations=about, restartPolicy="Always"))
        await site.pods.phase("p", "Running")
        await site.plugin.end()
        await site.node.restart()
        site.heard.set()
        await eventually(lambda: found(len(site.runtime.starts_of("p")) >= 2))
        first, second = site.runtime.starts_of("p")[:2]
        assert first.env == second.env
        assert len(site.plugin.called("start")) == 1


async def test_an_unhealthy_device_that_is_held_fails_a_pod_that_does_not_run(folder):
    async with a_site(folder) as site:
        site.plugin.refuse_start = "not yet"
        await site.add(a_gpu_pod("p"))
        await site.waiting("p", "CreateContainerConfigError")
        await site.plugin.end()
        await site.node.restart()
        site.plugin.healthy["a"] = False
        await site.plugin.begin()
        await site.node.devices.healthy(GPU)
        site.heard.set()
        pod = await site.pods.phase("p", "Failed")
        assert "previously allocated devices are no longer healthy" in pod.status.message


async def test_what_happens_while_kubelet_is_down_is_heard_of_afterwards(folder):
    async with a_site(folder) as site:
        await site.add(a_gpu_pod("p"), a_gpu_pod("q"))
        await site.pods.phase("q", "Running")
        await site.node.down()
        await site.delete("p", grace_seconds=0)
        await site.add(a_gpu_pod("r"))
        await eventually(lambda: gone(site, "p"))
        assert {one.pod for one in site.runtime.running.values()} == {"p", "q"}
        await site.plugin.end()
        await site.node.up()
        await site.plugin.begin()
        await site.node.devices.healthy(GPU)
        site.heard.set()
        await site.pods.phase("r", "Running")
        await eventually(
            lambda: found({o.pod for o in site.runtime.running.values()} == {"q", "r"})
        )


async def test_two_pods_with_one_id_each_get_what_their_own_answer_says(folder):
    async with a_site(folder) as site:
        site.node.races.forgotten_allocations = 1
        await site.add(a_gpu_pod("p"), a_gpu_pod("q"))
        await site.pods.phase("p", "Running")
        await site.pods.phase("q", "Running")
        assert site.plugin.called("allocate") == [["a"], ["a"]]
        for name in ("p", "q"):
            (started,) = site.runtime.starts_of(name)
            assert started.env["OWNER"] == f"{await site.uid(name)}/main"


async def test_pods_on_other_nodes_are_led_as_ever(folder):
    async with a_site(folder) as site:
        await site.pods.client.create(LIVE_NODES, {"metadata": {"name": "n2"}})
        await site.pods.add(a_pod("p", nodeName="n2"))
        await site.pods.phase("p", "Running")
        assert not site.runtime.started
