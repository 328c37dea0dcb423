"""The vendor under test as the checks see it: through the registry, on one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

from hypothesis import HealthCheck, settings

from hami.domain.devices import Device
from hami.domain.errors import HamiError, Malformed
from hami.domain.kubernetes.objects import (
    Container,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    Resources,
)
from hami.domain.profile import VendorProfile
from hami.domain.units import PodUid, VendorKey
from hami.hookspecs import PluginConfig
from hami.vendors.boundary import Vendor, VendorFailure
from hami.vendors.registry import Vendors

NO_CONFIG: PluginConfig = MappingProxyType({})

LAW = settings(
    max_examples=40,
    deadline=None,
    database=None,
    derandomize=True,  # the kit gives the same verdict each time
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
"""For every law of the kit."""


class ContractBroken(AssertionError):
    """A plugin does what the contract forbids; the message is one sentence for its author."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One vendor of a plugin, its calls, and a node that carries its devices."""

    plugin: object
    vendors: Vendors
    vendor: Vendor
    node: Node
    config: PluginConfig

    @property
    def profile(self) -> VendorProfile:
        return self.vendor.profile

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that the vendor reads from the node, read anew."""
        return devices_of(self.vendor, self.node)


def subject_of(
    plugin: object, node: Node, *, key: str | None = None, config: PluginConfig = NO_CONFIG
) -> Subject:
    """Register ``plugin`` alone and take its vendor ``key``, or the first by key.

    Raises:
        ContractBroken: the registry rejects the plugin, or it has no such vendor.
    """
    vendors = registry({"plugin": plugin}, config)
    if not vendors:
        raise ContractBroken("hami_vendors names no vendor under the config fixture")
    wanted = VendorKey(key) if key is not None else next(iter(vendors))
    if wanted not in vendors:
        raise ContractBroken(f"there is no vendor {wanted!r}, only {', '.join(vendors)}")
    return Subject(plugin=plugin, vendors=vendors, vendor=vendors[wanted], node=node, config=config)


def registry(plugins: Mapping[str, object], config: PluginConfig = NO_CONFIG) -> Vendors:
    """The real registry, but the first failure of a vendor raises :class:`ContractBroken`."""
    try:
        return Vendors.of(plugins, config, on_failure=_broken)
    except HamiError as error:
        raise ContractBroken(str(error)) from error


def _broken(failure: VendorFailure) -> NoReturn:
    if isinstance(failure.error, ContractBroken):
        raise failure.error  # a hook called by the default of another: tell the inner story
    raise ContractBroken(
        f"{failure.hook} of {failure.vendor} failed: {failure.problem}; "
        f"a hook answers with a value of the contract"
    ) from failure.error


def devices_of(vendor: Vendor, node: Node) -> tuple[Device, ...]:
    """The devices that ``node`` published.

    Raises:
        ContractBroken: its annotations cannot be read.
    """
    found = vendor.node_devices(node)
    if isinstance(found, Malformed):
        raise ContractBroken(f"{vendor.profile.key} cannot read node {node.name}: {found}")
    return tuple(found)


def annotated(node: Node, annotations: Mapping[str, str]) -> Node:
    """``node`` with these annotations and no others."""
    metadata = Metadata(
        name=node.metadata.name, labels=node.metadata.labels, annotations=dict(annotations)
    )
    return Node(metadata=metadata, spec=node.spec, status=node.status)


def node_publishing(
    plugin: object,
    devices: Sequence[Device],
    *,
    name: str = "node-a",
    config: PluginConfig = NO_CONFIG,
) -> Node:
    """A node whose annotations say that it carries ``devices``, of one or several vendors."""
    vendors = registry({"plugin": plugin}, config)
    annotations: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    for key, vendor in vendors.items():
        if own := [device for device in devices if device.vendor == key]:
            annotations |= vendor.node_annotations(own)
            slots = sum(device.slots for device in own)
            allocatable[vendor.profile.resources.count] = str(slots)
    return Node(
        metadata=Metadata(name=name, annotations=annotations),
        status=NodeStatus(allocatable=allocatable),
    )


def container_asking(limits: Mapping[str, str], name: str = "main") -> Container:
    return Container(name=name, resources=Resources(limits=dict(limits)))


def pod_of(*containers: Container, uid: str = "pod-uid-1", **metadata: Any) -> Pod:
    """A pod in namespace ``default`` with these app containers."""
    identity = {"name": "pod-1", "namespace": "default", "uid": PodUid(uid)} | metadata
    return Pod(metadata=Metadata(**identity), spec=PodSpec(containers=list(containers)))
