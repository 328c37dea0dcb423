"""What goes wrong on a real node: kubelet and agent end, annotations are forged, disks are full."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from hami.node.kubelet.api import v1beta1_pb2 as api
from lab.tests.fake_plugin import FakePlugin

from .client import NAMESPACES, pods_path
from .image import ASIDE
from .processes import until
from .proxy import Proxy
from .real_node import CHECKPOINT, FOREVER, MOCK, a_job, a_running_pod, an_app
from .worker import DEVICE_PLUGINS

pytestmark = pytest.mark.timeout(300)  # kubelet tries again every 10 to 15 s

ALLOCATED = "hami.io/mock-devices-allocated"
SIGNATURE = "hami.io/allocation-signature"


@pytest.fixture
def agent(node):
    return node.agent(devices={"devices": "mockx2"})


@contextmanager
def standing_still(pid):
    """It answers nobody, and has not ended: kubelet waits for an agent's Allocate."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def edit(node, name, **changes):
    """As the owners of the cluster could; others the chart's policy keeps from it."""
    patch = {"metadata": {"annotations": {f"hami.io/{k.replace('_', '-')}": v for k, v in changes.items()}}}  # fmt: skip
    node.admin.merge(pods_path(node.cluster.namespace, name), patch)


# Restarts.


def test_kubelet_restarts_under_running_pods(node, agent):
    """One that needed a device in an init container long finished must not be rejected either."""
    inits = [a_job("before", mock=1, mockmem=1000)]
    node.cluster.add_pods(
        a_running_pod("plain", mock=1, mockmem=1000),
        a_running_pod("inits", inits=inits, containers=[an_app(mock=1, mockmem=2000)]),
    )
    node.starts("plain", "inits")
    before = {c.pid for c in node.containers()}
    for _ in range(3):
        node.worker.stop_kubelet()
        heard = node.heard()
        node.worker.start_kubelet()
        until("the agent is back", lambda heard=heard: node.heard() > heard)
    assert {c.pid for c in node.containers()} == before
    assert [node.cluster.pod(name)["status"]["phase"] for name in ("plain", "inits")] == ["Running"] * 2  # fmt: skip
    node.cluster.add_pod(a_running_pod("later", mock=1, mockmem=3000))
    node.starts("later")
    assert node.agrees() == 3


def test_another_plugin_takes_the_resource_and_goes(node, agent):
    """kubelet keeps the stream of the agent open, and counts nothing of it any more."""
    before = int(allocatable(node))

    async def taken():
        async with FakePlugin(DEVICE_PLUGINS, "other", resource=MOCK[0]):
            await asyncio.to_thread(until, "it has the name", lambda: allocatable(node) == "1")

    asyncio.run(taken())
    until("nobody has it", lambda: allocatable(node) == "0")
    until("the agent has it again", lambda: allocatable(node) == str(before), seconds=90)
    node.cluster.add_pod(a_running_pod("p", mock=1, mockmem=1000))
    node.starts("p")
    assert node.agrees() == 1
    path = f"{NAMESPACES}/default/events"
    told = [e for e in node.admin.get(path)["items"] if e["reason"] == "DevicePluginDisplaced"]
    assert [e["involvedObject"]["kind"] for e in told] == ["Node"]


def test_another_plugin_takes_the_resource_and_stays(node, agent):
    """It lists as many as the agent. Where kubelet ends the agent's stream after the other one's list
    has come, it counts none of them; else only its record shows that they are others.
    """
    before = int(allocatable(node))
    others = [f"other-{n}" for n in range(before)]
    path = f"{NAMESPACES}/default/events"

    def told():
        return "DevicePluginDisplaced" in {e["reason"] for e in node.admin.get(path)["items"]}

    async def stays():
        async with FakePlugin(DEVICE_PLUGINS, *others, resource=MOCK[0]):
            await asyncio.to_thread(until, "it is told", told, seconds=90)
            await asyncio.to_thread(until, "kubelet has the agent's", ours, seconds=60)
            await asyncio.to_thread(serves)

    def ours():
        return '"slot-0"' in CHECKPOINT.read_text()

    def serves():
        node.cluster.add_pod(a_running_pod("p", mock=1, mockmem=1000))
        node.starts("p", seconds=120)
        assert node.agrees() == 1

    asyncio.run(stays())


class Intruder(FakePlugin):
    """Gives every container a variable, and nothing that has to do with its allocation."""

    async def _allocate(self, request, context):
        answer = api.ContainerAllocateResponse(envs={"OTHER_VISIBLE_DEVICES": "all"})
        return api.AllocateResponse(
            container_responses=[answer for _ in request.container_requests]
        )


def test_a_pod_that_another_plugin_served_is_told_and_stopped(node, agent):
    """It was granted a part of a device, and runs with whatever the other one gave it."""
    pids = []

    def serves():
        node.cluster.add_pod(a_running_pod("p", mock=1, mockmem=1000))
        first = until("it runs without its slice", lambda: node.containers("p"))
        pids.append(first[0].pid)

    async def intrudes():
        intruder = Intruder(DEVICE_PLUGINS, "other", resource=MOCK[0])
        intruder.pre_start = False
        async with intruder:
            await asyncio.to_thread(until, "it has the name", lambda: allocatable(node) == "1")
            await asyncio.to_thread(serves)

    asyncio.run(intrudes())
    [text] = until("it is told", lambda: node.cluster.events("p", "SliceMissing"))
    assert "another agent gave it no device" in text
    assert "it was stopped" in text
    until("it has ended", lambda: pids[0] not in {c.pid for c in node.containers("p")})


def test_a_page_that_a_helper_replaces_later_is_found(node, agent):
    """The page is mounted in a volume that belongs to another container too, by a link of the image."""
    shared = [{"name": "shared", "emptyDir": {}}]
    victim = an_app("main", mock=1, mockmem=1000)
    victim["volumeMounts"] = [{"name": "shared", "mountPath": f"/{ASIDE}/hami/mock"}]
    waits = "until [ -e /go/now ]; do sleep 0.1; done"
    helper = an_app(
        "helper", runs=f"{waits}; busybox rm /go/limits; echo mine > /go/limits; {FOREVER}"
    )
    helper["volumeMounts"] = [{"name": "shared", "mountPath": "/go"}]
    node.cluster.add_pod(a_running_pod("p", containers=[victim, helper], spec={"volumes": shared}))
    node.starts("p")
    main = node.container("p", "main")
    assert node.agrees() == 1
    assert node.cluster.events("p", "SliceMissing") == []
    Path(f"/proc/{main.pid}/root/run/hami/mock/now").touch()
    [text] = until("it is told", lambda: node.cluster.events("p", "SliceMissing"), seconds=60)
    assert "the pod has a volume of its own at /run/hami/mock" in text
    assert "it was stopped" in text
    until("it has ended", lambda: main.pid not in {c.pid for c in node.containers("p")})


def allocatable(node):
    return node.object()["status"]["allocatable"].get(MOCK[0], "0")


def test_the_agent_is_killed_and_started_again(node, agent):
    node.cluster.add_pod(a_running_pod("early", mock=1, mockmem=1000))
    node.starts("early")
    early = node.container("early", "main")
    agent.kill()
    assert early.pid in {c.pid for c in node.containers()}
    agent.start()
    node.cluster.add_pod(a_running_pod("late", mock=1, mockmem=2000))
    node.starts("late")
    assert node.container("early", "main").pid == early.pid
    assert node.agrees() == 2
    node.remove("early", "late")
    node.gone("early", "late")
    node.nothing_is_left()


def test_the_agent_is_killed_in_the_middle_of_starts(node, agent):
    names = [f"p{n}" for n in range(10)]
    node.cluster.add_pods(*(a_running_pod(name, mock=1, mockmem=500) for name in names))
    until("some run", lambda: len(node.containers()) > 1)
    agent.kill()
    agent.start()

    # kubelet fails what it admitted while nobody served the resource; a controller makes it anew.
    def settled():
        phases = {n: node.cluster.pod(n)["status"].get("phase") for n in names}
        return phases if not {"Pending"} & set(phases.values()) else None

    phases = until(
        "nothing waits any more",
        settled,
        seconds=60,
        seen=lambda: [node.trouble(name) for name in names],
    )
    assert set(phases.values()) <= {"Running", "Failed"}
    assert node.agrees() == list(phases.values()).count("Running")
    node.remove(*names)
    node.gone(*names)
    node.nothing_is_left()


def test_a_container_that_restarts_while_the_agent_is_away(node, agent):
    """kubelet has the answer to Allocate, and the spec still stands."""
    node.cluster.add_pod(a_running_pod("p", mock=1, mockmem=1000))
    node.starts("p")
    before = node.container("p", "main")
    assert agent.stop() == 0
    os.kill(before.pid, signal.SIGKILL)

    def another():
        return next((c for c in node.containers("p") if c.pid != before.pid), None)

    # Either kubelet starts it with what it has, or it waits for the agent: never without its slice.
    agent.start()
    after = until("it was restarted", another, seconds=60)
    assert after.env["HAMI_SLICE_ID"] == before.env["HAMI_SLICE_ID"]
    assert node.agrees() == 1


# The API server.


@pytest.fixture
def to_api(cluster):
    """Between the agent and the API server; kubelet goes another way."""
    authority = cluster.plane.authority.certificate
    with Proxy(cluster.plane.url, tls=ssl.create_default_context(cafile=authority)) as proxy:
        yield proxy


def test_an_agent_that_reaches_no_api_server_restarts_containers_and_starts_no_new_ones(
    node, to_api
):
    node.agent(devices={"devices": "mockx2"}, server=to_api.url)
    node.cluster.add_pod(a_running_pod("known", mock=1, mockmem=1000))
    node.starts("known")
    before = node.container("known", "main")
    away = to_api.drop(".", forward=False, times=None)
    to_api.cut(".")
    os.kill(before.pid, signal.SIGKILL)

    def another():
        return next((c for c in node.containers("known") if c.pid != before.pid), None)

    after = until("it was restarted", another, seconds=60)
    assert after.env["HAMI_SLICE_ID"] == before.env["HAMI_SLICE_ID"]
    node.cluster.add_pod(a_running_pod("new", mock=1, mockmem=2000))
    node.waits("new", "PreStartContainer")
    assert node.containers("new") == []
    away.release()
    node.starts("new")
    assert node.agrees() == 2


# Forgery.


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        pytest.param(
            lambda is_: {"mock_devices_allocated": is_[ALLOCATED].replace(",1000,", ",16000,")},
            "the pod's annotations were edited after it was bound",
            id="more memory",
        ),
        pytest.param(lambda is_: {"allocation_signature": None}, SIGNATURE, id="no signature"),
        pytest.param(
            lambda is_: {"allocation_signature": is_[SIGNATURE].replace(".1.", ".2.")},
            "the pod's annotations were edited after it was bound",
            id="a later generation",
        ),
    ],
)
def test_a_forged_allocation_never_starts(node, agent, forge, said):
    node.cluster.add_pod(a_running_pod("before", mock=1, mockmem=1000))
    node.starts("before")
    with standing_still(agent.pid):
        node.cluster.add_pod(a_running_pod("p", mock=1, mockmem=1000))
        [pod] = node.cluster.bound("p")
        edit(node, "p", **forge(pod["metadata"]["annotations"]))
    text = node.waits("p", said)
    assert f"{node.cluster.namespace}/p" in text
    events = until("an event says so", lambda: node.cluster.events("p", "SliceRefused"))
    assert said in events[0]
    assert f"{node.cluster.namespace}/p" in events[0]
    assert node.containers("p") == []
    assert node.agrees() == 1, "the others go on"
    assert len(node.left()["directories"]) == 1, "nothing was made for it"


def test_what_is_edited_after_the_start_changes_nothing(node, agent):
    node.cluster.add_pod(a_running_pod("p", mock=1, mockmem=1000))
    node.starts("p")
    main = node.container("p", "main")
    page = main.read("/run/hami/mock/limits")
    edit(node, "p", mock_devices_allocated="MOCK-real1-0,MOCK,16000,0:;")
    node.cluster.add_pod(a_running_pod("later", mock=1, mockmem=1000))
    node.starts("later")
    assert main.read("/run/hami/mock/limits") == page
    # And it does not start again with it.
    os.kill(main.pid, signal.SIGKILL)
    node.waits("p", "the pod's annotations were edited after it was bound")


# Room.


@contextmanager
def a_small_disk(folder):
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


def fill(folder):
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return filler


def test_a_full_disk_stops_new_slices_and_nothing_else(node):
    with a_small_disk(node.slices):
        node.agent(devices={"devices": "mockx2"})
        node.cluster.add_pod(a_running_pod("before", mock=1, mockmem=1000))
        node.starts("before")
        before = node.left()
        filler = fill(node.slices)
        node.cluster.add_pod(a_running_pod("p", mock=1, mockmem=2000))
        assert f"{node.cluster.namespace}/p" in node.waits("p", "No space left on device")
        events = until("an event says so", lambda: node.cluster.events("p", "SliceRefused"))
        assert "No space left on device" in events[0]
        assert node.agrees() == 1
        assert node.left() == before, "nothing is half-written"
        filler.unlink()
        node.starts("p")
        assert node.agrees() == 2
        node.remove("before", "p")
        node.gone("before", "p")
        node.nothing_is_left()


def test_a_force_deleted_pod_keeps_its_device_until_its_last_process_ends(node):
    node.agent(devices={"devices": "mockx1"})
    node.cluster.add_pod(a_running_pod("old", mock=1, mockmem=16000))
    node.starts("old")
    lives = node.container("old", "main")
    # Nobody can stop the container: what containerd would tell to do so stands still.
    with standing_still(parent(lives.pid)):
        node.remove("old", grace=0)
        node.cluster.add_pod(a_running_pod("new", mock=1, mockmem=16000))
        text = node.waits("new", "it is held by pod")
        assert f"{node.cluster.namespace}/old" in text
        assert [c.pid for c in node.containers("old")] == [lives.pid]
        assert node.containers("new") == []
    node.starts("new")
    assert node.containers("old") == []
    assert node.agrees() == 1


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
