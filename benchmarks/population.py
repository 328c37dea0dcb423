"""The cluster that the service is measured on, with as many and as long objects as real ones.

A node is some 5 KB of JSON, a pod 7 KB; names are as long as those of a cloud's nodes. Slices are
placed at random, but the same in every run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Device, Grant
from hami.domain.kubernetes.objects import Node, Pod
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, VendorKey
from hami.policy.pods.accounting import account_of
from hami.policy.tables.cluster_table import ClusterTable
from hami.scheduler.bookings.decision import FIRST_GENERATION, annotations_of
from hami.signing import Signer
from hami.vendors.registry import Vendors, load_vendors
from hami.wire import keys

Json = dict[str, Any]

DEVICES_PER_NODE = 8
SCHEDULER = "hami-scheduler"
NVIDIA = VendorKey("NVIDIA")
NAMESPACE = "default"
MEMORY_MIB = 81559

Limits = Mapping[str, str]

A_SLICE: Limits = MappingProxyType(
    {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000", "nvidia.com/gpucores": "10"}
)
"""Fits on most devices."""
TOO_MUCH_MEMORY: Limits = MappingProxyType({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "90000"})
"""Fits on no node, and every node gives the same reason."""
WHOLE_NODE: Limits = MappingProxyType({"nvidia.com/gpu": "8", "nvidia.com/gpucores": "100"})
"""Fits on no node, because each has a slice on some device: nodes give different reasons."""


def node_name(number: int) -> str:
    return f"gpu-node-{number:05}.example.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A cluster's size; at least as many ``pods`` as nodes, all bound."""

    nodes: int = 5000
    pods: int = 20_000


class Population:
    """Makes the objects. ``signer`` signs every second bound pod."""

    def __init__(self, size: Size, signer: Signer) -> None:
        self.size = size
        self._vendors: Vendors = load_vendors()
        self._signer = signer
        self._table = ClusterTable(self._vendors)

    def nodes(self) -> Iterator[Json]:
        for number in range(self.size.nodes):
            devices = [_device(number, index) for index in range(DEVICES_PER_NODE)]
            annotations = dict(self._vendors[NVIDIA].node_annotations(devices))
            annotations[keys.NODE_IDENTITY] = "NVIDIA=simulated"
            node = a_node(node_name(number), annotations)
            self._table.set_node(msgspec.convert(node, Node))
            yield node

    def pods(self) -> Iterator[Json]:
        """Bound pods, one slice each; the first ones go to one node each. Make nodes first."""
        dice = random.Random(0)
        for number in range(self.size.pods):
            node = number if number < self.size.nodes else dice.randrange(self.size.nodes)
            device = DeviceId(_device_id(node, dice.randrange(DEVICES_PER_NODE)))
            pod = a_pod(f"bound-{number:05}", A_SLICE)
            allocation = PodAllocation(node=node_name(node), containers=(_slice(device),))
            written = annotations_of(
                msgspec.convert(pod, Pod), allocation, self._table, datetime.now(UTC)
            )
            pod["metadata"]["annotations"] |= written
            pod["spec"]["nodeName"] = allocation.node
            pod["status"] = {"phase": "Running"}
            yield pod

    def signature(self, pod: Json) -> str:
        """The signature of a bound pod that has its uid; empty for pods that stay unsigned."""
        if int(pod["metadata"]["name"].rpartition("-")[2]) % 2:
            return ""
        account = account_of(msgspec.convert(pod, Pod), self._vendors)
        assert account is not None
        return self._signer.sign(pod["metadata"]["uid"], account.allocation, FIRST_GENERATION)


def _device_id(node: int, index: int) -> str:
    return f"GPU-{node:08x}-{index:04x}-4a6b-9c1d-0123456789ab"


def _device(node: int, index: int) -> Device:
    return Device(
        id=DeviceId(_device_id(node, index)),
        vendor=NVIDIA,
        index=index,
        model="NVIDIA-NVIDIA H100 80GB HBM3",
        slots=10,
        memory_mib=MemoryMiB(MEMORY_MIB),
        numa=index // 4,
        mode="hami-core",
    )


def _slice(device: DeviceId) -> ContainerAllocation:
    grant = Grant(device_id=device, vendor=NVIDIA, memory_mib=MemoryMiB(4096), cores=CorePercent(5))
    return ContainerAllocation(name="main", kind=ContainerKind.APP, grants=(grant,))


def a_node(name: str, annotations: dict[str, str]) -> Json:
    """A node with the labels, conditions and images that a kubelet reports."""
    capacity = {
        "cpu": "192", "memory": "2113407800Ki", "ephemeral-storage": "1Ti", "pods": "250",
        "nvidia.com/gpu": str(10 * DEVICES_PER_NODE),
    }  # fmt: skip
    conditions = [
        {"type": kind, "status": status, "reason": f"Kubelet{kind}", "message": f"about {kind}",
         "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind, status in (("Ready", "True"), ("MemoryPressure", "False"),
                             ("DiskPressure", "False"), ("PIDPressure", "False"))
    ]  # fmt: skip
    images = [
        {"names": [f"registry.example.com/team/image-{n}@sha256:{n:064x}"], "sizeBytes": n << 20}
        for n in range(20)
    ]
    labels = {f"topology.example.com/label-{n}": f"value-{n}" for n in range(12)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels | {"kubernetes.io/hostname": name},
            "annotations": annotations,
        },
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": conditions,
            "images": images,
        },
    }


def a_pod(name: str, limits: Limits) -> Json:
    """A pod with the environment, probes and volumes of a served model: 7 KB when stored."""
    container = {
        "name": "main",
        "image": "registry.example.com/team/serve:1.2.3",
        "resources": {"limits": {"cpu": "4", "memory": "16Gi", **limits}},
        "env": [
            {"name": f"SETTING_{n:02}", "value": f"a value of common length {n:02}"}
            for n in range(60)
        ],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
        "volumeMounts": [{"name": f"volume-{n}", "mountPath": f"/data/{n}"} for n in range(10)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {f"app.example.com/label-{n}": f"value-{n}" for n in range(8)},
            "annotations": {f"example.com/note-{n}": "x" * 60 for n in range(12)},
        },
        "spec": {
            "schedulerName": SCHEDULER,
            "containers": [container],
            "volumes": [{"name": f"volume-{n}", "emptyDir": {}} for n in range(10)],
        },
    }
