"""What a node's agents report of it: its capacity, that it is ready, and its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from hami.domain.errors import Malformed
from hami.domain.kubernetes.objects import Node, NodeStatus
from hami.hookspecs import PluginConfig
from hami.kube.resources import Resource
from hami.vendors.registry import Vendors
from hami.wire import keys
from hami.wire.node_identity import SIMULATED
from hami_lab.kubelet.container import timestamp
from hami_lab.kubelet.devices.devices import Counts
from hami_lab.live import LiveCondition

CAPACITY: Mapping[str, str] = MappingProxyType(
    {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}
)
"""Of a node that does not say what it has."""


NODE_INFO: Mapping[str, str] = MappingProxyType(
    {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2.4.2"}
)
"""Of a node whose kubelet speaks to device plugins: they look at it."""


class LiveNodeStatus(NodeStatus, frozen=True):
    conditions: list[LiveCondition] | None = None
    node_info: dict[str, Any] | None = None


class LiveNode(Node, frozen=True):
    status: LiveNodeStatus | None = None

    @property
    def ready(self) -> bool:
        conditions = (self.status.conditions if self.status else None) or ()
        return any(c.type == "Ready" and c.status == "True" for c in conditions)

    @property
    def tainted(self) -> bool:
        """It still bears the taint that every node is born with, until it has been seen ready."""
        taints = (self.spec.taints if self.spec else None) or ()
        return any(taint.key == "node.kubernetes.io/not-ready" for taint in taints)


LIVE_NODES = Resource(
    group_version="v1", plural="nodes", kind="Node", type=LiveNode, namespaced=False
)


class NodeReports:
    """Works out what is still missing on a node, device annotations of plugins included.

    It remembers which annotations and resources are its own, to tell them from the node's.
    """

    def __init__(self, vendors: Vendors, config: PluginConfig) -> None:
        self._vendors = vendors
        self._config = config
        self._annotations: dict[str, Mapping[str, str]] = {}

    def forget(self, name: str) -> None:
        self._annotations.pop(name, None)

    def patch(self, node: LiveNode, now: float, counts: Counts | None = None) -> dict[str, Any]:
        """A strategic merge patch for the node's status; empty when nothing is missing.

        Annotations and labels go with it: the status subresource takes those too. ``counts`` are
        what device plugins told the node's kubelet; their agents write the annotations.

        Raises:
            ConfigError: the node asks for simulated devices that no plugin knows.
        """
        annotations = self._new_annotations(node) if counts is None else {}
        merged = {**node.annotations, **annotations}
        texts = {key: text for key, text in merged.items() if text is not None}
        equipped = msgspec.structs.replace(
            node, metadata=msgspec.structs.replace(node.metadata, annotations=texts)
        )
        metadata: dict[str, Any] = {"annotations": annotations} if annotations else {}
        if "kubernetes.io/hostname" not in node.labels:
            metadata["labels"] = {"kubernetes.io/hostname": node.name}
        if counts is None:
            simulated = self._devices(equipped)
            counts = Counts(simulated, simulated)
            info: Mapping[str, str] = {}
        else:
            info = NODE_INFO
        status = _status(equipped, now, counts, info)
        return ({"metadata": metadata} if metadata else {}) | status

    def _new_annotations(self, node: LiveNode) -> dict[str, str | None]:
        """What the plugins' annotations have become; None for one that is no more."""
        given = self._annotations.get(node.name, {})
        plain = {key: text for key, text in node.annotations.items() if key not in given}
        bare = msgspec.structs.replace(
            node, metadata=msgspec.structs.replace(node.metadata, annotations=plain)
        )
        wanted = dict(self._vendors.simulated_annotations(bare, self._config))
        registers = (vendor.profile.node_annotations.register for vendor in self._vendors.values())
        identity = ",".join(
            f"{key}={SIMULATED}"
            for key, register in zip(self._vendors, registers, strict=True)
            if register in wanted
        )
        if identity and keys.NODE_IDENTITY not in plain:
            wanted[keys.NODE_IDENTITY] = identity
        self._annotations[node.name] = wanted
        changed: dict[str, str | None] = {
            key: text for key, text in wanted.items() if node.annotations.get(key) != text
        }
        lost = [key for key in given if key not in wanted and key in node.annotations]
        return changed | dict.fromkeys(lost)

    def _devices(self, node: LiveNode) -> Mapping[str, int]:
        """What device plugins would report: the slots of each vendor's healthy devices."""
        ours = self._annotations.get(node.name, {})
        reported: dict[str, int] = {}
        for vendor in self._vendors.values():
            profile = vendor.profile
            resource = profile.resources.count
            listed = resource in ((node.status.allocatable if node.status else None) or {})
            if listed and profile.node_annotations.register not in ours:
                continue
            devices = vendor.node_devices(node)
            if not isinstance(devices, Malformed) and devices:
                reported[resource] = sum(d.slots for d in devices if d.healthy)
        return reported


def _status(node: LiveNode, now: float, counts: Counts, info: Mapping[str, str]) -> dict[str, Any]:
    status = node.status or LiveNodeStatus()
    capacity = dict(status.capacity or status.allocatable or CAPACITY)
    allocatable = dict(status.allocatable or capacity)
    capacity |= {resource: str(count) for resource, count in counts.capacity.items()}
    allocatable |= {resource: str(count) for resource, count in counts.allocatable.items()}
    patch: dict[str, Any] = {}
    if capacity != status.capacity:
        patch["capacity"] = capacity
    if allocatable != status.allocatable:
        patch["allocatable"] = allocatable
    if info and not info.items() <= (status.node_info or {}).items():
        patch["nodeInfo"] = dict(info)
    if not node.ready:
        patch["conditions"] = _conditions(timestamp(now))
    return {"status": patch} if patch else {}


def _conditions(now: str) -> Sequence[Mapping[str, str]]:
    """What a healthy kubelet says."""
    return [
        {
            "type": type_,
            "status": "True" if type_ == "Ready" else "False",
            "reason": reason,
            "message": f"the simulated kubelet reports {reason}",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for type_, reason in (
            ("MemoryPressure", "KubeletHasSufficientMemory"),
            ("DiskPressure", "KubeletHasNoDiskPressure"),
            ("PIDPressure", "KubeletHasSufficientPID"),
            ("Ready", "KubeletReady"),
        )
    ]
