"""CDI specs of a node, read as a container runtime reads them: afresh, folder by folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hami.domain.slices import DeviceNode, Mount

_SUFFIXES = frozenset({".json", ".yaml"})


@dataclass(slots=True)
class Edits:
    """What CDI devices change in a container; of two mounts at one place the later one stays."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, Mount] = field(default_factory=dict)
    device_nodes: dict[str, DeviceNode] = field(default_factory=dict)
    hooks: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, edits: Mapping[str, Any]) -> None:
        """One ``containerEdits`` of a spec."""
        for text in edits.get("env") or ():
            name, _, value = text.partition("=")
            self.env[name] = value
        for mount in edits.get("mounts") or ():
            path = mount["containerPath"]
            self.mounts[path] = Mount(
                host_path=mount["hostPath"],
                container_path=path,
                read_only="ro" in (mount.get("options") or ()),
            )
        for node in edits.get("deviceNodes") or ():
            path = node["path"]
            self.device_nodes[path] = DeviceNode(
                host_path=node.get("hostPath") or path,
                container_path=path,
                permissions=node.get("permissions") or "rwm",
            )
        self.hooks += edits.get("hooks") or ()


@dataclass(frozen=True, slots=True)
class Unresolvable:
    """Names that no spec knows, or more than one of the same folder."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"CDI device injection failed: unresolvable CDI devices {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class _Found:
    """A device and the spec that it is in."""

    spec: Mapping[str, Any]
    device: Mapping[str, Any]
    file: Path


def resolve(names: Sequence[str], folders: Sequence[Path]) -> Edits | Unresolvable:
    """What these devices change. Later folders precede; what is no spec is passed over."""
    known = _devices(folders)
    missing = tuple(name for name in names if known.get(name) is None)
    if missing:
        return Unresolvable(missing)
    edits = Edits()
    seen: set[Path] = set()
    for name in names:
        found = known[name]
        assert found is not None
        if found.file not in seen:
            seen.add(found.file)
            edits.add(found.spec.get("containerEdits") or {})
        edits.add(found.device.get("containerEdits") or {})
    return edits


def _devices(folders: Sequence[Path]) -> dict[str, _Found | None]:
    """By full name; None where two specs of one folder contradict each other."""
    known: dict[str, _Found | None] = {}
    for folder in folders:
        here: dict[str, _Found | None] = {}
        for file, spec in _specs(folder):
            for device in spec["devices"]:
                name = f"{spec['kind']}={device['name']}"
                here[name] = None if name in here else _Found(spec, device, file)
        known |= here
    return known


def _specs(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    if not folder.is_dir():
        return
    for file in sorted(folder.iterdir()):
        if file.suffix not in _SUFFIXES:
            continue
        try:
            spec = _read(file.read_bytes())
        except (OSError, yaml.YAMLError):
            continue  # containerd notes it, and goes on with the other files
        if _is_valid(spec):
            yield file, spec


def _read(data: bytes) -> Any:
    """JSON is YAML, and most specs are JSON, which is read a hundred times faster."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return yaml.safe_load(data)


def _is_valid(spec: Any) -> bool:
    """Whether a runtime would take it: a spec with a mistake is no spec."""
    try:
        edits = Edits()
        edits.add(spec.get("containerEdits") or {})
        for device in spec["devices"]:
            edits.add(device.get("containerEdits") or {})
        return bool(spec["kind"]) and all(device["name"] for device in spec["devices"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
