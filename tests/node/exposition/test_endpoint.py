"""What an agent says of itself, over a socket, while its node goes through this and that."""

from __future__ import annotations

import re
import socket
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from hami_lab.api import Fault

from hami.domain.errors import ConfigError
from hami.domain.kubernetes.objects import Metadata, Pod
from hami.kube.compat.node_lock import Locked, take_node_lock
from hami.node import agent

from ..test_agent import all_started, nothing_left, refusal
from ..test_agent_faults import configure, failing
from ..world import NODE, RESOURCE, Wish, World
from .asking import ask, metrics, ready, unready_with

DOCS = (Path(__file__).parents[3] / "docs" / "node-agent.md").read_text()
STARTS, REFUSALS = "hami_node_container_starts_total", "hami_node_start_refusals_total"


async def begin(world) -> None:
    """Start the agent, and wait until it can be asked."""
    await world.start_agent(wait=False)
    await world.until("it listens", world.health.exists)


async def test_an_agent_that_serves_is_alive_and_ready():
    async with World() as world:
        await world.until("ready", partial(ready, world))
        assert await ask(world, "/healthz") == (200, "ok\n")
        assert (await ask(world, "/nope"))[0] == 404


async def test_it_says_that_kubelet_is_away_until_it_is_back():
    async with World() as world:
        await world.until("ready", partial(ready, world))
        await world.node.down()
        away = f"{RESOURCE} is not registered with kubelet: "
        await world.until("unready", partial(unready_with, world, away))
        assert (await metrics(world))["hami_node_kubelet_registered", RESOURCE] == 0
        assert await ask(world, "/healthz") == (200, "ok\n")
        before = time.time()
        await world.node.up()
        await world.until("ready again", partial(ready, world))
        found = await metrics(world)
        assert found["hami_node_kubelet_registered", RESOURCE] == 1
        assert found["hami_node_kubelet_registrations_total", RESOURCE] == 2
        stamp = found["hami_node_kubelet_last_registration_timestamp_seconds", RESOURCE]
        assert before <= stamp <= time.time()


async def test_it_answers_while_the_api_server_does_not():
    async with World() as world:
        await world.stop_agent()
        (world.node.slices / "mock-node.json").unlink()
        fault = world.faults.add(Fault(status=503))
        await begin(world)
        assert await unready_with(world, "what the API server says of node n1 is not known yet")
        assert await ask(world, "/healthz") == (200, "ok\n")
        assert [name for name, *_ in await metrics(world)] == ["hami_node_build_info"]
        world.faults.remove(fault)
        await world.until("ready", partial(ready, world))


async def test_it_says_that_slices_are_still_being_taken_over(monkeypatch):
    go, recover = threading.Event(), agent.recover

    def slow_recover(*args):
        go.wait(60)
        return recover(*args)

    async with World() as world:
        await world.stop_agent()
        monkeypatch.setattr(agent, "recover", slow_recover)
        await begin(world)
        try:
            why = "the slices on disk are not taken over yet"
            await world.until("unready", partial(unready_with, world, why))
            assert (await metrics(world))[STARTS, "prepared"] == 0
        finally:
            go.set()
        await world.until("ready", partial(ready, world))


async def test_it_says_that_the_vendor_names_no_devices():
    async with World() as world:
        await world.stop_agent()
        await configure(world, failing("hami_discover"))
        await begin(world)
        why = "no devices are known: the vendor MOCK has not named any yet"
        await world.until("unready", partial(unready_with, world, why))
        await configure(world, failing())
        await world.until("ready", partial(ready, world))


async def test_it_says_that_the_api_server_refuses_what_the_node_has():
    async with World() as world:
        await world.stop_agent()
        writes = Fault(verb="patch", resource="nodes", subresource="status", status=500)
        lists = Fault(verb="list", resource="pods", status=500)
        faults = [world.faults.add(fault) for fault in (writes, lists)]
        await begin(world)
        await world.until(
            "unready", partial(unready_with, world, "the API server has not listed them yet")
        )
        for fault in faults:
            world.faults.remove(fault)
        await world.until("ready", partial(ready, world))


async def test_starts_are_counted_by_what_they_came_to():
    async with World() as world:
        found = await metrics(world)
        assert {value for (name, *_), value in found.items() if name in (STARTS, REFUSALS)} == {0}
        name = await world.pod(Wish("a"), Wish("b"))
        await all_started(world, name)
        forged = await world.pod(Wish("a"), sign=False)
        await refusal(world, forged, "has no signature")
        found = await metrics(world)
        assert found[STARTS, "prepared"] == 2
        assert found[STARTS, "refused"] == found[REFUSALS, "BadSignature"] > 0
        assert found[STARTS, "failed"] == 0
        assert found["hami_node_prepare_duration_seconds_count",] == 2
        assert found["hami_node_prepare_duration_seconds_bucket", "+Inf"] == 2
        assert found["hami_node_slices", "enforced"] == 2
        await world.delete(name)
        await nothing_left(world)
        assert (await metrics(world))["hami_node_slices", "enforced"] == 0


async def test_starts_in_the_mode_lock_are_counted():
    async with World(flags={"identity": "lock"}) as world:
        pod = Pod(metadata=Metadata(name="p", namespace="default"))
        assert isinstance(await take_node_lock(world.client, NODE, pod), Locked)
        await all_started(world, await world.pod(Wish("a"), name="p"))
        assert (await metrics(world))[STARTS, "prepared"] == 1


async def test_a_disk_that_fails_is_counted():
    async with World() as world:
        folder = world.node.slices / "mock"
        folder.write_text("")
        name = await world.pod(Wish("a"))
        await refusal(world, name, "something else is where a directory should be")
        found = await metrics(world)
        assert found[STARTS, "failed"] == found[REFUSALS, "Disk"] > 0
        assert found["hami_node_store_errors_total",] > 0
        folder.unlink()
        await all_started(world, name)


async def test_a_vendor_that_fails_is_counted():
    async with World(config=failing("hami_enforce", "hami_reconcile")) as world:
        name = await world.pod(Wish("a"))
        await refusal(world, name, "hami_enforce fails")
        found = await metrics(world)
        assert found[STARTS, "failed"] == found[REFUSALS, "Vendor"] > 0
        assert found["hami_node_store_errors_total",] == 0


async def test_devices_are_counted_by_their_health():
    async with World() as world:
        found = await metrics(world)
        assert found["hami_node_devices", "healthy"] == len(world.device_ids)
        world.unhealthy(world.device_ids[0])

        async def one_is_not() -> bool:
            return (await metrics(world))["hami_node_devices", "unhealthy"] == 1

        await world.until("one is not healthy", one_is_not)


async def test_resizes_are_counted_by_what_they_came_to():
    async with World() as world:
        name = await world.pod(Wish("a", memory=1000))
        await all_started(world, name)
        for generation, memory, outcome in ((2, 3000, "resized"), (3, 10**6, "refused")):
            await world.resize(name, memory=memory, generation=generation)

            async def counted(outcome=outcome) -> bool:
                return (await metrics(world))["hami_node_resizes_total", outcome] > 0

            await world.until(outcome, counted)


async def test_nothing_that_is_said_names_a_pod():
    async with World() as world:
        name = await world.pod(Wish("a"), name="a-name-to-look-for")
        await all_started(world, name)
        for path in ("/metrics", "/readyz", "/healthz"):
            text = (await ask(world, path))[1]
            assert name not in text
            assert world.uids[name] not in text


async def test_it_listens_nowhere_when_told_so_and_ends_with_the_agent():
    async with World(flags={"health_address": "off"}) as world:
        assert not world.health.exists()
    async with World() as world:
        assert world.health.exists()
        await world.stop_agent()
        assert not world.health.exists()


async def test_an_address_that_is_taken_ends_the_agent():
    async with World() as world:
        address = f"unix:{world.folder}/taken.sock"
        with socket.socket(socket.AF_UNIX) as taken:
            taken.bind(f"{world.folder}/taken.sock")
            taken.listen()
            await world.stop_agent()
            world._flags["health_address"] = address
            with pytest.raises(ConfigError, match=rf"^cannot listen on {address}: .*; choose"):
                await world.start_agent()
            world._agent = None


# docs/node-agent.md.


async def test_the_document_names_every_metric_with_its_labels_and_their_values():
    async with World() as world:
        text = (await ask(world, "/metrics"))[1]
    shown: dict[str, set[str]] = {}
    values: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            shown[line.split()[2]] = set()
            continue
        if line.startswith("#"):
            continue
        name = re.sub("_(bucket|sum|count)$", "", line.split("{")[0].split(" ")[0])
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        shown[name] |= labels.keys() - {"le"}
        values |= {text for label, text in labels.items() if label not in ("le", "version")}
    rows = re.findall(r"^\| `(hami_node_\w+)` \| ([^|]*)\|", DOCS, re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows} == shown
    assert {value for value in values if f"`{value}`" not in DOCS} == {RESOURCE}
