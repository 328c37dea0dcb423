"""The agent's own CDI spec of the node's devices, made from the node's.

The node's own spec knows the driver. Ours says the same under the ids that grants use, also for
MIG devices that were made after nvidia-ctk ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hami.domain.errors import HamiError
from hami.domain.units import DeviceId
from hami_nvidia.devices.places import DevicePlace, place_of
from hami_nvidia.handover.device_files import GPU_KIND, below, dev_root
from hami_nvidia.handover.files import write_whole
from hami_nvidia.handover.hardware import Hardware
from hami_nvidia.handover.node_cdi import Edits, NodeCdiSpec
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
        named = {str(place.id): place for place in known_places(needed, hardware)}
        write_gpus(spec, named, hardware.settings)


def known_places(needed: Sequence[DeviceId], hardware: Hardware) -> list[DevicePlace]:
    """A device whose files are not all known is left out, for the others' sake."""
    found = hardware.places()
    for id in needed:
        place_of(id, found)
    return [place for place in found.values() if not place.problem]


def write_gpus(
    spec: NodeCdiSpec, places: Mapping[str, DevicePlace], settings: NodeSettings
) -> None:
    """A GPU has the edits of the node's spec, a MIG device its files alone."""
    root, hook = dev_root(settings), settings.cdi_hook
    devices = []
    for name, place in places.items():
        own = spec.of_file(place.paths[0]) if len(place.paths) == 1 else None
        edits = own or {
            "deviceNodes": [
                {"path": path, "hostPath": str(below(root, path))} for path in place.paths
            ]
        }
        devices.append({"name": name, "containerEdits": _with_hook(edits, hook)})
    content = {
        "cdiVersion": spec.version,
        "kind": GPU_KIND,
        "devices": devices,
        "containerEdits": _with_hook(spec.shared, hook),
    }
    write_spec(content, settings)


def _with_hook(edits: Edits, hook: Path | None) -> Edits:
    hooks = edits.get("hooks")
    if hook is None or not isinstance(hooks, list):
        return edits
    changed = [{**one, "path": str(hook)} if isinstance(one, Mapping) else one for one in hooks]
    return {**edits, "hooks": changed}


def write_spec(spec: Mapping[str, Any], settings: NodeSettings) -> None:
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
