"""The node's hooks: each finds the settings and NVML, and calls the module that does the work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock

from hami.domain.devices import Device
from hami.domain.measurements import Measurement
from hami.domain.options import NodeOption
from hami.domain.slices import ContainerEdits, HealthChange, Identity, Slice
from hami.domain.units import DeviceId
from hami.hookspecs import PluginConfig, hookimpl
from hami_nvidia.compat.locked_answer import LockedAnswer, remove_shared_directory
from hami_nvidia.devices import discovery
from hami_nvidia.handover import cleanup
from hami_nvidia.handover import enforce as handover
from hami_nvidia.handover.enforce import Answer, CdiAnswer
from hami_nvidia.handover.hardware import Hardware
from hami_nvidia.handover.limits import ContextReserves
from hami_nvidia.health.watch import HealthWatch
from hami_nvidia.measurement.measuring import Measuring
from hami_nvidia.mig.instances import Instances
from hami_nvidia.mig.made_instances import MadeInstances
from hami_nvidia.nvml.driver import DriverNvml
from hami_nvidia.nvml.interface import Nvml
from hami_nvidia.settings.node_settings import NodeSettings, node_settings
from hami_nvidia.settings.options import NODE_OPTIONS

_log = logging.getLogger("hami.nvidia")
_MOST_REMEMBERED = 1000


class NvidiaReports:
    """Logs each warning once; again after many others."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._stand: dict[str, frozenset[str]] = {}

    def __call__(self, text: str) -> None:
        if text in self._said:
            return
        if len(self._said) >= _MOST_REMEMBERED:
            self._said.clear()
        self._said.add(text)
        _log.warning("%s", text)

    def stand(self, source: str, texts: Sequence[str]) -> None:
        """Log what ``source`` has to say now and did not say the last time."""
        former = self._stand.get(source, frozenset())
        self._stand[source] = frozenset(texts)
        for text in dict.fromkeys(texts):
            if text not in former:
                _log.warning("%s", text)


class _Opened:
    """One connection to NVML, and what is remembered of it."""

    def __init__(self, nvml: Nvml, settings: NodeSettings, report: NvidiaReports) -> None:
        self.health = HealthWatch(nvml)
        self.measuring = Measuring(nvml)
        self.known: Sequence[Device] = ()
        self.hardware = Hardware(
            settings=settings,
            nvml=nvml,
            instances=Instances(nvml),
            made=MadeInstances(),
            contexts=ContextReserves(nvml),
            report=report,
        )

    @property
    def settings(self) -> NodeSettings:
        return self.hardware.settings

    def close(self) -> None:
        self.health.close()
        self.hardware.nvml.close()


class NvidiaNode:
    """Remembers the connection to NVML, which is made anew only when it is another one.

    ``connect`` makes it: to the driver below a root directory of the node, or a test's.
    """

    def __init__(self, connect: Callable[[Path], Nvml] = DriverNvml) -> None:
        self._connect = connect
        self._lock = Lock()
        self._opened: _Opened | None = None
        self._config: PluginConfig | None = None
        self._report = NvidiaReports()

    @hookimpl
    def hami_node_options(self) -> Sequence[NodeOption]:
        return NODE_OPTIONS

    @hookimpl
    def hami_discover(self, config: PluginConfig) -> Sequence[Device]:
        opened = self._open(config)
        found = discovery.discover(
            opened.hardware.nvml,
            opened.settings,
            known=opened.known,
            ailing=opened.health.ailing(),
        )
        self._report.stand("devices", found.reports)
        opened.known = found.devices
        return found.devices

    @hookimpl
    def hami_static_devices(self, config: PluginConfig) -> Mapping[str, Sequence[Device]]:
        opened = self._open(config)
        found = discovery.static_devices(opened.hardware.nvml, opened.settings)
        self._report.stand("static devices", found.reports)
        return found.by_resource

    @hookimpl
    def hami_static_edits(self, devices: Sequence[Device], config: PluginConfig) -> ContainerEdits:
        return static_edits([d.id for d in devices], self._open(config).hardware)

    @hookimpl
    def hami_enforce(self, slice: Slice, config: PluginConfig) -> ContainerEdits:
        return enforce(slice, self._open(config).hardware)

    @hookimpl
    def hami_release(self, slice: Slice, config: PluginConfig) -> None:
        release(slice, self._open(config).hardware)

    @hookimpl
    def hami_reconcile(self, live_slices: Sequence[Slice], config: PluginConfig) -> None:
        reconcile(live_slices, self._open(config).hardware)

    @hookimpl
    def hami_check_health(self, devices: Sequence[Device]) -> Sequence[HealthChange]:
        """Under the settings of the last discovery, which found these devices."""
        opened = self._opened
        return () if opened is None else opened.health.check(devices, opened.settings)

    @hookimpl
    def hami_measure(self, devices: Sequence[Device], slices: Sequence[Slice]) -> Measurement:
        opened = self._opened
        return Measurement() if opened is None else opened.measuring.measure(devices, slices)

    def _open(self, config: PluginConfig) -> _Opened:
        """NVML as the settings want it, with the settings as they are now."""
        with self._lock:
            opened = self._opened
            if opened is not None and config is self._config:
                return opened
            settings = node_settings(config)
            root = settings.container_driver_root
            if opened is None or opened.settings.container_driver_root != root:
                if opened is not None:
                    opened.close()
                opened = self._opened = _Opened(self._connect(root), settings, self._report)
            elif opened.settings != settings:
                opened.hardware = replace(opened.hardware, settings=settings)
            self._config = config
            return opened


def enforce(slice: Slice, hardware: Hardware) -> ContainerEdits:
    """Make the slice real, in the form that its identity asks for.

    See :func:`hami_nvidia.handover.enforce.enforce`.
    """
    return handover.enforce(slice, hardware, _answer(slice.identity))


def static_edits(ids: Sequence[DeviceId], hardware: Hardware) -> ContainerEdits:
    """What a container gets with MIG devices that kubelet chose itself; without any limit."""
    return _answer(hardware.settings.identity).static_devices(ids, hardware)


def release(slice: Slice, hardware: Hardware) -> None:
    """Undo what ``enforce`` did for the slice; what is gone already is fine."""
    shared = cleanup.release(slice, hardware)
    if shared is not None:
        remove_shared_directory(shared, hardware.settings)


def reconcile(live: Sequence[Slice], hardware: Hardware) -> None:
    """Put back what the node must have, and remove what belongs to none of these slices."""
    cleanup.reconcile(live, hardware, _answer(hardware.settings.identity))


def _answer(identity: Identity) -> Answer:
    return LockedAnswer() if identity == "lock" else CdiAnswer()
