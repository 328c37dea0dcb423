"""Writes the CDI specs of HAMi's kinds, made from the node's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hami.domain.errors import HamiError
from hami.domain.slices import DeviceNode, Mount
from hami_nvidia.extras import mode_files, mode_mounts
from hami_nvidia.handed import Places, channel_files, dev_root, enabled_modes
from hami_nvidia.node_cdi import GPU_KIND, VENDOR, NodeSpec, derived_spec, node_spec, write_spec
from hami_nvidia.node_config import NodeSettings
from hami_nvidia.places import DevicePlace


class SpecFailed(HamiError):
    """A CDI spec is missing or cannot be written."""


def write_gpu_spec(spec: NodeSpec, places: Places, settings: NodeSettings) -> None:
    """Every GPU and MIG device, by id; for what the node's own spec does not name.

    Raises:
        SpecFailed: it cannot be written.
    """
    _write_gpus(spec, {str(place.id): place for place in _usable(places)}, settings)


def write_specs(places: Places, settings: NodeSettings) -> None:
    """All that the strategies ``cdi-annotations`` and ``cdi-cri`` refer to.

    Raises:
        SpecFailed: the node has no spec to make them from, or one cannot be written.
    """
    spec = node_spec(settings)
    if spec is None:
        raise SpecFailed(
            f"--device-list-strategy={','.join(settings.list_strategies)} needs a CDI spec of kind "
            f"{settings.cdi_kind} in {', '.join(map(str, settings.cdi_dirs))}; write one with "
            f"nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml, or choose envvar"
        )
    by_index = settings.id_strategy == "index"
    named = {place.index if by_index else str(place.id): place for place in _usable(places)}
    _write_gpus(spec, named, settings)
    for kind, devices in _others(settings).items():
        content = {"cdiVersion": spec.version, "kind": kind, "devices": devices}
        _write(kind, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n", settings)


def _usable(places: Places) -> list[DevicePlace]:
    """A device whose files are not all known is left out, for the others' sake."""
    return [place for place in places.values() if not place.problem]


def _write_gpus(spec: NodeSpec, places: Mapping[str, DevicePlace], settings: NodeSettings) -> None:
    content = derived_spec(spec, places, root=dev_root(settings), hook=settings.cdi_hook)
    _write(GPU_KIND, content, settings)


def _others(settings: NodeSettings) -> Mapping[str, list[dict[str, Any]]]:
    """The devices of every other class; a class without files has no spec."""
    found: dict[str, list[dict[str, Any]]] = {}
    for mode in enabled_modes(settings):
        edits = _edits([*mode_files(mode, settings)], [*mode_mounts(mode, settings)])
        if edits:
            found[f"{VENDOR}/{mode}"] = [{"name": "all", "containerEdits": edits}]
    channels = [
        {"name": str(channel), "containerEdits": _edits([node], [])}
        for channel, node in channel_files(settings).items()
    ]
    if channels:
        found[f"{VENDOR}/imex-channel"] = channels
    return found


def _edits(nodes: list[DeviceNode], mounts: list[Mount]) -> dict[str, Any]:
    edits: dict[str, Any] = {}
    if nodes:
        edits["deviceNodes"] = [{"path": n.container_path, "hostPath": n.host_path} for n in nodes]
    if mounts:
        edits["mounts"] = [
            {
                "hostPath": mount.host_path,
                "containerPath": mount.container_path,
                "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
            }
            for mount in mounts
        ]
    return edits


def _write(kind: str, content: bytes, settings: NodeSettings) -> None:
    directory = settings.cdi_dir
    try:
        write_spec(directory, kind, content)
    except OSError as error:
        raise SpecFailed(
            f"{directory}: the CDI spec of kind {kind} cannot be written: {error.strerror}; make "
            f"the directory writable for the agent"
        ) from error
