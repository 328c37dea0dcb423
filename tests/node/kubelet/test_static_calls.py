"""Devices that kubelet itself gives away: what it is answered, and which resources are served."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from hami.domain.errors import ConfigError
from hami.node.kubelet import static_calls
from hami.node.kubelet.served_resources import ServedResources
from hami.node.kubelet.server import CallRefused
from hami.node.kubelet.static_calls import StaticCalls, static_tokens
from hami.node.kubelet.tokens import Token

from ..parts import a_device, until

WHOLE, SMALL = "acme.com/whole", "acme.com/small"


@pytest.fixture
def calls(parts):
    devices = {WHOLE: [a_device("A"), a_device("B")], SMALL: [a_device("C")]}
    inventory = SimpleNamespace(static=devices)
    return StaticCalls(
        WHOLE, parts.around.vendor, parts.around.hooks, inventory, parts.around.config
    )


async def test_each_container_gets_the_edits_of_its_devices(calls):
    answers = await calls.allocate([("A",), ("A", "B")])
    assert [answer.env for answer in answers] == [{"DEVICES": "A"}, {"DEVICES": "A,B"}]


@pytest.mark.parametrize("ids", [("C",), ("A", "Z"), ("",)])
async def test_another_resources_devices_are_unknown(calls, ids):
    with pytest.raises(CallRefused, match=f"unknown device: {ids[-1]}"):
        await calls.allocate([ids])


async def test_a_vendor_that_fails_is_named(calls, parts):
    parts.hooks.fails.add("static_edits")
    with pytest.raises(CallRefused, match="static_edits does not work"):
        await calls.allocate([("A",)])


async def test_a_vendor_that_is_late_is_named(calls, parts, monkeypatch):
    monkeypatch.setattr(static_calls, "EDITS_SECONDS", 0.01)
    parts.hooks.may_end.clear()
    with pytest.raises(CallRefused, match="hami_static_edits A takes longer"):
        await calls.allocate([("A",)])


@pytest.mark.parametrize(
    ("available", "must", "size", "chosen"),
    [
        ("AB", "", 1, "A"),
        ("AB", "B", 1, "B"),
        ("AB", "B", 2, "BA"),
        ("AB", "", 3, "AB"),
        ("", "", 0, ""),
    ],
)
async def test_preferred(calls, available, must, size, chosen):
    assert list(await calls.prefer(list(available), list(must), size)) == list(chosen)


def test_each_device_is_one_id_with_its_numa_node():
    devices = [a_device("A", numa=1), a_device("B", healthy=False), a_device("C", numa=-1)]
    assert static_tokens(devices) == (
        Token("A", healthy=True, numa=1),
        Token("B", healthy=False, numa=0),
        Token("C", healthy=True),
    )


# Which resources are served.


class Server:
    def __init__(self) -> None:
        self.lists: list[list[str]] = []
        self.runs = 0

    def publish(self, tokens) -> None:
        self.lists.append([token.id for token in tokens])

    async def run(self) -> None:
        self.runs += 1
        await asyncio.Event().wait()


class Served:
    def __init__(self, monkeypatch) -> None:
        monkeypatch.setattr("hami.node.kubelet.served_resources.FIRST_LIST", 0.02)
        self.own, self.others = Server(), {}
        self.known, self.static = asyncio.Event(), {}
        self.unfit: set[str] = set()
        self.asked: list[str] = []
        self.watched: list[Server] = []
        self.resources = ServedResources(
            self.own,
            self,
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            static_server=self._server,
        )

    async def watch(self, server):
        self.watched.append(server)

    async def tokens(self):
        return [Token("slot-0", healthy=True)]

    def _server(self, resource):
        self.asked.append(resource)
        if resource in self.unfit:
            raise ConfigError(f"{resource} is no name for a socket")
        return self.others.setdefault(resource, Server())

    def look(self, **static) -> None:
        self.static = {f"acme.com/{name}": devices for name, devices in static.items()}
        self.resources.changed()


@pytest.fixture
async def served(monkeypatch):
    served = Served(monkeypatch)
    task = asyncio.create_task(served.resources.run())
    yield served
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_list_waits_for_the_devices_but_not_for_long(served):
    assert served.own.lists == []
    await until("it is sent all the same", lambda: served.own.lists == [["slot-0"]])


async def test_a_resource_that_comes_is_served_and_one_that_goes_is_empty(served):
    served.known.set()
    served.look(whole=[a_device("A")])
    await until("it is served", lambda: WHOLE in served.others)
    served.look(small=[a_device("C")])
    await until("the other one is", lambda: SMALL in served.others)
    assert served.others[WHOLE].lists == [["A"], []]
    assert served.others[SMALL].lists == [["C"]]
    assert [server.runs for server in served.others.values()] == [1, 1]
    assert served.watched == [served.own, *served.others.values()]


async def test_a_resource_that_cannot_be_served_keeps_no_other(served):
    served.known.set()
    served.unfit = {WHOLE}
    served.look(whole=[a_device("A")], small=[a_device("C")])
    await until("the other one is served", lambda: SMALL in served.others)
    served.resources.changed()
    await until("it was looked at again", lambda: len(served.others[SMALL].lists) > 1)
    assert served.asked.count(WHOLE) == 1
