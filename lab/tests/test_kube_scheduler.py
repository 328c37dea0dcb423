"""The kube-scheduler stand-in: what it counts, and how it speaks to the API server and extenders."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hami_lab.cluster.objects import AnyObject
from hami_lab.kube_scheduler.capacity import NodeCapacity, requested
from hami_lab.kube_scheduler.extender import ExtenderSettings, ManagedResource
from hami_lab.kube_scheduler.loop import KubeScheduler, SchedulerSettings
from hami_lab.kube_scheduler.queue import Pace
from hami_lab.kube_scheduler.view import ClusterView
from hami_lab.kubelet.nodes import LIVE_NODES
from hami_lab.live import LIVE_PODS

from hami.domain.kubernetes.objects import Node, Pod
from hami.kube.events import EventRecorder
from hami.kube.resources import EVENTS, Resource

from .embedded import Pods, a_container, a_node, a_pod, a_server, add_nodes, eventually, running

# What a pod asks, and what a node has.

GPU = "acme.com/gpu"


def pod_of(
    *containers: dict[str, Any], inits: list[dict[str, Any]] | None = None, **spec: Any
) -> Pod:
    body = a_pod("p", *containers, initContainers=inits, **spec)
    body["metadata"]["uid"] = "u"
    return msgspec.convert(body, Pod)


def an_init(name: str, cpu: str, *, sidecar: bool = False) -> dict[str, Any]:
    return a_container(name, cpu=cpu) | ({"restartPolicy": "Always"} if sidecar else {})


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        pytest.param(pod_of(a_container(cpu="1"), a_container("b", cpu="500m")), "3/2", id="a sum"),
        pytest.param(
            pod_of(a_container(cpu="1"), inits=[an_init("i", "3")]), 3, id="a larger init"
        ),
        pytest.param(
            pod_of(a_container(cpu="2"), inits=[an_init("i", "1")]), 2, id="a smaller init"
        ),
        pytest.param(
            pod_of(
                a_container(cpu="1"), inits=[an_init("s", "2", sidecar=True), an_init("i", "3")]
            ),
            5,
            id="an init beside the sidecar before it",
        ),
        pytest.param(
            pod_of(
                a_container(cpu="1"), inits=[an_init("i", "2"), an_init("s", "2", sidecar=True)]
            ),
            3,
            id="an init before the sidecar",
        ),
        pytest.param(pod_of(a_container(cpu="1"), overhead={"cpu": "250m"}), "5/4", id="overhead"),
    ],
)
def test_what_a_pod_asks_of_its_node(pod, cpu):
    assert requested(pod)["cpu"] == Fraction(cpu)


def test_a_node_lacks_what_its_pods_have_taken_but_not_what_others_count():
    capacity = NodeCapacity()
    capacity.set_node(msgspec.convert(a_node("n", cpu="2", memory="1Gi", pods="1"), Node))
    asked = {"cpu": Fraction(1), GPU: Fraction(1)}
    assert capacity.lacks(asked, ignored=()) == [f"Insufficient {GPU}"]
    assert capacity.lacks(asked, ignored={GPU}) == []
    capacity.charge(pod_of(a_container(cpu="1500m")))
    assert capacity.lacks(asked, ignored={GPU}) == ["Too many pods", "Insufficient cpu"]
    capacity.release("u")
    assert capacity.lacks(asked, ignored={GPU}) == []


@pytest.mark.parametrize(
    ("nodes", "percentage", "looked_at"),
    [(50, 10, 50), (200, 100, 200), (1000, 10, 100), (1000, 20, 200), (5000, 0, 500)],
)
def test_as_many_nodes_as_kube_scheduler_would_look_for(nodes, percentage, looked_at):
    view = ClusterView()
    for number in range(nodes):
        view.set_node(msgspec.convert(a_node(f"n{number:04}"), Node))
    first = view.feasible(pod_of(), (), percentage)
    second = view.feasible(pod_of(), (), percentage)
    assert len(first.names) == len(second.names) == looked_at
    if looked_at < nodes:
        assert not set(first.names) & set(second.names)


PRIORITY_CLASSES = Resource(
    group_version="scheduling.k8s.io/v1",
    plural="priorityclasses",
    kind="PriorityClass",
    type=AnyObject,
    namespaced=False,
)


# The loop, with an extender of the test's own.


class FakeExtender:
    """Keeps the nodes of ``kept``; answers as it is told."""

    def __init__(self, kept: set[str] | None = None) -> None:
        self.kept = kept
        self.error = ""
        self.bind_error = ""
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.url = ""

    async def filter(self, request: web.Request) -> web.Response:
        args = await request.json()
        self.asked.append(("filter", args))
        names = args["NodeNames"]
        kept = [name for name in names if self.kept is None or name in self.kept]
        refused = {name: "no room" for name in names if name not in kept}
        return web.json_response({"NodeNames": kept, "FailedNodes": refused, "Error": self.error})

    async def bind(self, request: web.Request) -> web.Response:
        self.asked.append(("bind", await request.json()))
        return web.json_response({"Error": self.bind_error})

    @asynccontextmanager
    async def serving(self):
        app = web.Application()
        app.router.add_post("/filter", self.filter)
        app.router.add_post("/bind", self.bind)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()


@asynccontextmanager
async def a_scheduler(
    folder, *extenders: ExtenderSettings, pace: Pace | None = None, before=None, **settings: Any
):
    """``before`` is awaited with a client before the scheduler starts."""
    async with a_server(folder) as (_, client):
        if before is not None:
            await before(client)
        problems: list[str] = []
        events = EventRecorder(client, component="default-scheduler", on_problem=problems.append)
        scheduler = KubeScheduler(
            client,
            SchedulerSettings(extenders=extenders, pace=pace or Pace(), **settings),
            events=events,
            on_problem=problems.append,
        )
        async with running(events, scheduler):
            yield client, Pods(client)
        assert problems == []


def managing(extender: FakeExtender, **settings: Any) -> ExtenderSettings:
    return ExtenderSettings(url=extender.url, managed=(ManagedResource(name=GPU),), **settings)


def asking(name: str, **spec: Any) -> dict[str, Any]:
    return a_pod(name, a_container(**{GPU: "1"}), **spec)


async def reasons(client, pod: str) -> set[tuple[str, str]]:
    events = await client.list(EVENTS, namespace="default")
    return {(e.reason, e.message) for e in events if e.involved_object.name == pod}


async def test_a_pod_goes_to_the_least_allocated_node_that_its_selector_allows(tmp_path):
    async with a_scheduler(tmp_path) as (client, pods):
        await add_nodes(client, a_node("a", cpu="4"), a_node("b", cpu="4"), a_node("c", cpu="8"))
        await client.patch(LIVE_NODES, "c", {"spec": {"unschedulable": True}})
        await pods.add(a_pod("one", a_container(cpu="1")))
        assert await pods.bound("one") == "a"
        await pods.add(a_pod("two", a_container(cpu="1")))
        assert await pods.bound("two") == "b"
        await pods.add(
            a_pod("three", a_container(cpu="1"), nodeSelector={"kubernetes.io/hostname": "b"})
        )
        assert await pods.bound("three") == "b"

        async def scheduled():
            found = await reasons(client, "one")
            return found or None

        assert await eventually(scheduled) == {
            ("Scheduled", "Successfully assigned default/one to a")
        }


async def test_a_refused_pod_says_why_in_kube_schedulers_words(tmp_path):
    async with a_scheduler(tmp_path) as (client, pods):
        await pods.add(a_pod("p", a_container(cpu="4")))
        assert await pods.refused("p") == "no nodes available to schedule pods"
        await add_nodes(client, a_node("a", cpu="1"))
        message = "0/1 nodes are available: 1 Insufficient cpu."
        assert await pods.refused("p", "Insufficient") == message

        async def said():
            return ("FailedScheduling", message) in await reasons(client, "p") or None

        await eventually(said)


async def test_new_nodes_and_deleted_pods_wake_waiting_pods(tmp_path):
    async with a_scheduler(tmp_path) as (client, pods):
        await add_nodes(client, a_node("a", cpu="1"))
        await pods.add(a_pod("one", a_container(cpu="1")))
        await pods.bound("one")
        await pods.add(a_pod("two", a_container(cpu="1")))
        await pods.refused("two")
        await client.delete(LIVE_PODS, "one", namespace="default", grace_seconds=0)
        assert await pods.bound("two") == "a"
        await pods.add(a_pod("three", a_container(cpu="1")))
        await pods.refused("three")
        await add_nodes(client, a_node("b", cpu="1"))
        assert await pods.bound("three") == "b"


async def test_of_two_waiting_pods_the_more_important_one_is_placed(tmp_path):
    async def before(client):
        await client.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        await add_nodes(client, a_node("a", cpu="1"))
        await Pods(client).add(
            a_pod("low", a_container(cpu="1")),
            a_pod("high", a_container(cpu="1"), priorityClassName="high"),
        )

    async with a_scheduler(tmp_path, before=before) as (_, pods):
        assert await pods.bound("high") == "a"
        assert await pods.refused("low") == "0/1 nodes are available: 1 Insufficient cpu."


async def test_scheduling_gates_keep_a_pod_back_until_they_are_gone(tmp_path):
    async with a_scheduler(tmp_path) as (client, pods):
        await add_nodes(client, a_node("a"))
        await pods.add(a_pod("p", schedulingGates=[{"name": "example.com/wait"}]), a_pod("free"))
        await pods.bound("free")
        assert (await pods.get("p")).spec.node_name == ""
        patch = {"spec": {"schedulingGates": []}}
        await client.patch(LIVE_PODS, "p", patch, namespace="default")
        assert await pods.bound("p") == "a"


async def test_the_extender_is_asked_in_its_own_spelling_and_binds_itself(tmp_path):
    async with (
        FakeExtender(kept={"b"}).serving() as extender,
        a_scheduler(tmp_path, managing(extender)) as (client, pods),
    ):
        await add_nodes(client, a_node("a", cpu="1"), a_node("b", cpu="1"))
        await pods.add(asking("p"))

        async def asked():
            return next((args for verb, args in extender.asked if verb == "bind"), None)

        bind = await eventually(asked)
    pod = extender.asked[0][1]["Pod"]
    assert extender.asked[0][1].keys() == {"Pod", "Nodes", "NodeNames"}
    assert (extender.asked[0][1]["NodeNames"], extender.asked[0][1]["Nodes"]) == (["a", "b"], None)
    assert pod["spec"]["containers"][0]["image"] == "x"
    assert bind == {
        "PodName": "p",
        "PodNamespace": "default",
        "PodUID": pod["metadata"]["uid"],
        "Node": "b",
    }


async def test_a_pod_without_managed_resources_never_meets_the_extender(tmp_path):
    async with (
        FakeExtender(kept=set()).serving() as extender,
        a_scheduler(tmp_path, managing(extender)) as (client, pods),
    ):
        await add_nodes(client, a_node("a"))
        await pods.add(a_pod("p"))
        assert await pods.bound("p") == "a"
    assert extender.asked == []


async def test_the_extenders_reasons_reach_the_pod(tmp_path):
    async with (
        FakeExtender(kept=set()).serving() as extender,
        a_scheduler(tmp_path, managing(extender)) as (client, pods),
    ):
        await add_nodes(client, a_node("a"), a_node("b"))
        await client.patch(LIVE_NODES, "b", {"spec": {"unschedulable": True}})
        await pods.add(asking("p"))
        said = await pods.refused("p", "no room")
        assert said == "0/2 nodes are available: 1 no room, 1 node(s) were unschedulable."


async def test_a_changed_annotation_of_a_refused_pod_has_it_tried_again_at_once(tmp_path):
    async with FakeExtender(kept=set()).serving() as extender:
        settings = managing(extender, bind_verb="")
        async with a_scheduler(tmp_path, settings, pace=Pace(first=300.0)) as (client, pods):
            await add_nodes(client, a_node("a"))
            await pods.add(asking("p"))
            await pods.refused("p")
            asked = len(extender.asked)
            extender.kept = None
            await asyncio.sleep(0.2)
            assert len(extender.asked) == asked
            await pods.annotate("p", **{"hami.io/wake-up": "1"})
            assert await pods.bound("p") == "a"


@pytest.mark.parametrize("where", ["filter", "bind"])
async def test_an_extenders_error_is_said_and_tried_again(tmp_path, where):
    async with FakeExtender().serving() as extender:
        setattr(extender, "error" if where == "filter" else "bind_error", "out of order")
        async with a_scheduler(tmp_path, managing(extender), pace=Pace(first=0.05)) as (
            client,
            pods,
        ):
            await add_nodes(client, a_node("a"))
            await pods.add(asking("p"))
            said = await pods.refused("p", "out of order")
            assert said == (
                "out of order" if where == "filter" else "binding rejected: out of order"
            )
            assert (await pods.get("p")).condition("PodScheduled").reason == "SchedulerError"
            tries = len(extender.asked)

            async def again():
                return len(extender.asked) > tries or None

            await eventually(again)


async def test_an_extender_that_does_not_answer_is_an_error_unless_it_may_be_ignored(tmp_path):
    gone = FakeExtender()
    async with gone.serving():
        pass
    async with a_scheduler(tmp_path, managing(gone), pace=Pace(first=60)) as (client, pods):
        await add_nodes(client, a_node("a"))
        await pods.add(asking("p"))
        assert f'Post "{gone.url}/filter": ' in await pods.refused("p")


async def test_a_binding_that_is_refused_frees_the_node_again(tmp_path):
    async with FakeExtender().serving() as extender:
        extender.bind_error = "no"
        async with a_scheduler(tmp_path, managing(extender), pace=Pace(first=60)) as (client, pods):
            await add_nodes(client, a_node("a", pods="1"))
            await pods.add(asking("p"))
            await pods.refused("p", "binding rejected")
            await pods.add(a_pod("q"))
            assert await pods.bound("q") == "a"
