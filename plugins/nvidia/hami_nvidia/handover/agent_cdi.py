"""Our CDI specs of HAMi's kinds, made from the node's own.

The node's own spec knows the driver. Ours says the same under the ids that grants use, also for
MIG devices that were made after nvidia-ctk ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hami.domain.errors import HamiError
from hami.domain.slices import DeviceNode, Mount
from hami.domain.units import DeviceId
from hami_nvidia.devices.places import DevicePlace, place_of
from hami_nvidia.handover.device_list import (
    GPU_KIND,
    VENDOR,
    channel_files,
    dev_root,
    enabled_modes,
)
from hami_nvidia.handover.files import write_whole
from hami_nvidia.handover.gpudirect import mode_files, mode_mounts
from hami_nvidia.handover.hardware import Hardware
from hami_nvidia.handover.node_cdi import Edits, NodeCdiSpec, node_spec
from hami_nvidia.settings.node_settings import NodeSettings


class SpecFailed(HamiError):
    """A CDI spec is missing or cannot be written."""


def write_gpu_spec(spec: NodeCdiSpec, needed: Sequence[DeviceId], hardware: Hardware) -> None:
    """Every GPU and MIG device, by id; for what the node's own spec does not name.

    Raises:
        NoPlace: a device that is ``needed`` is not on this node.
        SpecFailed: it cannot be written.
    """
    # Whoever looks first writes first: nobody's new MIG device is missing in the end.
    with hardware.writing_specs:
        named = {str(place.id): place for place in _places(needed, hardware)}
        _write_gpus(spec, named, hardware.settings)


def write_specs(needed: Sequence[DeviceId], hardware: Hardware) -> None:
    """All that the strategies ``cdi-annotations`` and ``cdi-cri`` refer to.

    Raises:
        NoPlace: a device that is ``needed`` is not on this node.
        SpecFailed: the node has no spec to make them from, or one cannot be written.
    """
    settings = hardware.settings
    spec = node_spec(settings)
    if spec is None:
        raise SpecFailed(
            f"--device-list-strategy={','.join(settings.list_strategies)} needs a CDI spec of kind "
            f"{settings.cdi_kind} in {', '.join(map(str, settings.cdi_dirs))}; write one with "
            f"nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml, or choose envvar"
        )
    by_index = settings.id_strategy == "index"
    with hardware.writing_specs:
        places = _places(needed, hardware)
        _write_gpus(spec, {p.index if by_index else str(p.id): p for p in places}, settings)
        for kind, devices in _others(settings).items():
            _write({"cdiVersion": spec.version, "kind": kind, "devices": devices}, settings)


def _places(needed: Sequence[DeviceId], hardware: Hardware) -> list[DevicePlace]:
    """A device whose files are not all known is left out, for the others' sake."""
    found = hardware.places()
    for id in needed:
        place_of(id, found)
    return [place for place in found.values() if not place.problem]


def _write_gpus(
    spec: NodeCdiSpec, places: Mapping[str, DevicePlace], settings: NodeSettings
) -> None:
    """A GPU has the edits of the node's spec, a MIG device its files alone."""
    root, hook = dev_root(settings), settings.cdi_hook
    devices = []
    for name, place in places.items():
        own = spec.of_file(place.paths[0]) if len(place.paths) == 1 else None
        edits = own or {
            "deviceNodes": [
                {"path": path, "hostPath": str(root / path.lstrip("/"))} for path in place.paths
            ]
        }
        devices.append({"name": name, "containerEdits": _with_hook(edits, hook)})
    content = {
        "cdiVersion": spec.version,
        "kind": GPU_KIND,
        "devices": devices,
        "containerEdits": _with_hook(spec.shared, hook),
    }
    _write(content, settings)


def _with_hook(edits: Edits, hook: Path | None) -> Edits:
    hooks = edits.get("hooks")
    if hook is None or not isinstance(hooks, list):
        return edits
    changed = [{**one, "path": str(hook)} if isinstance(one, Mapping) else one for one in hooks]
    return {**edits, "hooks": changed}


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


def _write(spec: Mapping[str, Any], settings: NodeSettings) -> None:
    """Unless it says this already: a runtime may serve a changed one in its old form."""
    directory, kind = settings.cdi_dir, spec["kind"]
    path = directory / f"{kind.replace('/', '-')}.json"
    content = msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n"
    try:
        if not (path.is_file() and path.read_bytes() == content):
            directory.mkdir(parents=True, exist_ok=True)
            write_whole(path, content, 0o644)
    except OSError as error:
        raise SpecFailed(
            f"{directory}: the CDI spec of kind {kind} cannot be written: {error.strerror}; make "
            f"the directory writable for the agent"
        ) from error
