"""Simulated nodes: ``mock.hami.io/devices: "h100x8"`` becomes what such a node would publish.

The text is a comma list of ``<profile>[:<mode>]x<count>``: ``a100-40g:migx4,t4x2``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hami.domain.devices import Device
from hami.domain.errors import ConfigError, shortened
from hami.domain.kubernetes.objects import Node
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, VendorKey
from hami.wire.codecs import encode_register_csv, encode_register_json
from hami_mock.catalog import MIG, Catalog, DeviceProfile, VendorFormat

DEVICES = "mock.hami.io/devices"

_ITEM = re.compile(r"(?P<profile>[A-Za-z0-9._-]+?)(?::(?P<mode>[a-z0-9-]+?))?x(?P<count>\d{1,3})")
_MOST = 64
_SEPARATORS = frozenset(",:;")

# Scores of HAMi's device plugin for a pair: its PCIe class, and 100 for each NVLink.
_SAME_CPU, _CROSS_CPU, _PER_NVLINK = 20, 10, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of the list."""

    name: str
    profile: DeviceProfile
    mode: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDevice:
    """A device of a simulated node, and the entry it comes from."""

    device: Device
    item: Item


def node_annotations(node: Node, catalog: Catalog) -> Mapping[str, str]:
    """The annotations of this node's vendors; empty for a node that asks for no devices.

    Raises:
        ConfigError: names the node, the text and what could be written instead.
    """
    text = node.annotations.get(DEVICES)
    if text is None:
        return {}
    where = f"node {node.name}: annotation {DEVICES}"
    annotations: dict[str, str] = {}
    for vendor, devices in simulate(text, node.name, catalog, where).items():
        annotations |= _published(devices, catalog.vendors[vendor])
    return annotations


def simulate(
    text: str, node: str, catalog: Catalog, where: str
) -> Mapping[VendorKey, Sequence[SimulatedDevice]]:
    """The devices that a text describes, by vendor, in the order of their indexes.

    Half of a vendor's devices are on each of two NUMA nodes.

    Raises:
        ConfigError: begins with ``where``.
    """
    if _SEPARATORS & set(node):
        raise ConfigError(f"{where}: a node name with ',', ':' or ';' cannot be in a device's id")
    wanted: dict[VendorKey, list[Item]] = {}
    for entry in text.split(","):
        item = _item(entry.strip(), catalog, where)
        wanted.setdefault(VendorKey(item.profile.vendor), []).extend([item] * item.count)
    return {
        vendor: [
            SimulatedDevice(
                device=_device(item, catalog, node, index, numa=int(2 * index >= len(items))),
                item=item,
            )
            for index, item in enumerate(items)
        ]
        for vendor, items in wanted.items()
    }


def _item(entry: str, catalog: Catalog, where: str) -> Item:
    match = _ITEM.fullmatch(entry)
    if match is None:
        raise ConfigError(
            f"{where}: {shortened(entry)!r} is not <profile>[:<mode>]x<count>, for example h100x8"
        )
    name, count = match["profile"], int(match["count"])
    profile = catalog.profiles.get(name)
    if profile is None:
        raise ConfigError(
            f"{where}: {entry!r}: there is no device profile {name!r}; known are "
            f"{', '.join(sorted(catalog.profiles))}, and mock.profiles of the device "
            f"configuration can add some"
        )
    if profile.vendor not in catalog.vendors:
        raise ConfigError(
            f"{where}: {entry!r}: device profile {name!r} is of vendor {profile.vendor!r}, known "
            f"are {', '.join(sorted(catalog.vendors))}; add it to mock.vendors"
        )
    if not 1 <= count <= _MOST:
        raise ConfigError(f"{where}: {entry!r}: the count must be 1 to {_MOST}")
    modes = [catalog.vendors[profile.vendor].mode, *([MIG] if profile.mig else [])]
    mode = match["mode"] or modes[0]
    if mode not in modes:
        raise ConfigError(
            f"{where}: {entry!r}: {name} has no mode {mode!r}; it has {' and '.join(modes)}"
        )
    return Item(name=name, profile=profile, mode=mode, count=count)


def _device(item: Item, catalog: Catalog, node: str, index: int, *, numa: int) -> Device:
    profile = item.profile
    prefix = catalog.vendors[profile.vendor].id_prefix
    return Device(
        id=DeviceId(f"{prefix}-{node}-{index}"),
        vendor=VendorKey(profile.vendor),
        index=index,
        model=profile.model,
        slots=profile.slots_in(item.mode),
        memory_mib=MemoryMiB(profile.memory_mib),
        cores=CorePercent(profile.cores),
        numa=numa,
        mode=item.mode,
    )


def _published(
    devices: Sequence[SimulatedDevice], vendor_format: VendorFormat
) -> Mapping[str, str]:
    plain = [simulated.device for simulated in devices]
    if vendor_format.codec == "csv":
        register = encode_register_csv(plain)
    else:
        items = {simulated.device.id: simulated.item for simulated in devices}
        register = encode_register_json(plain, write_extra=lambda d: _mig_profiles(items[d.id]))
    annotations = {vendor_format.register_key: register}
    if vendor_format.scores and len(devices) > 1:
        annotations[vendor_format.scores] = _pair_scores(devices)
    return annotations


def _mig_profiles(item: Item) -> Mapping[str, Any]:
    if item.mode != MIG:
        return {}
    return {"migProfiles": [instance.on_the_wire() for instance in item.profile.mig]}


def _pair_scores(devices: Sequence[SimulatedDevice]) -> str:
    """HAMi's format; keys sorted, as Go writes a map."""
    pairs = [
        {
            "uuid": one.device.id,
            "score": {
                other.device.id: _score(one, other)
                for other in sorted(devices, key=lambda s: s.device.id)
                if other is not one
            },
        }
        for one in devices
    ]
    return msgspec.json.encode(pairs).decode()


def _score(one: SimulatedDevice, other: SimulatedDevice) -> int:
    """NVLinks join devices of one entry (one board); a device in MIG mode has none."""
    pcie = _SAME_CPU if one.device.numa == other.device.numa else _CROSS_CPU
    linked = one.item is other.item and one.item.mode != MIG
    return pcie + (_PER_NVLINK * one.item.profile.nvlinks if linked else 0)
