"""A vendor that is asked at every tick: late, failing, and slow to find its devices."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from hami.blocking.threads import Threads
from hami.domain.devices import Device
from hami.domain.measurements import MeasuredDevice, Measurement
from hami.hookspecs import hookimpl
from hami.monitor.measuring.vendor_measuring import VendorMeasuring, boot_time
from hami.vendors.registry import Vendors

from ..builders import a_plugin

DEVICE = Device(id="d0", vendor="ACME")


class Hooks:
    """What the plugin does; ``hold`` keeps it busy until the test lets go."""

    def __init__(self) -> None:
        self.hold: threading.Event | None = None
        self.error: Exception | None = None
        self.discovers: list[object] = [(DEVICE,)]
        self.asked = 0
        self.configs: list[object] = []

    def plugin(self) -> object:
        @hookimpl
        def hami_discover(config):
            self.configs.append(config)
            found = self.discovers[0] if len(self.discovers) == 1 else self.discovers.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        @hookimpl
        def hami_measure(devices, slices):
            self.asked += 1
            if self.hold is not None:
                self.hold.wait(20)
            if self.error is not None:
                raise self.error
            return Measurement(
                devices=tuple(MeasuredDevice(id=d.id, utilisation=self.asked) for d in devices)
            )

        return a_plugin(hami_discover, hami_measure)


@pytest.fixture
def hooks() -> Hooks:
    return Hooks()


@pytest.fixture
async def measuring(hooks: Hooks) -> AsyncIterator[VendorMeasuring]:
    vendor = Vendors.of({"acme": hooks.plugin()})["ACME"]
    threads = Threads("hook")
    made = VendorMeasuring(vendor, threads, lambda: {"node": {"name": "n1"}})
    following = asyncio.ensure_future(made.follow_devices())
    yield made
    following.cancel()
    if hooks.hold is not None:
        hooks.hold.set()
    threads.close()


async def answered(measuring: VendorMeasuring) -> None:
    async with asyncio.timeout(10):
        while not (await measuring.measure((), 5)).fresh:
            await asyncio.sleep(0.01)


def percent(measuring: VendorMeasuring) -> float | None:
    [device] = measuring.answer.measurement.devices
    return device.utilisation


async def test_a_vendor_is_asked_about_what_it_discovered(measuring, hooks):
    before = boot_time()
    await answered(measuring)
    assert measuring.answer.devices == (DEVICE,)
    assert hooks.configs[0] == {"node": {"name": "n1"}}
    assert before <= measuring.answer.asked_at <= boot_time()


async def test_one_that_fails_keeps_its_newest_answer(measuring, hooks):
    await answered(measuring)
    kept = percent(measuring)
    hooks.error = RuntimeError("boom")
    for _ in range(2):
        assert not (await measuring.measure((), 5)).fresh
        assert percent(measuring) == kept
    hooks.error = None
    assert (await measuring.measure((), 5)).fresh
    assert percent(measuring) != kept


async def test_one_that_is_late_keeps_its_newest_answer_and_is_not_asked_twice(measuring, hooks):
    await answered(measuring)
    kept, asked = percent(measuring), hooks.asked
    hooks.hold = threading.Event()
    for _ in range(3):
        assert not (await measuring.measure((), 0.02)).fresh
    assert (percent(measuring), hooks.asked) == (kept, asked + 1)
    hooks.hold.set()
    answer = await measuring.measure((), 10)
    assert (answer.fresh, hooks.asked) == (True, asked + 1)


async def test_before_any_device_is_known_nothing_is_asked(hooks):
    hooks.discovers = [RuntimeError("no driver")]
    threads = Threads("hook")
    measuring = VendorMeasuring(
        Vendors.of({"acme": hooks.plugin()})["ACME"], threads, lambda: {"node": {}}
    )
    following = asyncio.ensure_future(measuring.follow_devices())
    try:
        async with asyncio.timeout(10):
            while not hooks.configs:
                await asyncio.sleep(0.01)
        assert (await measuring.measure((), 5)).asked_at == 0
        assert hooks.asked == 0
    finally:
        following.cancel()
        threads.close()
