"""The devices as they are: what a failing, slow or late vendor does to them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from hami.domain.slices import HealthChange
from hami.node.device import inventory
from hami.node.device.inventory import HookConfig, Inventory

from ..parts import a_device, until


@asynccontextmanager
async def an_inventory(parts, *, every=3600.0):
    heard = []
    found = Inventory(
        parts.around.vendor,
        parts.around.hooks,
        HookConfig({}),
        lambda: heard.append(1),
        every=every,
        look_every=0.01,
    )
    found.heard = heard
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        parts.hooks.may_end.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def healthy(found):
    return "".join(sorted(id for id, device in found.devices.items() if device.healthy))


@pytest.fixture
def hooks(parts, monkeypatch):
    monkeypatch.setattr(inventory, "FIRST_RETRY", 0.01)
    parts.hooks.found = [a_device("A"), a_device("B")]
    return parts.hooks


async def test_what_is_discovered_is_told_of_once(parts, hooks):
    async with an_inventory(parts, every=0.01) as found:
        await found.known.wait()
        await until("it was looked at often", lambda: hooks.times("discover") > 3)
        assert (healthy(found), found.heard) == ("AB", [1])
        hooks.found = [a_device("B")]
        await until("one is gone", lambda: healthy(found) == "B")


async def test_a_first_discovery_that_fails_is_repeated_soon(parts, hooks):
    hooks.fails.add("discover")
    async with an_inventory(parts) as found:
        await until("it is tried again", lambda: hooks.times("discover") > 1)
        assert not found.known.is_set()
        hooks.fails.clear()
        await until("it is known", found.known.is_set)


async def test_devices_are_unhealthy_after_three_failures_and_recover(parts, hooks):
    async with an_inventory(parts, every=0.01) as found:
        await found.known.wait()
        hooks.fails.add("discover")
        await until("they are unhealthy", lambda: healthy(found) == "")
        assert hooks.times("discover") >= 4
        assert set(found.devices) == {"A", "B"}
        hooks.fails.clear()
        await until("they are healthy", lambda: healthy(found) == "AB")


async def test_a_health_hook_that_fails_three_times_is_as_bad(parts, hooks):
    async with an_inventory(parts) as found:
        await found.known.wait()
        hooks.fails.add("check_health")
        await until("they are unhealthy", lambda: healthy(found) == "")
        hooks.fails.clear()
        await until("they are healthy", lambda: healthy(found) == "AB")


async def test_a_hook_that_hangs_is_never_called_twice(parts, hooks, monkeypatch):
    monkeypatch.setattr(inventory, "DISCOVER_SECONDS", 0.01)
    monkeypatch.setattr(inventory, "HEALTH_SECONDS", 0.01)
    async with an_inventory(parts, every=0.01) as found:
        await found.known.wait()
        hooks.may_end.clear()
        await until("they are unhealthy", lambda: healthy(found) == "")
        calls = list(hooks.calls)
        await asyncio.sleep(0.1)
        assert hooks.calls == calls
        hooks.may_end.set()
        await until("they are healthy", lambda: healthy(found) == "AB")


async def test_health_flaps_and_every_change_is_told(parts, hooks):
    async with an_inventory(parts) as found:
        await found.known.wait()
        for well, said in ((False, "B"), (True, "AB"), (False, "B")):
            hooks.found = [replace(a_device("A"), healthy=well), a_device("B")]
            hooks.changes = [HealthChange("A", well, "XID 79")]
            await until(f"healthy: {said}", lambda said=said: healthy(found) == said)
        assert len(found.heard) == 4


class Late:
    """A vendor that looks at once and answers when the test lets it."""

    def __init__(self):
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def call(self, hooks, seconds, hook, *given):
        answer = hook(*given)
        if hooks == ("hami_discover",):
            await self.may_answer.wait()
        return answer


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(True, False, ["AB", "B"], id="it looked before"),
        pytest.param(True, True, ["AB", "B", "AB"], id="and the device is well again"),
        pytest.param(False, False, ["AB", "B"], id="it saw the same"),
    ],
)
async def test_a_discovery_that_ends_after_a_change_of_health(parts, hooks, before, after, told):
    """What kubelet and the scheduler were told last is what is so, and nothing was told twice."""
    late, heard = Late(), []
    found = Inventory(
        parts.around.vendor,
        late,
        HookConfig({}),
        lambda: heard.append(healthy(found)),
        every=3600.0,
        look_every=0.01,
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(found.run())
        await found.known.wait()
        late.may_answer.clear()
        hooks.found = [replace(a_device("A"), healthy=before), a_device("B")]
        found.look_again()
        await until("it is discovered", lambda: hooks.times("discover") == 2)
        hooks.found = [replace(a_device("A"), healthy=after), a_device("B")]
        hooks.changes = [HealthChange("A", False)]
        await until("the change is known", lambda: healthy(found) == "B")
        late.may_answer.set()
        await until("it is discovered again", lambda: hooks.times("discover") == 3)
        looks = hooks.times("check_health")
        await until("it was looked at again", lambda: hooks.times("check_health") > looks + 1)
        assert heard == told
        running.cancel()


async def test_a_change_of_health_is_looked_into(parts, hooks):
    """A discovery that began before it would say otherwise until the next one."""
    async with an_inventory(parts) as found:
        await found.known.wait()
        hooks.found = [a_device("A"), replace(a_device("B"), memory_mib=1)]
        hooks.changes = [HealthChange("A", False)]
        await until("it was discovered again", lambda: found.devices["B"].memory_mib == 1)


async def test_a_change_of_a_device_that_nobody_knows_is_nothing(parts, hooks):
    async with an_inventory(parts) as found:
        await found.known.wait()
        hooks.changes = [HealthChange("Z", False)]
        await until("it was discovered again", lambda: hooks.times("discover") > 1)
        assert healthy(found) == "AB"


async def test_a_changed_configuration_is_not_waited_for(parts, hooks):
    async with an_inventory(parts) as found:
        await found.known.wait()
        hooks.found = [a_device("C")]
        found.look_again()
        await until("it is another one", lambda: healthy(found) == "C")


async def test_static_devices_are_beside_the_others(parts, hooks):
    hooks.static = {"acme.com/whole": [a_device("W")]}
    async with an_inventory(parts) as found:
        await found.known.wait()
        assert [device.id for device in found.static["acme.com/whole"]] == ["W"]
        assert "W" not in found.devices
