"""CDI specs of NVIDIA's kind on this node: the one that nvidia-ctk wrote, and ours made from it.

The node's own spec knows the driver: its libraries, device files and hooks. Ours, of HAMi's kind,
says the same under the ids that grants use, also for MIG devices that were made after nvidia-ctk
ran. Foreign files may hold anything: what cannot be read as a spec is no spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hami_nvidia.files import write_whole
from hami_nvidia.node_config import NodeSettings
from hami_nvidia.places import DevicePlace

VENDOR = "k8s.device-plugin.nvidia.com"
GPU_KIND = f"{VENDOR}/gpu"

Edits = Mapping[str, Any]
"""CDI's ``containerEdits``."""

_LARGEST = 4 << 20
_GPU_FILE = re.compile(r"^/dev/nvidia\d+$")


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
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


def node_spec(settings: NodeSettings) -> NodeSpec | None:
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


def derived_spec(
    spec: NodeSpec,
    places: Mapping[str, DevicePlace],
    *,
    root: Path,
    hook: Path | None,
) -> bytes:
    """Our spec of kind :data:`GPU_KIND`, of devices by name; ``root`` is where /dev is.

    A GPU has the edits of the node's spec, a MIG device its files alone.
    """
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
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def write_spec(directory: Path, kind: str, content: bytes) -> None:
    """Write a spec unless it says this already: a runtime may serve a changed one in its old form.

    Raises:
        OSError: it cannot be written; the former one stays.
    """
    path = directory / f"{kind.replace('/', '-')}.json"
    if not (path.is_file() and path.read_bytes() == content):
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(path, content, 0o644)


def _read(path: Path, kind: str) -> NodeSpec | None:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        # Every JSON text is YAML, and pyyaml reads it a hundred times slower.
        if len(content) > _LARGEST or kind.encode() not in content:
            return None
        if path.suffix == ".json":
            raw = msgspec.json.decode(content)
        else:
            raw = yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (OSError, msgspec.DecodeError, yaml.YAMLError, ValueError, RecursionError):
        return None
    if not isinstance(raw, Mapping) or raw.get("kind") != kind:
        return None
    return NodeSpec(
        version=str(raw.get("cdiVersion", "0.6.0")),
        shared=_edits(raw),
        devices={
            str(device["name"]): _edits(device)
            for device in raw.get("devices") or ()
            if isinstance(device, Mapping) and "name" in device
        },
    )


def _edits(part: Mapping[str, Any]) -> Edits:
    edits = part.get("containerEdits")
    return edits if isinstance(edits, Mapping) else {}


def _files(edits: Edits) -> Iterator[str]:
    for node in edits.get("deviceNodes") or ():
        if isinstance(node, Mapping):
            yield str(node.get("path"))


def _with_hook(edits: Edits, hook: Path | None) -> Edits:
    hooks = edits.get("hooks")
    if hook is None or not isinstance(hooks, list):
        return edits
    changed = [{**one, "path": str(hook)} if isinstance(one, Mapping) else one for one in hooks]
    return {**edits, "hooks": changed}
