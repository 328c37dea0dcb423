"""A device plugin for one resource: served, registered, and kept registered.

Each life of kubelet is attended on its own: a new socket of kubelet's means a new kubelet, which
has deleted ours. Within one life each registration has a socket of its own, so that a stream can
be told from the one before, and none begins while a stream of ours is open: kubelet disconnects
whoever holds the resource's name when an old stream ends (read in kubelet 1.36). What kubelet asks
of a device plugin after its restart is described in
https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from hami.kube.pace import Backoff
from hami.node.kubelet.api import v1beta1_pb2 as api
from hami.node.kubelet.device_list import DeviceList, Streams
from hami.node.kubelet.kubelet_socket import KubeletSocket
from hami.node.kubelet.plugin_calls import CallRefused, PluginCalls, plugin_handlers
from hami.node.kubelet.plugin_socket import CannotListen, PluginSocket, check_name, remove_stale
from hami.node.kubelet.registration import PATIENCE, RegistrationFailed, register
from hami.node.kubelet.tokens import Token

__all__ = ["CallRefused", "DevicePluginServer", "PluginCalls"]

STEADY = 10.0
"""Seconds: a stream that held so long was no failed registration."""
RETIRED_GRACE = 30.0
"""Seconds for calls on a socket that another one has replaced: as long as kubelet waits."""
STOP_GRACE = 2.0
"""Seconds for calls under way when the agent stops: an Allocate that fails costs the pod."""


class DevicePluginServer:
    """Serves ``calls`` and ``devices``, its list, to kubelet as ``resource``.

    ``folder`` is where our sockets are made, ``kubelet_socket`` kubelet's own, both as seen from
    here. ``name`` becomes part of a socket's name and is this server's alone on the node.
    ``on_problem`` gets each trouble once, as a sentence; none of them ends the server.

    ``registered`` is set while kubelet follows our list; ``registrations`` counts how often it
    took one, ``registered_at`` is when it last did (Unix seconds; 0: never).
    """

    def __init__(
        self,
        resource: str,
        calls: PluginCalls,
        devices: DeviceList,
        *,
        folder: Path,
        kubelet_socket: Path,
        pre_start: bool,
        on_problem: Callable[[str], None],
        name: str,
    ) -> None:
        check_name(folder, name)
        self.registered = asyncio.Event()
        self.registrations = 0
        self.registered_at = 0.0
        self.resource = resource
        self.folder = folder
        self._name = name
        self._kubelet = KubeletSocket(kubelet_socket, on_problem)
        self._devices = devices
        self._options = api.DevicePluginOptions(
            pre_start_required=pre_start, get_preferred_allocation_available=True
        )
        self._handlers = partial(plugin_handlers, calls, self._options, on_problem=on_problem)
        self._on_problem = on_problem
        self._told = ""
        self._followed: Streams | None = None
        self._retired: dict[asyncio.Task[None], PluginSocket] = {}

    @property
    def healthy(self) -> int:
        """How many healthy ids kubelet may give away."""
        return self._devices.healthy

    @property
    def ids(self) -> frozenset[str]:
        """All ids that kubelet is told of."""
        return self._devices.ids

    @property
    def unregistered(self) -> str:
        """Why kubelet does not follow our list; empty while it does."""
        if self.registered.is_set():
            return ""
        return self._told or f"kubelet at {self._kubelet.path} has not asked for the list yet"

    def publish(self, tokens: Sequence[Token]) -> None:
        """List these ids from now on. The first list lets the registration begin."""
        self._devices.publish(tokens)

    def register_again(self) -> None:
        """Register anew, although kubelet follows our list: it hands out another plugin's."""
        if self._followed is not None:
            self._followed.give_up()

    async def run(self) -> None:
        """Serve until cancelled; then no socket of ours is left."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._kubelet.run())
                await self._devices.published.wait()
                known = None
                while True:
                    known = await self._kubelet.other_than(known)
                    async with asyncio.TaskGroup() as life:
                        attending = life.create_task(self._attend())
                        await self._kubelet.other_than(known)
                        attending.cancel()
        finally:
            await self._stop_retired()

    async def _attend(self) -> None:
        """Stay registered with the kubelet of this life."""
        remove_stale(self.folder, self._name)
        tries, losses = Backoff(first=0.02, most=10.0), Backoff(first=0.2, most=30.0)
        lost_quickly = False
        while True:
            try:
                async with self._listening() as plugin:
                    held = await self._registered_until_lost(plugin, tries)
            except CannotListen as error:
                self._tell(str(error))
                await asyncio.sleep(tries.delay())
                continue
            if held >= STEADY:
                losses.reset()
                lost_quickly = False
            elif lost_quickly:
                await asyncio.sleep(losses.delay())
            else:
                lost_quickly = True

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[PluginSocket]:
        """Listen on a new socket. Afterwards its streams have ended; other calls may finish."""
        plugin = PluginSocket(self.folder, self._name, Streams(self._devices), self._handlers)
        try:
            await plugin.start()
            yield plugin
        finally:
            closing = asyncio.create_task(self._close(plugin))
            self._retired[closing] = plugin
            closing.add_done_callback(self._retired.pop)
            await plugin.end_streams()

    async def _registered_until_lost(self, plugin: PluginSocket, tries: Backoff) -> float:
        """How many seconds kubelet followed the list; 0 when it never did."""
        while True:
            problem = await self._registering(plugin)
            # A kubelet that was too slow to answer may follow the list all the same.
            patience = tries.delay() if problem else PATIENCE
            if await _set_within(plugin.streams.watched, patience):
                break
            if not problem:
                self._tell(
                    f"kubelet took the registration of {self.resource} and did not ask for the "
                    f"list of its devices within {PATIENCE:g} s; registering again"
                )
                return 0.0
            self._tell(f"{problem}; trying again")
            if not plugin.reachable:
                return 0.0
        tries.reset()
        return await self._held(plugin)

    async def _registering(self, plugin: PluginSocket) -> str:
        """Register; why kubelet does not take it, or empty if it does."""
        try:
            await register(self._kubelet.path, plugin.path.name, self.resource, self._options)
        except RegistrationFailed as error:
            return str(error)
        return ""

    async def _held(self, plugin: PluginSocket) -> float:
        since = time.monotonic()
        self._told = ""
        self.registrations += 1
        self.registered_at = time.time()
        self.registered.set()
        self._followed = plugin.streams
        try:
            await plugin.streams.lost.wait()
        finally:
            self._followed = None
            self.registered.clear()
        if plugin.streams.quiet.is_set():
            self._tell(f"kubelet has ended the list of {self.resource}; registering again")
        return time.monotonic() - since

    async def _close(self, plugin: PluginSocket) -> None:
        try:
            await plugin.close(grace=RETIRED_GRACE)
        except OSError as error:
            self._tell(f"the socket {plugin.path} cannot be removed: {error.strerror}")

    async def _stop_retired(self) -> None:
        """Nobody waits for the grace of a socket when the agent stops."""
        retired = dict(self._retired)
        await asyncio.gather(*(plugin.stop(STOP_GRACE) for plugin in retired.values()))
        await asyncio.gather(*retired)

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            self._told = problem
            self._on_problem(problem)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
