"""What a pod that is bound already uses: what its annotations say, and what nobody can know.

Whoever wrote the allocation, the devices are in use: what can be read is charged, and what cannot
be read blocks the devices in question for new pods. A pod that asks for no device is never
charged, whatever its annotations say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hami.domain.allocations import Corrupt, PodAllocation
from hami.domain.objects import Pod
from hami.domain.requests import Invalid, PodRequest
from hami.domain.scheduling import SchedulingPolicy
from hami.policy.cluster import Unknown
from hami.policy.filter import parse_pod
from hami.policy.ports import VendorRegistry
from hami.wire.allocation import decode_allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """``unknown`` are devices whose usage cannot be read; ``problems`` say why, for people."""

    allocation: PodAllocation
    unknown: tuple[Unknown, ...] = ()
    problems: tuple[str, ...] = ()


def account_of(pod: Pod, vendors: VendorRegistry) -> Account | None:
    """What a bound pod is charged; None for one that asks for no device."""
    request = parse_pod(pod, vendors, SchedulingPolicy())
    # A request that cannot be read does not say which vendors it meant: only annotations do.
    asked = set() if isinstance(request, Invalid) else set(request.vendors)
    if not asked and isinstance(request, PodRequest):
        return None
    node = pod.spec.node_name
    decoded = decode_allocation(pod, node, [vendors[key].profile for key in vendors])
    problems = [str(problem) for problem in decoded.problems]
    for key in sorted(decoded.missing & asked):
        annotation = vendors[key].profile.pod_annotations.allocated
        problems.append(f"has no annotation {annotation}")
    lost = sorted(decoded.unreadable | (decoded.missing & asked))
    if lost:
        problems.append(f"what it uses of {', '.join(lost)} is unknown: those take no new pod")
    unknown: list[Unknown] = [(key, None) for key in lost]
    allocation = decoded.allocation
    if decoded.unplaced:
        last = allocation.containers[-1]
        held = replace(last, grants=(*last.grants, *decoded.unplaced))
        allocation = replace(allocation, containers=(*allocation.containers[:-1], held))
    for key in sorted({grant.vendor for grant in allocation.grants}):
        restored = vendors[key].restore(pod, allocation)
        if isinstance(restored, Corrupt):
            unknown += [(key, device) for device in restored.device_ids]
            problems.append(restored.problem)
        else:
            allocation = restored
    if pod.init_finished:
        allocation = allocation.after_init()
    who = f"Pod {pod.full_name} on {node}"
    return Account(
        allocation=allocation,
        unknown=tuple(unknown),
        problems=tuple(f"{who}: {problem}" for problem in problems),
    )
