"""The CDI specs to which HAMi's strategies ``cdi-annotations`` and ``cdi-cri`` refer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hami.domain.slices import DeviceNode, Mount
from hami.domain.units import DeviceId
from hami_nvidia.handover.agent_cdi import SpecFailed, known_places, write_gpus, write_spec
from hami_nvidia.handover.device_files import (
    VENDOR,
    channel_files,
    enabled_modes,
    mode_files,
    mode_mounts,
)
from hami_nvidia.handover.hardware import Hardware
from hami_nvidia.handover.node_cdi import node_spec
from hami_nvidia.settings.node_settings import NodeSettings


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
        places = known_places(needed, hardware)
        write_gpus(spec, {p.index if by_index else str(p.id): p for p in places}, settings)
        for kind, devices in _others(settings).items():
            write_spec({"cdiVersion": spec.version, "kind": kind, "devices": devices}, settings)


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
