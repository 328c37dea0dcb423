"""Short ways to write manifests, and to simulate them with one made-up vendor."""

from __future__ import annotations

import json
from typing import Any

from hami.domain.devices import Device
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, VendorKey
from hami.policy.pods.admission import AdmissionSettings
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.simulate.manifests import Manifests, read_manifests
from hami.simulate.result import Simulation
from hami.simulate.simulation import Settings, simulate
from hami.vendors.registry import Vendors
from hami.wire.codecs import encode_register_json

ACME_YAML = """
profiles:
- key: ACME
  liveness: capacity
  resources: {count: acme.com/gpu, memory: acme.com/mem, cores: acme.com/cores}
  node_annotations: {register: acme.com/register}
  pod_annotations: {to_allocate: acme.com/to-allocate, allocated: acme.com/allocated}
"""


def the_vendors(**more: object) -> Vendors:
    return Vendors.of({"acme": ProfileVendor(ACME_YAML), **more})


def register(node: str, *, devices: int, memory: int, slots: int = 10) -> str:
    return encode_register_json(
        [
            Device(
                id=DeviceId(f"{node}-{index}"),
                vendor=VendorKey("ACME"),
                index=index,
                model="ACME One",
                slots=slots,
                memory_mib=MemoryMiB(memory),
                cores=CorePercent(100),
            )
            for index in range(devices)
        ]
    )


def a_node(
    name: str = "n1",
    *,
    devices: int = 1,
    memory: int = 1000,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    allocatable: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    own = {"acme.com/register": register(name, devices=devices, memory=memory)} if devices else {}
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": own | (annotations or {})},
        "spec": spec,
    }
    if allocatable is not None:
        node["status"] = {"allocatable": allocatable}
    return node


def a_container(name: str = "main", **limits: Any) -> dict[str, Any]:
    """A container; ``gpu=1, mem=100`` are limits of the made-up vendor."""
    quantities = {f"acme.com/{resource}": value for resource, value in limits.items()}
    return {"name": name, "resources": {"limits": quantities}}


def a_pod(
    name: str = "p1",
    *,
    namespace: str = "default",
    containers: list[dict[str, Any]] | None = None,
    limits: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    created: str | None = None,
    phase: str | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    asked = {"gpu": 1, "mem": 100} if limits is None else limits
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": annotations,
            "creationTimestamp": created,
            **(metadata or {}),
        },
        "spec": {"containers": containers or [a_container(**asked)], **spec},
        "status": {"phase": phase} if phase else None,
    }


def a_running_pod(name: str, node: str, device: str, *, mem: int, **more: Any) -> dict[str, Any]:
    allocated = {"acme.com/allocated": f"{device},ACME,{mem},0:;"}
    limits = more.pop("limits", {"gpu": 1, "mem": mem})
    return a_pod(name, nodeName=node, annotations=allocated, limits=limits, **more)


def a_workload(kind: str, name: str = "web", pod: dict[str, Any] | None = None, **spec: Any) -> Any:
    template = pod or a_pod()
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "template": {
                "metadata": {"annotations": template["metadata"]["annotations"]},
                "spec": template["spec"],
            },
            **spec,
        },
    }


def a_quota(name: str = "team", namespace: str = "default", **limits: Any) -> dict[str, Any]:
    """A quota; ``mem=300`` means limits.acme.com/mem."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": {f"limits.acme.com/{key}": value for key, value in limits.items()}},
    }


def read(*objects: Any) -> Manifests:
    return read_manifests([("cluster.json", "\n".join(map(json.dumps, objects)))])


def run(*objects: Any, vendors: Vendors | None = None, **admission: Any) -> Simulation:
    settings = Settings(admission=AdmissionSettings(**admission))
    return simulate(vendors or the_vendors(), read(*objects), settings)


def nodes_of(result: Simulation) -> dict[str, str]:
    """The node of each pod."""
    return {p.pod.name: p.allocation.node for p in result.placed}


def used_memory(result: Simulation) -> dict[str, int]:
    """The used memory by device."""
    return {d.state.device.id: d.state.usage.memory_mib for d in result.devices}
