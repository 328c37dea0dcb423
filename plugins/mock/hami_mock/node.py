"""The node's hooks of ``MOCK``: every one, on files instead of hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from hami.domain.devices import Device, Usage
from hami.domain.errors import ConfigError
from hami.domain.measurements import MeasuredDevice, MeasuredSlice, Measurement
from hami.domain.options import NodeOption
from hami.domain.profile import VendorProfile
from hami.domain.slices import ContainerEdits, HealthChange, Mount, Slice
from hami.domain.units import MIB, DeviceId
from hami.hookspecs import PluginConfig, hookimpl
from hami_mock.catalog import builtin_catalog
from hami_mock.failures import fail_if_asked
from hami_mock.records import (
    read_record,
    remove_foreign_partitions,
    remove_record,
    write_record,
)
from hami_mock.settings import MockSettings, read_settings, settings_of
from hami_mock.simulated import simulate

_SEEN_AT = "/run/hami/mock.json"
"""Where a container finds the record of its slice."""


OPTIONS = (
    NodeOption(
        section="mock",
        key="devices",
        flags=("--mock-devices",),
        variables=("MOCK_DEVICES",),
        help="The devices of the node, for example mockx4.",
        default="none",
    ),
)


class MockNode:
    """Remembers one thing: the health that it last reported of each device."""

    def __init__(self) -> None:
        self._reported: dict[DeviceId, bool] = {}

    @hookimpl
    def hami_node_options(self, profile: VendorProfile) -> Sequence[NodeOption]:
        fail_if_asked("hami_node_options", settings_of(profile))
        return OPTIONS

    @hookimpl
    def hami_discover(self, profile: VendorProfile, config: PluginConfig) -> Sequence[Device]:
        """The devices that ``mock.devices`` names; ``ConfigError`` for other vendors' profiles."""
        settings = read_settings(config)
        fail_if_asked("hami_discover", settings)
        devices = _simulated(profile, settings, settings.devices, "mock.devices")
        self._reported = {device.id: device.healthy for device in devices}
        return devices

    @hookimpl
    def hami_static_devices(
        self, profile: VendorProfile, config: PluginConfig
    ) -> Mapping[str, Sequence[Device]]:
        """Those that ``mock.static`` names by resource; their ids begin with the resource."""
        settings = read_settings(config)
        fail_if_asked("hami_static_devices", settings)
        return {
            resource: [
                replace(device, id=DeviceId(f"{resource.replace('/', '-')}-{device.index}"))
                for device in _simulated(profile, settings, text, f"mock.static.{resource}")
            ]
            for resource, text in settings.static.items()
        }

    @hookimpl
    def hami_static_edits(self, devices: Sequence[Device], config: PluginConfig) -> ContainerEdits:
        fail_if_asked("hami_static_edits", read_settings(config))
        return ContainerEdits(env={"MOCK_VISIBLE_DEVICES": ",".join(d.id for d in devices)})

    @hookimpl
    def hami_enforce(self, slice: Slice, config: PluginConfig) -> ContainerEdits:
        settings = read_settings(config)
        fail_if_asked("hami_enforce", settings)
        record = write_record(slice, settings.partitions)
        limits = {
            f"MOCK_DEVICE_MEMORY_LIMIT_{position}": f"{grant.memory_mib}m"
            for position, grant in enumerate(slice.grants)
        }
        visible = ",".join(grant.device_id for grant in slice.grants)
        return ContainerEdits(
            env={"MOCK_VISIBLE_DEVICES": visible, **limits},
            mounts=(Mount(host_path=str(record.absolute()), container_path=_SEEN_AT),),
        )

    @hookimpl
    def hami_release(self, slice: Slice, config: PluginConfig) -> None:
        settings = read_settings(config)
        fail_if_asked("hami_release", settings)
        remove_record(slice, settings.partitions)

    @hookimpl
    def hami_reconcile(self, live_slices: Sequence[Slice], config: PluginConfig) -> None:
        settings = read_settings(config)
        fail_if_asked("hami_reconcile", settings)
        remove_foreign_partitions({live.id for live in live_slices}, settings.partitions)

    @hookimpl
    def hami_check_health(
        self, profile: VendorProfile, devices: Sequence[Device]
    ) -> Sequence[HealthChange]:
        """What the settings' list and file say now, against what was last reported."""
        settings = settings_of(profile)
        fail_if_asked("hami_check_health", settings)
        unhealthy = _unhealthy(settings)
        changes = [
            HealthChange(device.id, device.id not in unhealthy, "mock.unhealthy")
            for device in devices
            if self._reported.get(device.id, device.healthy) is (device.id in unhealthy)
        ]
        self._reported |= {change.device_id: change.healthy for change in changes}
        return changes

    @hookimpl
    def hami_measure(
        self, profile: VendorProfile, devices: Sequence[Device], slices: Sequence[Slice]
    ) -> Measurement:
        """Every slice uses all that it was granted; a device what its slices use."""
        fail_if_asked("hami_measure", settings_of(profile))
        known = {device.id for device in devices}
        used: dict[tuple[DeviceId, str], Usage] = {}
        for slice in slices:
            record = read_record(slice)
            for grant in record.grants if record else ():
                if grant.device_id in known:
                    place = (grant.device_id, slice.id)
                    taken = Usage(1, grant.memory_mib, grant.cores)
                    used[place] = used.get(place, Usage()) + taken
        return Measurement(
            devices=tuple(
                MeasuredDevice(
                    id=device.id,
                    memory_used_bytes=MIB * sum(u.memory_mib for u in _of(device, used)),
                    memory_total_bytes=MIB * device.memory_mib,
                    utilisation=min(100.0, sum(u.cores for u in _of(device, used))),
                )
                for device in devices
            ),
            slices=tuple(
                MeasuredSlice(
                    device_id=device_id,
                    slice_id=slice_id,
                    memory_bytes=MIB * usage.memory_mib,
                    utilisation=min(100.0, usage.cores),
                )
                for (device_id, slice_id), usage in used.items()
            ),
        )


def _of(device: Device, used: Mapping[tuple[DeviceId, str], Usage]) -> list[Usage]:
    return [usage for (device_id, _), usage in used.items() if device_id == device.id]


def _simulated(
    profile: VendorProfile, settings: MockSettings, text: str, where: str
) -> list[Device]:
    """What ``text`` names; raises ``ConfigError`` for devices of other vendors."""
    if not text:
        return []
    catalog = builtin_catalog().with_(settings)
    found = simulate(text, settings.node, catalog, where)
    foreign = sorted(found.keys() - {profile.key})
    if foreign:
        raise ConfigError(
            f"{where}: {text!r} names devices of {', '.join(foreign)}; a node can discover those "
            f"of {profile.key} only, write for example mockx4"
        )
    unhealthy = _unhealthy(settings)
    return [
        replace(simulated.device, healthy=simulated.device.id not in unhealthy)
        for simulated in found[profile.key]
    ]


def _unhealthy(settings: MockSettings) -> frozenset[str]:
    listed = settings.unhealthy
    return listed | _lines(settings.unhealthy_file) if settings.unhealthy_file else listed


def _lines(path: Path) -> frozenset[str]:
    """The file's lines; a file that is not there has none."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return frozenset()
    return frozenset(line.strip() for line in text.splitlines())
