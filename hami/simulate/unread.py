"""Requests and annotations that no installed vendor reads: a slip, or a plugin that is missing.

Kubernetes would leave such a pod pending without a word from us, and the simulation would count it
as a pod without devices. So it warns once about each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hami.domain.kubernetes import quantity
from hami.domain.kubernetes.objects import Container, Node, Pod
from hami.domain.units import VendorKey
from hami.vendors.registry import Vendors

_REGISTER = re.compile(r"hami\.io/node-\S*register\S*")


class UnreadRequests:
    """Remembers the workloads it has warned about; a workload's pods ask alike."""

    def __init__(self, vendors: Vendors) -> None:
        self._vendors = vendors
        self._owners = {
            name: key for key, v in vendors.items() for name in v.profile.resources.all_names
        }
        self._seen: set[str] = set()

    def of_pod(self, pod: Pod) -> list[str]:
        """Warnings about an admitted or a running pod; none for a workload's later pods."""
        origin = _origin(pod)
        if origin in self._seen:
            return []
        self._seen.add(origin)
        return [
            f"{origin}: container {container.name} asks for {resource}, {problem}"
            for container, _ in pod.each_container()
            for resource in _extended(container)
            if (problem := self._problem(pod, container, resource))
        ]

    def _problem(self, pod: Pod, container: Container, resource: str) -> str:
        key = self._owners.get(resource)
        if key is None:
            return (
                "which no installed vendor knows: it is not simulated; install the vendor's "
                "plugin or correct the name"
            )
        if self._vendors[key].parse_request(container, pod) is not None:
            return ""
        return f"but vendor {key} does not read it: {self._remedy(key, container, resource)}"

    def _remedy(self, key: VendorKey, container: Container, resource: str) -> str:
        profile = self._vendors[key].profile
        if profile.request_source == "limits" and resource not in container.limits:
            return "write it into the limits"
        return f"ask for {profile.resources.count} too, or correct the name"


def unclaimed_registers(nodes: Iterable[Node], vendors: Vendors) -> Iterator[str]:
    """One warning for each register annotation that belongs to no installed vendor."""
    claimed = {profile.node_annotations.register for profile in vendors.profiles}
    found: dict[str, list[str]] = {}
    for node in nodes:
        for key in node.annotations:
            if key not in claimed and _REGISTER.fullmatch(key):
                found.setdefault(key, []).append(node.name)
    for key, names in found.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield (
            f"Node {names[0]}{more}: annotation {key} belongs to no installed vendor, so its "
            f"devices are not simulated; install the vendor's plugin or correct the key"
        )


def _origin(pod: Pod) -> str:
    """The author's object with the requests: the workload, or the pod itself."""
    for owner in pod.metadata.owner_references or ():
        if owner.controller:
            return f"{owner.kind} {pod.namespace}/{owner.name}"
    return f"Pod {pod.full_name}"


def _extended(container: Container) -> list[str]:
    """Extended resources that the container asks for, by name; Kubernetes' own are none."""
    asked = {**container.requests, **container.limits}
    return sorted(name for name, text in asked.items() if _is_extended(name) and not _zero(text))


def _is_extended(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def _zero(text: str) -> bool:
    read = quantity.parse(text)
    return not isinstance(read, quantity.BadQuantity) and read.value == 0
