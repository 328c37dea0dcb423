"""One vendor, asked at every tick what its devices, processes and slices use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from hami.blocking.threads import Threads
from hami.domain.devices import Device
from hami.domain.errors import HamiError
from hami.domain.measurements import Measurement
from hami.domain.slices import Slice
from hami.domain.units import VendorKey
from hami.hookspecs import PluginConfig
from hami.kube.pace import Backoff
from hami.vendors.boundary import Vendor

DISCOVER_SECONDS = 10.0
DISCOVER_EVERY = 30.0
NOTHING = Measurement()


def boot_time() -> float:
    """Seconds since the machine started, by which the kernel dates processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorAnswer:
    """What the vendor last measured.

    ``asked_at`` is the moment it was asked, in seconds since the machine started, ``measured_at``
    the same in Unix time; 0: it has never answered. ``fresh``: it answers the last question.
    """

    vendor: VendorKey
    devices: tuple[Device, ...] = ()
    measurement: Measurement = NOTHING
    asked_at: float = 0.0
    measured_at: float = 0.0
    fresh: bool = False


class VendorMeasuring:
    """Owned by the loop. ``answer`` is the newest one, replaced whole.

    ``config`` says what the hooks are told of the node now.
    """

    def __init__(self, vendor: Vendor, hooks: Threads, config: Callable[[], PluginConfig]) -> None:
        self._vendor = vendor
        self._hooks = hooks
        self._config = config
        self.answer = VendorAnswer(vendor=vendor.profile.key)
        self._devices: tuple[Device, ...] = ()
        self._discovered = asyncio.Event()
        self._soon = Backoff(first=1.0, most=DISCOVER_EVERY)
        self._told: dict[str, str] = {}
        self._log = structlog.get_logger("hami.measuring").bind(vendor=vendor.profile.key)

    @property
    def key(self) -> VendorKey:
        return self._vendor.profile.key

    async def follow_devices(self) -> None:
        """Discover again and again, until cancelled."""
        while True:
            wait = DISCOVER_EVERY
            try:
                found = await self._hooks.call(
                    ("hami_discover", self.key),
                    DISCOVER_SECONDS,
                    self._vendor.discover,
                    self._config(),
                )
            except HamiError as error:
                self._tell("hami_discover", str(error))
                if not self._discovered.is_set():
                    wait = self._soon.delay()
            else:
                self._devices = tuple(found)
                self._discovered.set()
                self._tell("hami_discover", "")
            await asyncio.sleep(wait)

    async def measure(self, slices: Sequence[Slice], seconds: float) -> VendorAnswer:
        """Ask, and wait for at most ``seconds``; else the newest answer is held."""
        if not self._discovered.is_set():
            return self.answer
        try:
            answer = await self._hooks.call(
                ("hami_measure", self.key), seconds, self._ask, self._devices, tuple(slices)
            )
        except HamiError as error:
            self._tell("hami_measure", str(error))
            answer = replace(self.answer, fresh=False)
        else:
            self._tell("hami_measure", "")
        self.answer = answer
        return answer

    def _ask(self, devices: tuple[Device, ...], slices: tuple[Slice, ...]) -> VendorAnswer:
        """In a thread."""
        asked_at, measured_at = boot_time(), time.time()
        return VendorAnswer(
            vendor=self.key,
            devices=devices,
            measurement=self._vendor.measure(devices, slices),
            asked_at=asked_at,
            measured_at=measured_at,
            fresh=True,
        )

    def _tell(self, hook: str, problem: str) -> None:
        """Once for as long as it lasts, and when it is over."""
        before = self._told.get(hook, "")
        self._told[hook] = problem
        if problem and not before:
            self._log.warning("the vendor does not answer", hook=hook, error=problem)
        elif before and not problem:
            self._log.info("the vendor answers again", hook=hook)
