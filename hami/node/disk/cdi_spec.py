"""CDI specs (Container Device Interface 0.6 and 0.7): read as far as we use them, and our own.

The field names and what is valid follow the CDI specification
(https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md). A runtime refuses a
spec with an unknown field or an invalid value as a whole, so neither is ever passed on.
``intelRdt`` and ``netDevices`` of others are left out: they are about the machine, not about a
device of a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from hami.domain.slices import ContainerEdits

T = TypeVar("T")

Path = Annotated[str, msgspec.Meta(min_length=1)]
Variable = Annotated[str, msgspec.Meta(pattern="^[^=]+=")]
Number = Annotated[int, msgspec.Meta(ge=0)]

_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate")
"""Of every mount of ours, beside ``ro`` or ``rw``; never ``noexec``, libraries are mounted."""


class _Cdi(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base: camelCase, and what is not said is left out."""


class CdiDeviceNode(_Cdi, frozen=True):
    path: Path
    host_path: str = ""
    type: Literal["", "b", "c", "u", "p"] = ""
    major: Number = 0
    minor: Number = 0
    file_mode: Number | None = None
    permissions: Annotated[str, msgspec.Meta(pattern="^(none|[rwm]*)$")] = ""
    uid: Number | None = None
    gid: Number | None = None


class CdiMount(_Cdi, frozen=True):
    host_path: Path
    container_path: Path
    options: tuple[str, ...] | None = None
    type: str = ""


class CdiHook(_Cdi, frozen=True):
    hook_name: Literal[
        "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"
    ]
    path: Path
    args: tuple[str, ...] | None = None
    env: tuple[Variable, ...] | None = None
    timeout: int | None = None


class CdiEdits(_Cdi, frozen=True):
    """``containerEdits``, of a device or of a whole spec."""

    env: tuple[Variable, ...] | None = None
    device_nodes: tuple[CdiDeviceNode, ...] | None = None
    mounts: tuple[CdiMount, ...] | None = None
    hooks: tuple[CdiHook, ...] | None = None
    additional_gids: tuple[Number, ...] | None = None


class CdiDevice(_Cdi, frozen=True):
    name: str
    container_edits: CdiEdits = CdiEdits()


class CdiSpec(_Cdi, frozen=True):
    cdi_version: str
    kind: str
    devices: tuple[CdiDevice, ...]
    container_edits: CdiEdits = CdiEdits()


def slice_spec(
    kind: str, slice_id: str, edits: ContainerEdits, vendor_edits: Sequence[Mapping[str, Any]]
) -> bytes:
    """The spec with one device, ``<kind>=<slice_id>``: the vendor's own edits and ours.

    ``vendor_edits`` are ``containerEdits`` as :meth:`~hami.node.disk.cdi.CdiFolders.edits_of` gives
    them. For the same variable or path in the container ours win, then the later ones. The same
    arguments give the same bytes, in whatever order variables, paths and groups come.

    Raises:
        msgspec.ValidationError: ``vendor_edits`` are no such edits.
    """
    theirs = [msgspec.convert(one, CdiEdits) for one in vendor_edits]
    merged = merge([*theirs, _ours(edits)])
    spec = CdiSpec(
        cdi_version="0.7.0" if merged.additional_gids else "0.6.0",
        kind=kind,
        devices=(CdiDevice(name=slice_id, container_edits=merged),),
    )
    return msgspec.json.format(msgspec.json.encode(spec), indent=1) + b"\n"


def merge(all_edits: Sequence[CdiEdits]) -> CdiEdits:
    """Merge edits; later ones win. Hooks keep their order, because they depend on it."""
    gids = {gid for edits in all_edits for gid in edits.additional_gids or () if gid}
    hooks = [hook for edits in all_edits for hook in edits.hooks or ()]
    return CdiEdits(
        env=_last(_name, [text for edits in all_edits for text in edits.env or ()]),
        device_nodes=_last(_node, [node for e in all_edits for node in e.device_nodes or ()]),
        mounts=_last(_target, [mount for e in all_edits for mount in e.mounts or ()]),
        hooks=tuple(hook for i, hook in enumerate(hooks) if hook not in hooks[:i]) or None,
        additional_gids=tuple(sorted(gids)) or None,
    )


def _last(key: Callable[[T], str], items: Iterable[T]) -> tuple[T, ...] | None:
    """The last of each key, by key."""
    kept = {key(item): item for item in items}
    return tuple(kept[name] for name in sorted(kept)) or None


def _name(variable: str) -> str:
    return variable.partition("=")[0]


def _node(node: CdiDeviceNode) -> str:
    return str(PurePosixPath(node.path))


def _target(mount: CdiMount) -> str:
    return str(PurePosixPath(mount.container_path))


def _ours(edits: ContainerEdits) -> CdiEdits:
    return CdiEdits(
        env=tuple(f"{name}={value}" for name, value in edits.env.items()),
        device_nodes=tuple(
            CdiDeviceNode(
                path=node.container_path, host_path=node.host_path, permissions=node.permissions
            )
            for node in edits.device_nodes
        ),
        mounts=tuple(
            CdiMount(
                host_path=mount.host_path,
                container_path=mount.container_path,
                options=("ro" if mount.read_only else "rw", *_OPTIONS),
            )
            for mount in edits.mounts
        ),
    )
