"""What a container gets when it is created: from its image's absence, kubelet and CDI."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hami.domain.kubernetes.objects import Container
from hami.domain.slices import DeviceNode, Mount
from hami.domain.units import PodUid
from hami.node.kubelet.api import v1beta1_pb2 as api
from hami_lab.kubelet.runtime.cdi import Edits, Unresolvable, resolve

LARGEST_KEPT = 64 << 10
"""Bytes of a mounted file that are kept: a limits page, not a library."""


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


def _no_files() -> Mapping[str, bytes]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedContainer:
    """One start of a container, with what was really injected into it.

    ``attempt`` counts its starts from 0; ``files`` are the contents of small files that are
    mounted read-only, as they were then, by their path in the container; ``missing`` the host paths
    that were not there.
    """

    pod_uid: PodUid
    namespace: str
    pod: str
    container: str
    attempt: int
    id: str
    pid: int
    at: float
    env: Mapping[str, str] = field(default_factory=_nothing)
    mounts: tuple[Mount, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=_nothing)
    hooks: tuple[Mapping[str, Any], ...] = ()
    files: Mapping[str, bytes] = field(default_factory=_no_files, repr=False)
    missing: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """``namespace/pod/container``."""
        return f"{self.namespace}/{self.pod}/{self.container}"


@dataclass(frozen=True, slots=True)
class Given:
    """What a container is given, before it has an id."""

    env: Mapping[str, str]
    mounts: tuple[Mount, ...]
    device_nodes: tuple[DeviceNode, ...]
    cdi_devices: tuple[str, ...]
    annotations: Mapping[str, str]
    hooks: tuple[Mapping[str, Any], ...]


def given(
    container: Container,
    answers: Sequence[api.ContainerAllocateResponse],
    folders: Sequence[Path],
) -> Given | Unresolvable:
    """Put together kubelet's part and that of CDI.

    The order is kubelet's and the runtime's: a plugin's environment, over it the container's own,
    over that what CDI devices say.
    """
    env: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    nodes: dict[str, DeviceNode] = {}
    annotations: dict[str, str] = {}
    names: dict[str, None] = {}
    for answer in answers:
        env |= answer.envs
        annotations |= answer.annotations
        mounts |= {mount.container_path: _mount(mount) for mount in answer.mounts}
        nodes |= {node.container_path: _node(node) for node in answer.devices}
        names |= dict.fromkeys(device.name for device in answer.cdi_devices)
    env |= {one.name: one.value for one in container.env or ()}
    edits: Edits | Unresolvable = resolve(list(names), folders) if names else Edits()
    if isinstance(edits, Unresolvable):
        return edits
    return Given(
        env=env | edits.env,
        mounts=tuple((mounts | edits.mounts).values()),
        device_nodes=tuple((nodes | edits.device_nodes).values()),
        cdi_devices=tuple(names),
        annotations=annotations,
        hooks=tuple(edits.hooks),
    )


def contents(mounts: Sequence[Mount]) -> tuple[Mapping[str, bytes], tuple[str, ...]]:
    """What small files that cannot be written to hold now, and the host paths that are missing."""
    files: dict[str, bytes] = {}
    missing = []
    for mount in mounts:
        path = Path(mount.host_path)
        try:
            about = path.stat()
            small = stat.S_ISREG(about.st_mode) and about.st_size <= LARGEST_KEPT
            if mount.read_only and small:
                files[mount.container_path] = path.read_bytes()
        except OSError:
            missing.append(mount.host_path)
    return files, tuple(missing)


def _mount(mount: api.Mount) -> Mount:
    return Mount(
        host_path=mount.host_path, container_path=mount.container_path, read_only=mount.read_only
    )


def _node(node: api.DeviceSpec) -> DeviceNode:
    return DeviceNode(
        host_path=node.host_path, container_path=node.container_path, permissions=node.permissions
    )
