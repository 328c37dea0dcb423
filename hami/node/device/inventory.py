"""The devices of the node as they are now: discovered, and followed in sickness and in health."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from msgspec.structs import replace

from hami.blocking.threads import Threads
from hami.domain.devices import Device
from hami.domain.errors import HamiError
from hami.domain.slices import HealthChange
from hami.domain.units import DeviceId
from hami.hookspecs import PluginConfig
from hami.kube.pace import Backoff
from hami.vendors.boundary import Vendor

DISCOVER_SECONDS = 10.0
HEALTH_SECONDS = 60.0
"""A hook that waits for events may block for a while; longer means that it hangs."""
LOOK_EVERY = 1.0
"""Seconds between looks at the health, for hooks that answer at once."""
FIRST_RETRY = 1.0
"""Seconds, while no device is known; later each time."""
PATIENCE = 3
"""Failures in a row until the devices count as unhealthy."""


@dataclass(slots=True)
class HookConfig:
    """What the vendor's hooks are told of this node: ``now`` is replaced whole when it changes."""

    now: PluginConfig


class Inventory:
    """Asks the vendor again and again; ``changed`` is told when the answer is another one.

    A failure keeps the former answer; after three in a row no device is healthy, until the vendor
    answers again. ``devices`` are those of now, by id; ``static`` those that kubelet hands out
    itself, by resource. Both are replaced whole when they change.
    """

    def __init__(
        self,
        vendor: Vendor,
        hooks: Threads,
        config: HookConfig,
        changed: Callable[[], None],
        *,
        every: float,
        look_every: float = LOOK_EVERY,
    ) -> None:
        self._vendor = vendor
        self._hooks = hooks
        self._config = config
        self._changed = changed
        self._every = every
        self._look_every = look_every
        self.known = asyncio.Event()
        self.devices: Mapping[DeviceId, Device] = {}
        self.static: Mapping[str, Sequence[Device]] = {}
        self._found: dict[DeviceId, Device] = {}
        self._heard: dict[DeviceId, bool] = {}
        """Health that has changed since the discovery that is under way may have looked."""
        self._told = self._state()
        self._failures = {"hami_discover": 0, "hami_check_health": 0}
        self._again = asyncio.Event()
        self._log = structlog.get_logger("hami.inventory")

    def look_again(self) -> None:
        """The configuration has changed, or something else happened."""
        self._again.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._discover())
            tasks.create_task(self._follow())

    async def _discover(self) -> None:
        soon = Backoff(first=FIRST_RETRY, most=self._every)
        while True:
            self._again.clear()
            if not self._failures["hami_discover"]:  # Else it may answer yet, of an earlier look.
                self._heard.clear()
            config = self._config.now
            try:
                found = await self._hooks.call(
                    ("hami_discover",), DISCOVER_SECONDS, self._vendor.discover, config
                )
                static = await self._hooks.call(
                    ("hami_static_devices",),
                    DISCOVER_SECONDS,
                    self._vendor.static_devices,
                    config,
                )
            except HamiError as error:
                self._failed("hami_discover", error)
            else:
                self._failures["hami_discover"] = 0
                self._found = {device.id: device for device in found}
                for device_id, healthy in self._heard.items():
                    self._set(device_id, healthy=healthy)
                self.static = static
                self.known.set()
            self._tell()
            try:
                # A driver that is still starting must not cost the node half a minute.
                wait = self._every if self.known.is_set() else soon.delay()
                async with asyncio.timeout(wait):
                    await self._again.wait()
            except TimeoutError:
                continue

    async def _follow(self) -> None:
        """Health, between two discoveries."""
        await self.known.wait()
        while True:
            await asyncio.sleep(self._look_every)
            asked = tuple(self._found.values())
            try:
                changes = await self._hooks.call(
                    ("hami_check_health",),
                    HEALTH_SECONDS,
                    self._vendor.check_health,
                    asked,
                )
            except HamiError as error:
                self._failed("hami_check_health", error)
            else:
                self._failures["hami_check_health"] = 0
                for change in changes:
                    self._apply(change)
                if changes:
                    self._again.set()
            self._tell()

    def _apply(self, change: HealthChange) -> None:
        self._heard[change.device_id] = change.healthy
        if not self._set(change.device_id, healthy=change.healthy):
            return
        tell = self._log.info if change.healthy else self._log.warning
        word = "healthy again" if change.healthy else "not healthy"
        tell(f"a device is {word}", device=change.device_id, cause=change.cause)

    def _set(self, device_id: DeviceId, *, healthy: bool) -> bool:
        """Whether that is another health than before."""
        device = self._found.get(device_id)
        if device is None or device.healthy == healthy:
            return False
        self._found[device_id] = replace(device, healthy=healthy)
        return True

    def _failed(self, hook: str, error: HamiError) -> None:
        self._failures[hook] += 1
        if self._failures[hook] in (1, PATIENCE):
            self._log.error(
                "the vendor does not answer",
                hook=hook,
                failures=self._failures[hook],
                error=str(error),
            )

    def _state(self) -> tuple[object, ...]:
        return (self.devices, dict(self.static), self.known.is_set())

    def _tell(self) -> None:
        if max(self._failures.values()) < PATIENCE:
            self.devices = dict(self._found)
        else:
            self.devices = {id: replace(one, healthy=False) for id, one in self._found.items()}
        if (state := self._state()) != self._told:
            self._told = state
            self._changed()
