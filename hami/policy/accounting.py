"""What a pod that is bound already uses: what its annotations say, and what nobody can know.

Whoever wrote the allocation, the devices are in use: what can be read is charged, and what cannot
be read blocks the devices in question for new pods. A pod that asks for no device is never
charged, whatever its annotations say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hami.domain.allocations import Corrupt, PodAllocation
from hami.domain.objects import Pod
from hami.policy.asking import who_asks
from hami.policy.ports import VendorRegistry
from hami.policy.usage import Unknown
from hami.wire.allocation import decode_allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a pod is charged.

    ``init_ended``: its plain init containers have ended, so what they held is free again (but for
    placements, which stay until the pod is gone). ``unknown`` are devices whose usage cannot be
    read; ``problems`` say why, for people.
    """

    allocation: PodAllocation
    init_ended: bool = False
    unknown: tuple[Unknown, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def running(self) -> PodAllocation:
        """What counts against quota now."""
        return self.allocation.after_init() if self.init_ended else self.allocation


def account_of(pod: Pod, vendors: VendorRegistry) -> Account | None:
    """What a bound pod is charged; None for one that asks for no device.

    Only the spec says which vendors it asks: annotations can be edited at any time.
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
    if lost:
        problems.append(f"what it uses of {', '.join(lost)} is unknown: those take no new pod")
    unknown: list[Unknown] = [(key, None) for key in lost]
    allocation = decoded.allocation
    if decoded.unplaced:
        last = allocation.containers[-1]
        held = replace(last, grants=(*last.grants, *decoded.unplaced))
        allocation = replace(allocation, containers=(*allocation.containers[:-1], held))
    for key in sorted({g.vendor for c in allocation.containers for g in c.grants}):
        restored = vendors[key].restore(pod, allocation)
        if isinstance(restored, Corrupt):
            unknown += [(key, device) for device in restored.device_ids]
            problems.append(restored.problem)
        else:
            allocation = restored
    who = f"Pod {pod.full_name} on {node}"
    return Account(
        allocation=allocation,
        init_ended=pod.init_finished,
        unknown=tuple(unknown),
        problems=tuple(f"{who}: {problem}" for problem in problems),
    )
