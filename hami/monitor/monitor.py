"""The node monitor: one process per node, for all vendors, from its start to SIGTERM.

``serve`` builds everything and passes it down. The loop owns the vendors' answers, the pods and the
table; one thread at a time owns the slices' files and the processes.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec
import structlog

from hami.blocking.threads import Threads
from hami.domain.errors import ConfigError
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import VendorKey
from hami.hookspecs import PluginConfig
from hami.http.connection import Routes
from hami.http.listening import listening
from hami.http.probes import probe_routes
from hami.kube.client import KubeClient
from hami.kube.events import EventRecorder
from hami.monitor.compat.region_files import RegionFolder
from hami.monitor.files.recorded_slice import recorded_slice
from hami.monitor.files.slices_on_disk import SlicesOnDisk
from hami.monitor.measuring.vendor_measuring import VendorMeasuring
from hami.monitor.metrics import MonitorMetrics
from hami.monitor.pods import KnownPods
from hami.monitor.routes import node_routes
from hami.monitor.settings.config import MonitorConfig
from hami.monitor.settings.source import MonitorSource, plugin_config
from hami.monitor.table import NodeTable
from hami.monitor.tick.foreign import VENDOR, ForeignSlices
from hami.monitor.tick.node_round import NodeRound
from hami.monitor.tick.pod_warnings import PodWarnings
from hami.monitor.tick.ticking import SLOW, Ticking
from hami.monitor.usage_history import UsageHistory
from hami.settings.watch import ConfigWatcher
from hami.slices.lock_file import alone
from hami.vendors.boundary import Vendor
from hami.vendors.registry import Vendors, load_vendors

COMPONENT = "hami-monitor"
_MEASURES = "hami_measure"


async def serve(config: MonitorConfig, *, source: MonitorSource, ready: Callable[[], None]) -> None:
    """Measure and serve until cancelled; ``ready`` is called after the first tick.

    Raises:
        HamiError: a setting or a plugin must be changed, or another monitor runs on this node.
    """
    log = structlog.get_logger("hami.monitor")
    vendors = load_vendors(
        config.devices,
        on_failure=lambda failure: log.debug(str(failure)),
        on_broken=lambda problem: log.warning(str(problem)),
    )
    measured = chosen(vendors, config.vendors)
    _allow_many_files()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(alone(config.slices / "monitor.lock", "monitor runs"))
        client = await _connected(config, log.warning)
        if client is not None:
            stack.push_async_callback(client.close)
        monitor = Monitor(config, source, vendors, measured, client)
        stack.callback(monitor.close)
        if config.http_bind is not None:
            url = await stack.enter_async_context(listening(config.http_bind, monitor.routes()))
            log.info("serving", url=url)
        await monitor.run(ready)


class Monitor:
    """Builds the monitor's parts; ``measured`` are those of ``vendors`` that can measure."""

    def __init__(
        self,
        config: MonitorConfig,
        source: MonitorSource,
        vendors: Vendors,
        measured: Sequence[Vendor],
        client: KubeClient | None,
    ) -> None:
        self._config, self._client = config, client
        self._log = structlog.get_logger("hami.monitor")
        self._watcher = ConfigWatcher(source, config, _taken_over)
        self._hooks, self._pages = Threads("hook"), Threads("page", 1)
        self._pods = KnownPods()
        self._events = self._recorder()
        self._measuring = [
            VendorMeasuring(vendor, self._hooks, partial(self._plugin_config, vendor.profile.key))
            for vendor in measured
        ]
        self._history = UsageHistory()
        self._metrics = MonitorMetrics(one.key for one in self._measuring)
        self._round = self._node_round(vendors)
        self.ticking = Ticking(
            self._measuring,
            self._round,
            self._pages,
            node=config.node_name,
            every=config.tick,
            listeners=self._listeners(),
        )

    def _node_round(self, vendors: Vendors) -> NodeRound:
        config, keys = self._config, [one.key for one in self._measuring]
        as_slice = partial(recorded_slice, vendors=vendors)
        disk = SlicesOnDisk(config.slices, dict.fromkeys(keys, as_slice), self._log.warning)
        foreign = ForeignSlices(
            RegionFolder(config.hook_path), self._pods.full_name_of, self._log.warning
        )
        return NodeRound(
            config.node_name,
            keys,
            disk,
            config.proc_root,
            self._pods.name_of,
            self._log.warning,
            foreign if VENDOR in keys else None,
            self._pods.get,
        )

    def _recorder(self) -> EventRecorder | None:
        if self._client is None:
            return None
        return EventRecorder(
            self._client,
            component=COMPONENT,
            instance=self._config.node_name,
            on_problem=self._log.warning,
        )

    def _listeners(self) -> list[Callable[[NodeTable], None]]:
        telling = (
            []
            if self._events is None
            else [PodWarnings(self._pods.get, partial(_warn, self._events))]
        )
        return [self._remember, *telling]

    def _remember(self, table: NodeTable) -> None:
        self._history.observe(table, time.monotonic())
        self._metrics.ticked(table.tick_seconds)
        for vendor in table.vendors:
            if vendor.stale:
                self._metrics.measure_failed(vendor.vendor)

    def routes(self) -> Routes:
        """What is answered over HTTP."""
        return {
            **probe_routes(failed=self._failed, missing=self._missing),
            **node_routes(
                lambda: self.ticking.table,
                self._metrics,
                self._history,
                legacy_metrics=self._config.legacy_metrics,
            ),
        }

    async def run(self, ready: Callable[[], None]) -> None:
        """Run every part until cancelled; ``ready`` is called after the first tick."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watcher.run())
            tasks.create_task(self.ticking.run())
            for vendor in self._measuring:
                tasks.create_task(vendor.follow_devices())
            if self._client is not None and self._events is not None:
                node, warn = self._config.node_name, self._log.warning
                tasks.create_task(self._events.run())
                tasks.create_task(self._pods.run(self._client, node, warn))
            await self.ticking.first.wait()
            ready()

    def close(self) -> None:
        """Pages stay as they are: a heartbeat that stops says by itself that nobody measures."""
        self._hooks.close()
        self._pages.close()

    def _plugin_config(self, vendor: VendorKey) -> PluginConfig:
        labels = node_labels(self._config.slices, vendor)
        return plugin_config(self._watcher.running, labels=labels)

    def _failed(self) -> list[str]:
        late = self.ticking.late_by
        return [f"no tick has finished for {late:.0f} s"] if late > SLOW else []

    def _missing(self) -> list[str]:
        return [] if self.ticking.first.is_set() else ["the first tick has not finished"]


def chosen(vendors: Mapping[VendorKey, Vendor], names: Sequence[str]) -> list[Vendor]:
    """Those that can measure: all, or the ones that are named.

    Raises:
        ConfigError: a name is no such vendor's; lists those that are.
    """
    able = {v.profile.key.lower(): v for v in vendors.values() if _MEASURES in v.hooks}
    wanted = [name.lower() for name in names] or list(able)
    for name in wanted:
        if name not in able:
            raise ConfigError(
                f"vendors: no installed plugin of {name!r} measures; name some of "
                f"{', '.join(sorted(able)) or 'none'}, or leave vendors out"
            )
    return [able[name] for name in dict.fromkeys(wanted)]


def node_labels(slices: Path, vendor: str) -> Mapping[str, str]:
    """The node's labels as the vendor's agent has last written them down."""
    try:
        remembered = (slices / f"{vendor.lower()}-node.json").read_bytes()
        return msgspec.json.decode(remembered, type=_Remembered).labels
    except (OSError, msgspec.MsgspecError):
        return {}


class _Remembered(msgspec.Struct, frozen=True):
    labels: dict[str, str]


async def _connected(config: MonitorConfig, on_problem: Callable[[str], None]) -> KubeClient | None:
    """None where there is no API server to ask: nothing that a container is told depends on it."""
    if not config.node_name:
        on_problem("node-name is not given: no events, and no pod of a process without a slice")
        return None
    try:
        return await KubeClient.connect(config.kube)
    except ConfigError as error:
        on_problem(f"without the API server no events are written: {error}")
        return None


def _warn(events: EventRecorder, pod: Pod, reason: str, text: str) -> None:
    events.record(pod, reason, text, warning=True)


def _taken_over(_: MonitorConfig) -> None:
    """The next discovery is told of it."""


def _allow_many_files() -> None:
    """Two descriptors a slice and one a process: more than a shell allows by default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
