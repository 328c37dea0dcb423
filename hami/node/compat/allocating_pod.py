"""Whom is kubelet's Allocate for? HAMi's answer: the pod that is being bound here.

kubelet names ids and no pod. With HAMi's protocol the scheduler lets one pod at a time be between
its bind and its start (the node lock), and the agent takes that one, its containers in spec order.
What is wrong then (a lock that expired) shows before the container starts, when kubelet's own
record names the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from hami.domain.allocations import ContainerKind
from hami.domain.devices import Grant
from hami.domain.errors import Malformed
from hami.domain.kubernetes.objects import Pod
from hami.domain.profile import VendorProfile
from hami.kube.client import KubeClient
from hami.kube.errors import NOT_FOUND, ApiError
from hami.kube.node_pod import NODE_PODS, NodePod
from hami.kube.resources import NODES
from hami.policy.ports import VendorCalls
from hami.wire import keys
from hami.wire.codecs import NodeLock, containers_of, decode_node_lock, decode_pod_devices
from hami.wire.codecs.pod_devices import Slots

_PHASES = frozenset({"allocating", "success"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NextContainer:
    """The first container whose devices nobody has taken off the list; ``slot`` is its place."""

    slot: int
    container: str
    kind: ContainerKind
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class NothingWaits:
    """The pod has no devices left to take, or never had."""

    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The pod being served, and the lock's text when it was found (empty: there was none)."""

    pod: NodePod
    waiting: NextContainer
    lock: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NonePending:
    """Nobody can be served; ``pod`` is the one whose list is to blame, if there is one."""

    problem: str
    pod: NodePod | None = None
    lock: str = ""


def waiting_container(pod: Pod, vendor: VendorCalls) -> NextContainer | NothingWaits | str:
    """Which container comes next; a text says what is wrong with the list."""
    profile = vendor.profile
    key = profile.pod_annotations.to_allocate
    text = pod.annotations.get(key)
    if text is None:
        return NothingWaits(f"device request not found: no annotation {key}")
    slots = decode_pod_devices(text, annotation=key, vendor=profile.key)
    if isinstance(slots, Malformed):
        return str(slots)
    slot = next((number for number, grants in enumerate(slots) if grants), None)
    if slot is None:
        return NothingWaits("no pending device allocation found: each container has its devices")
    containers = list(pod.each_container())
    asking = [vendor.asks(container, pod) for container, _ in containers]
    owner = containers_of(_before(slots, slot, pod, profile), asking)[slot]
    if owner is None:
        init = len(pod.spec.init_containers or ())
        regular = len(containers) - init
        return f"container index {slot} out of range (init={init}, regular={regular})"
    container, kind = containers[owner]
    return NextContainer(slot=slot, container=container.name, kind=kind, grants=slots[slot])


def _before(slots: Slots, slot: int, pod: Pod, profile: VendorProfile) -> Slots:
    """The slots as they were before any was emptied, which is what the allocated list still says.

    An emptied slot may be that of a container that has its devices, or that asks for none.
    """
    key = profile.pod_annotations.allocated
    whole = decode_pod_devices(pod.annotations.get(key, ""), annotation=key, vendor=profile.key)
    if isinstance(whole, Malformed) or slot >= len(whole) or not whole[slot]:
        return slots
    return whole


def taken_off(text: str, slot: int) -> str:
    """The list without that container's devices; everything else as it was written."""
    slots = text.split(";")
    slots[slot] = ""
    return ";".join(slots)


def has_waiting(pod: Pod, profile: VendorProfile) -> bool:
    """Some container's devices are still on this vendor's list."""
    text = pod.annotations.get(profile.pod_annotations.to_allocate, "")
    return any(slot.strip() for slot in text.split(";"))


def lock_key(profile: VendorProfile) -> str:
    """The annotation of the lock that this vendor's pods need; empty for none."""
    match profile.lock:
        case "mutex":
            return keys.NODE_LOCK
        case "private":
            return profile.node_annotations.lock
        case "none":
            return ""


async def find_pending(
    client: KubeClient, node: str, vendor: VendorCalls, count: int
) -> Pending | NonePending:
    """The pod to serve with ``count`` devices: the lock's owner, else one that is allocating.

    Of several, one that has as many devices to give, the one bound first.

    Raises:
        ApiError: the node or its pods could not be read.
    """
    key = lock_key(vendor.profile)
    lock = (await client.get(NODES, node)).annotations.get(key, "") if key else ""
    owner = await _owner(client, node, lock)
    first = _chosen([owner] if owner else [], vendor, count, lock)
    if isinstance(first, Pending):
        return first
    listed = await client.list(NODE_PODS, field_selector=f"spec.nodeName={node}")
    others = [pod for pod in listed if owner is None or pod.uid != owner.uid]
    found = _chosen(allocating(others, node), vendor, count, lock)
    for answer in (found, first):
        if isinstance(answer, Pending) or answer.pod is not None:
            return answer
    detail = f"; pod {owner.full_name}, which holds its lock: {first.problem}" if owner else ""
    return NonePending(problem=f"no binding pod found on node {node}{detail}", lock=lock)


def allocating(pods: Iterable[NodePod], node: str) -> list[NodePod]:
    """Those between bind and start, the one bound first in front."""
    found = [
        pod
        for pod in pods
        if pod.status is not None
        and pod.status.phase == "Pending"
        and pod.annotations.get(keys.NODE) == node
        and keys.BIND_TIME in pod.annotations
        and pod.annotations.get(keys.BIND_PHASE) in _PHASES
    ]
    return sorted(found, key=lambda pod: (_seconds(pod.annotations[keys.BIND_TIME]), pod.full_name))


async def _owner(client: KubeClient, node: str, lock: str) -> NodePod | None:
    """The pod that holds the lock, if it is bound here: until then kubelet has not heard of it."""
    held = decode_node_lock(lock)
    if not isinstance(held, NodeLock) or not held.pod:
        return None
    try:
        pod = await client.get(NODE_PODS, held.pod, namespace=held.namespace)
    except ApiError as error:
        if error.status == NOT_FOUND:
            return None
        raise
    return pod if pod.spec.node_name == node and not pod.finished else None


def _chosen(
    pods: Sequence[NodePod], vendor: VendorCalls, count: int, lock: str
) -> Pending | NonePending:
    """The first that fits, or why the first does not that still has a list."""
    to_blame: NonePending | None = None
    nothing = ""
    for pod in pods:
        waiting = waiting_container(pod, vendor)
        match waiting:
            case NextContainer() if len(waiting.grants) == count:
                return Pending(pod=pod, waiting=waiting, lock=lock)
            case NextContainer():
                problem = (
                    f"container {waiting.container}: device number not matched: kubelet allocates "
                    f"{count}, the scheduler gave {len(waiting.grants)}"
                )
            case NothingWaits():
                nothing = nothing or waiting.problem
                continue
            case str():
                problem = waiting
            case _:
                assert_never(waiting)
        to_blame = to_blame or NonePending(problem=problem, pod=pod, lock=lock)
    return to_blame or NonePending(problem=nothing, lock=lock)


def _seconds(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
