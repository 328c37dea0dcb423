"""One node's device plugins as its kubelet deals with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hami.domain.allocations import ContainerKind
from hami.domain.kubernetes.objects import Container, Pod
from hami.domain.kubernetes.quantity import BadQuantity, whole_number
from hami.domain.units import PodUid
from hami.node.kubelet.api import v1beta1_pb2 as api
from hami_lab.kubelet.devices.checkpoint import FILE, Unreadable, decode, encode
from hami_lab.kubelet.devices.endpoints import Endpoint, PluginFailed, answer_of
from hami_lab.kubelet.devices.ledger import (
    Held,
    HeldEntry,
    Ledger,
    ListedDevice,
    NotAllocated,
    Reusable,
)
from hami_lab.kubelet.devices.races import Races
from hami_lab.kubelet.devices.registration import Registrations

STOPPED_GRACE = 300.0
"""Seconds after which kubelet forgets the resource of a plugin that is gone."""
PRESTART_TIMEOUT = 30.0
_A_LITTLE = 0.01


@dataclass(frozen=True, slots=True)
class Counts:
    """Devices by resource, as a node's status shows them."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]


@dataclass(slots=True)
class _Plugin:
    """Who answers for a resource; no endpoint: nobody since kubelet's start."""

    endpoint: Endpoint | None
    stopped_at: float | None = None


def _nobody() -> Collection[PodUid]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    """``active``: the pods whose devices must not be given away.

    ``on_change`` is told when the counts may have changed.
    """

    active: Callable[[], Collection[PodUid]] = _nobody
    on_change: Callable[[], None] = lambda: None
    on_problem: Callable[[str], None] = lambda _: None
    prestart_timeout: float = PRESTART_TIMEOUT
    stopped_grace: float = STOPPED_GRACE
    races: Races = field(default_factory=Races)
    clock: Callable[[], float] = time.monotonic


class NodeDevices:
    """The devices of one node from :meth:`start` to :meth:`stop`, any number of times.

    ``folder`` is the node's plugin folder; plugins put their sockets there too.
    """

    def __init__(self, folder: Path, settings: DeviceSettings | None = None) -> None:
        self.folder = folder
        self._settings = settings or DeviceSettings()
        self._registrations = Registrations(
            folder,
            self,
            races=self._settings.races,
            prestart_timeout=self._settings.prestart_timeout,
            on_problem=self._settings.on_problem,
        )
        self._ledger = Ledger()
        self._plugins: dict[str, _Plugin] = {}
        self._removed: set[str] = set()
        self._former = b""
        self._news = asyncio.Event()
        self._expiries: list[asyncio.TimerHandle] = []

    @property
    def races(self) -> Races:
        return self._settings.races

    async def start(self) -> None:
        """As kubelet starts: delete every file but the checkpoint, read that, and listen.

        Raises:
            ConfigError: the folder's path is too long for a socket.
        """
        self.folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            if path.name != FILE and not path.is_dir():
                path.unlink(missing_ok=True)
        self._ledger, self._plugins = Ledger(), {}
        self._read_checkpoint()
        await self._registrations.start()
        self._tell()

    async def stop(self) -> None:
        """As kubelet ends: nothing is written, and plugins lose their streams."""
        for expiry in self._expiries:
            expiry.cancel()
        self._expiries.clear()
        await self._registrations.stop()

    def counts(self) -> Counts:
        """What the node has of each resource; a resource that went keeps its name, with 0."""
        for resource, plugin in list(self._plugins.items()):
            if plugin.stopped_at is not None and self._expired(plugin.stopped_at):
                del self._plugins[resource]
                self._ledger.remove(resource)
                self._removed.add(resource)
                self._write_checkpoint()
        gone = dict.fromkeys(self._removed, 0)
        healthy = {r: len(ids) for r, ids in self._ledger.healthy.items()}
        whole = {r: n + len(self._ledger.unhealthy.get(r, ())) for r, n in healthy.items()}
        return Counts(gone | whole, gone | healthy)

    async def healthy(self, resource: str, count: int = 1) -> None:
        """Until the resource's plugin lists so many healthy devices."""
        while len(self._ledger.healthy.get(resource, ())) < count:
            await self._changed()

    async def lost(self, resource: str) -> None:
        """Until the resource has no plugin that answers."""
        while (plugin := self._plugins.get(resource)) and plugin.endpoint:
            if plugin.stopped_at is not None:
                return
            await self._changed()

    def drop_stream(self, resource: str) -> None:
        """Lose the stream of the resource's plugin, as a broken connection would."""
        self._registrations.drop_stream(resource)

    def entries(self) -> Sequence[HeldEntry]:
        """Who holds what, by kubelet's books."""
        return tuple(self._ledger.entries())

    def list_pod_resources(self) -> None:
        """What PodResources.List does besides: take back what inactive pods hold.

        An Allocate that is under way is forgotten when there is any such pod.
        """
        self._ledger.drop_all_but(frozenset(self._settings.active()))

    # Pods.

    async def admit(self, pod: Pod, running: Collection[str] = ()) -> NotAllocated | None:
        """Give every container its devices, one after the other; a reason when one gets none.

        ``running`` are containers that already run (after kubelet's restart): they are passed
        over. What was given before the failure is taken back when the next pod comes.
        """
        reusable: Reusable = {}
        for container, kind in pod.each_container():
            refused = await self._allocate(pod, container, reusable, runs=container.name in running)
            if refused is not None:
                return refused
            if kind is ContainerKind.INIT:
                self._ledger.lend(pod.uid, container.name, reusable)
            else:
                self._ledger.keep(pod.uid, container.name, reusable)
        return None

    async def before_start(
        self, pod: Pod, container: Container
    ) -> Sequence[api.ContainerAllocateResponse] | NotAllocated:
        """Tell the plugins that the container is about to start, and what it gets.

        A plugin that has not registered since kubelet's restart is not told, and the stored
        answer counts.
        """
        again = False
        try:
            for resource, _ in self._wanted(container):
                await self._pre_start(pod.uid, container.name, resource)
                again = again or resource not in self._ledger.held_by(pod.uid, container.name)
            if again and pod.uid in self._settings.active():
                refused = await self._allocate(pod, container, {}, runs=False)
                if refused is not None:
                    return refused
            held = self._ledger.held_by(pod.uid, container.name)
            return [answer_of(held[resource].answer) for resource in sorted(held)]
        except PluginFailed as error:
            return NotAllocated(str(error))

    async def _pre_start(self, pod_uid: PodUid, container: str, resource: str) -> None:
        plugin = self._plugins.get(resource)
        if plugin is None:
            raise PluginFailed(f"endpoint not found in cache for a registered resource: {resource}")
        if plugin.endpoint is None or not plugin.endpoint.options.pre_start_required:
            return
        held = self._ledger.held_by(pod_uid, container).get(resource)
        if held is None:
            raise PluginFailed(
                f"no devices found allocated in local cache for pod {pod_uid}, container "
                f"{container}, resource {resource}"
            )
        await plugin.endpoint.pre_start(held.flat)

    async def _allocate(
        self, pod: Pod, container: Container, reusable: Reusable, *, runs: bool
    ) -> NotAllocated | None:
        wanted = list(self._wanted(container))
        if not wanted:
            return None
        self._ledger.drop_all_but(frozenset(self._settings.active()) | {pod.uid})
        written = False
        for resource, count in wanted:
            if runs:
                continue
            try:
                given = await self._give(pod.uid, container.name, resource, count, reusable)
            except PluginFailed as error:
                self._ledger.rebuild()
                return NotAllocated(str(error))
            if isinstance(given, NotAllocated):
                return given
            written = written or given
        if written:
            self._write_checkpoint()
        return None

    async def _give(
        self, pod_uid: PodUid, container: str, resource: str, count: int, reusable: Reusable
    ) -> bool | NotAllocated:
        """Whether it got something new."""
        needed = self._ledger.still_needed(pod_uid, container, resource, count)
        if isinstance(needed, NotAllocated) or not needed:
            return needed if isinstance(needed, NotAllocated) else False
        plugin = self._plugins.get(resource)
        if plugin is None or plugin.endpoint is None:
            return NotAllocated(f"unknown Device Plugin {resource}")
        chosen = await self._choose(resource, needed, reusable.get(resource, set()), plugin)
        if isinstance(chosen, NotAllocated):
            return chosen
        call = asyncio.ensure_future(plugin.endpoint.allocate(chosen))
        if self.races.forgets():
            self._ledger.rebuild()
        answer = await call
        held = Held(self._ledger.by_numa(resource, chosen), answer)
        self._ledger.hold(
            HeldEntry(pod_uid=pod_uid, container=container, resource=resource, held=held)
        )
        return True

    async def _choose(
        self, resource: str, count: int, reusable: set[str], plugin: _Plugin
    ) -> set[str] | NotAllocated:
        """The ids for a container: those it may take over, then those its plugin prefers."""
        chosen: set[str] = set()
        ledger = self._ledger
        if ledger.take(resource, chosen, reusable, count):
            return chosen
        available = ledger.available(resource)
        if len(available) < count - len(chosen):
            return NotAllocated(
                f"requested number of devices unavailable for {resource}. Requested: "
                f"{count - len(chosen)}, Available: {len(available)}"
            )
        assert plugin.endpoint is not None
        preferred = await plugin.endpoint.preferred(available | chosen, chosen, count)
        if not ledger.take(resource, chosen, preferred & available, count):
            ledger.take(resource, chosen, available, count)
        return chosen

    def _wanted(self, container: Container) -> Iterator[tuple[str, int]]:
        """The resources of plugins that it asks for, and how many of each."""
        for resource, text in sorted(container.limits.items()):
            count = whole_number(text)
            if self._ledger.knows(resource) and not isinstance(count, BadQuantity) and count:
                yield resource, count

    # What plugins do.

    def connected(self, endpoint: Endpoint) -> None:
        self._plugins[endpoint.resource] = _Plugin(endpoint)
        self._removed.discard(endpoint.resource)
        self._tell()

    def listed(self, resource: str, devices: Sequence[ListedDevice]) -> None:
        self._ledger.listed(resource, devices)
        self._write_checkpoint()
        self._tell()

    def disconnected(self, resource: str) -> None:
        self._ledger.disconnected(resource)
        if (plugin := self._plugins.get(resource)) is not None:
            plugin.stopped_at = self._settings.clock()
            loop = asyncio.get_running_loop()
            due = self._settings.stopped_grace + _A_LITTLE
            self._expiries.append(loop.call_later(due, self._tell))
        self._tell()

    def _expired(self, stopped_at: float) -> bool:
        return self._settings.clock() - stopped_at >= self._settings.stopped_grace

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
        self._settings.on_change()

    async def _changed(self) -> None:
        await self._news.wait()

    # The checkpoint.

    def _read_checkpoint(self) -> None:
        path = self.folder / FILE
        self._former = path.read_bytes() if path.exists() else b""
        if not self._former:
            return
        saved = decode(self._former)
        if isinstance(saved, Unreadable):
            # kubelet too goes on without it: containers that restart then get no device.
            self._settings.on_problem(f"{path}: {saved.text}")
            return
        self._ledger.recovered(saved.entries, saved.resources)
        self._plugins = {resource: _Plugin(None) for resource in saved.resources}

    def _write_checkpoint(self) -> None:
        newest = encode(self._ledger)
        kept = newest
        if self.races.goes_stale() and self._former:
            kept = self._former
        path = self.folder / FILE
        fresh = path.with_name(f".{FILE}.tmp")
        fresh.write_bytes(kept)
        fresh.replace(path)
        self._former = newest
