"""The node's own CDI spec of NVIDIA's kind, as nvidia-ctk writes it: libraries, files and hooks.

Foreign files may hold anything: what cannot be read as a spec is no spec, as for a runtime.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hami_nvidia.settings.node_settings import NodeSettings

Edits = Mapping[str, Any]
"""CDI's ``containerEdits``."""

_LARGEST = 4 << 20
_GPU_FILE = re.compile(r"^/dev/nvidia\d+$")


class _Device(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    container_edits: dict[str, Any] = {}


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    cdi_version: str = "0.6.0"
    devices: list[_Device] = []
    container_edits: dict[str, Any] = {}


class NodeCdiSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the node's own spec says: of every container, and of each device by name."""

    version: str
    shared: Edits
    devices: Mapping[str, Edits]

    def of_file(self, path: str) -> Edits | None:
        """The edits of the device that is this one GPU's, whatever its name: ``0``, ``gpu0``."""
        for edits in self.devices.values():
            gpus = {file for file in _files(edits) if _GPU_FILE.match(file)}
            if gpus == {path}:
                return edits
        return None


def node_spec(settings: NodeSettings) -> NodeCdiSpec | None:
    """The node's spec of the configured kind; of several the one with the highest priority.

    As in CDI, a later directory goes before a former one.
    """
    for directory in reversed(settings.cdi_dirs):
        for path in sorted(directory.glob("*")):
            if path.suffix in {".json", ".yaml", ".yml"}:
                found = _read(path, settings.cdi_kind)
                if found is not None:
                    return found
    return None


def _read(path: Path, kind: str) -> NodeCdiSpec | None:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        # Every JSON text is YAML, and pyyaml reads it a hundred times slower.
        if len(content) > _LARGEST or kind.encode() not in content:
            return None
        if path.suffix == ".json":
            spec = msgspec.json.decode(content, type=_Spec)
        else:
            raw = yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
            spec = msgspec.convert(raw, _Spec)
    except (OSError, msgspec.DecodeError, yaml.YAMLError, ValueError, RecursionError):
        return None
    if spec.kind != kind:
        return None
    return NodeCdiSpec(
        version=spec.cdi_version,
        shared=spec.container_edits,
        devices={device.name: device.container_edits for device in spec.devices},
    )


def _files(edits: Edits) -> Iterator[str]:
    nodes = edits.get("deviceNodes")
    for node in nodes if isinstance(nodes, list) else ():
        if isinstance(node, Mapping):
            yield str(node.get("path"))
