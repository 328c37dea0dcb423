"""What a bound pod uses: what its annotations say, and what cannot be known.

The devices are in use whoever wrote the allocation, so what can be read is charged. Where it cannot
be read, what the pod asks for is kept free on every device that the pod may have. A pod holds
nothing until kubelet has started one of its containers: agents start no container without an
allocation. A pod that asks for no device is never charged, whatever its annotations say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from hami.domain.allocations import ContainerAllocation, Corrupt, PodAllocation
from hami.domain.devices import Device, Grant
from hami.domain.kubernetes.objects import Pod
from hami.domain.requests import ContainerRequest, DeviceRequest, Invalid
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, VendorKey
from hami.policy.pods.pod_request import who_asks
from hami.policy.ports import VendorRegistry
from hami.policy.usage import UnknownUsage, most_granted
from hami.wire.allocation import decode_allocation


class Account(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a pod is charged.

    ``init_ended``: the plain init containers have ended, and their devices are free again (except
    placements, which stay until the pod is gone). ``unknown`` are devices whose usage cannot be
    read; ``problems`` say why, for people. ``idle``: something is not counted because no container
    of the pod has started.
    """

    allocation: PodAllocation
    init_ended: bool = False
    unknown: tuple[UnknownUsage, ...] = ()
    problems: tuple[str, ...] = ()
    idle: bool = False

    @property
    def running(self) -> PodAllocation:
        """What counts against quota now."""
        return self.allocation.after_init() if self.init_ended else self.allocation


def account_of(pod: Pod, vendors: VendorRegistry) -> Account | None:
    """What a bound pod is charged; None for a pod that asks for no device.

    Only the spec says which vendors the pod asks: annotations can be edited at any time.
    """
    asked = who_asks(pod, vendors)
    if not asked:
        return None
    node = pod.spec.node_name
    decoded = decode_allocation(pod, node, [vendors[key].profile for key in asked], asked)
    problems = [str(problem) for problem in decoded.problems]
    for key in sorted(decoded.missing):
        annotation = vendors[key].profile.pod_annotations.allocated
        problems.append(f"has no annotation {annotation}")
    lost = sorted(decoded.unreadable | decoded.missing)
    corrupt: list[tuple[VendorKey, DeviceId]] = []
    allocation = decoded.allocation
    if decoded.unplaced:
        last = allocation.containers[-1]
        held = replace(last, grants=(*last.grants, *decoded.unplaced))
        allocation = replace(allocation, containers=(*allocation.containers[:-1], held))
    for key in sorted({g.vendor for c in allocation.containers for g in c.grants}):
        restored = vendors[key].restore(pod, allocation)
        if isinstance(restored, Corrupt):
            corrupt += [(key, device) for device in restored.device_ids]
            problems.append(restored.problem)
        else:
            allocation = restored
    idle = bool(lost or corrupt) and not may_have_started(pod, vendors)
    if lost:
        problems.append(_unread(lost, idle=idle))
    unknown = [may_use(pod, key, vendors) for key in lost]
    unknown += [UnknownUsage(key, device) for key, device in corrupt]
    who = f"Pod {pod.full_name} on {node}" if problems else ""
    return Account(
        allocation=allocation,
        init_ended=pod.init_finished,
        unknown=() if idle else tuple(unknown),
        problems=tuple(f"{who}: {problem}" for problem in problems),
        idle=idle,
    )


def may_have_started(pod: Pod, vendors: VendorRegistry) -> bool:
    """Whether a container that asks for devices may have run, judged by kubelet's reports."""
    asked = who_asks(pod, vendors).values()
    names = [
        c.name for (c, _), *asks in zip(pod.each_container(), *asked, strict=True) if any(asks)
    ]
    return pod.may_have_started(names)


def may_use(
    pod: Pod, vendor: VendorKey, vendors: VendorRegistry, device: DeviceId | None = None
) -> UnknownUsage:
    """The most that the pod uses of this device, or of any device of a vendor."""
    asks: list[ContainerRequest] = []
    for container, kind in pod.each_container():
        request = vendors[vendor].parse_request(container, pod)
        if isinstance(request, Invalid):
            return UnknownUsage(vendor, device)
        requests = () if request is None else (request,)
        asks.append(ContainerRequest(container=container, kind=kind, requests=requests))
    return UnknownUsage(vendor, device, tuple(asks))


def at_most_asked(
    account: Account,
    pod: Pod,
    vendors: VendorRegistry,
    device_of: Callable[[Grant], Device | None],
) -> Account:
    """The account of an allocation that nobody of ours signed: no more than the spec asks for.

    Placements, and grants on devices that are not known, stay as they are.
    """
    containers: list[ContainerAllocation] = []
    for (container, _), held in zip(
        pod.each_container(), account.allocation.containers, strict=True
    ):
        grants: list[Grant] = []
        for vendor in dict.fromkeys([grant.vendor for grant in held.grants]):
            request = vendors[vendor].parse_request(container, pod)
            theirs = [grant for grant in held.grants if grant.vendor == vendor]
            if isinstance(request, DeviceRequest):
                theirs = [
                    _at_most(grant, request, device_of(grant), vendors)
                    for grant in theirs[: request.count]
                ]
            grants += [] if request is None else theirs
        # Most containers ask for what they have: reuse their allocation.
        same = held.grants == tuple(grants)
        containers.append(held if same else replace(held, grants=tuple(grants)))
    if tuple(containers) == account.allocation.containers:
        return account
    allocation = replace(account.allocation, containers=tuple(containers))
    return replace(account, allocation=allocation)


def _at_most(
    grant: Grant, request: DeviceRequest, device: Device | None, vendors: VendorRegistry
) -> Grant:
    if device is None or vendors[grant.vendor].rules(device.mode).placements:
        return grant
    most = most_granted(request, device)
    if grant.memory_mib <= most.memory_mib and grant.cores <= most.cores:
        return grant
    memory = MemoryMiB(min(grant.memory_mib, most.memory_mib))
    return replace(grant, memory_mib=memory, cores=CorePercent(min(grant.cores, most.cores)))


def _unread(lost: Sequence[VendorKey], *, idle: bool) -> str:
    names = ", ".join(lost)
    if idle:
        return (
            f"nothing of it has started, so it counts for nothing of {names}, and no agent starts "
            "it without an allocation; delete it, and leave the node to the scheduler: write "
            "spec.nodeSelector in place of spec.nodeName"
        )
    return (
        f"what it uses of {names} is unknown: what it asks for is kept free on each of the node's "
        "devices until it is gone; delete it, so that it is scheduled again"
    )
