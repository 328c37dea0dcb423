"""What a bound pod is charged, and what a later edit of its annotations may change of that.

A charge that was made is never lowered by an edit, because the devices are in use either way;
only a newer signed allocation (a live resize) replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hami.domain.allocations import ContainerAllocation, PodAllocation
from hami.domain.devices import Grant
from hami.domain.objects import Pod
from hami.domain.units import CorePercent, MemoryMiB
from hami.plugins import Vendors
from hami.policy.accounting import Account
from hami.policy.usage import Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one bound pod is charged now.

    ``pod`` as it was read last, ``generation`` of ``signature``, which was verified last; 0 for an
    allocation that is not signed.
    """

    pod: Pod
    account: Account
    generation: int = 0
    signature: str = ""

    def vouches_for(self, account: Account, signature: str) -> bool:
        """This is what was verified before."""
        return bool(signature) and (self.signature, self.account.allocation) == (
            signature,
            account.allocation,
        )

    def reads_alike(self, pod: Pod) -> bool:
        """The pod says nothing that would change the charge."""
        return (
            pod.annotations == self.pod.annotations
            and pod.init_finished == self.account.init_ended
            and pod.spec.active_deadline_seconds == self.pod.spec.active_deadline_seconds
        )

    def edited(self, pod: Pod, account: Account) -> Charge:
        """After an edit that no newer signature vouches for: at least what was charged before.

        What was known once stays known, so that nobody blocks a node by editing a pod of theirs.
        """
        containers = tuple(
            _at_least(old, new)
            for old, new in zip(
                self.account.allocation.containers, account.allocation.containers, strict=True
            )
        )
        allocation = replace(self.account.allocation, containers=containers)
        edited = replace(account, allocation=allocation, unknown=self.account.unknown)
        return replace(self, pod=pod, account=edited)


def blocked(account: Account, problem: str) -> Account:
    """The account of a pod whose signature is wrong: the vendors it uses take no new pod there."""
    used = {grant.vendor for grant in account.allocation.grants}
    unknown: list[Unknown] = [(vendor, None) for vendor in sorted(used)]
    return replace(
        account,
        unknown=tuple(dict.fromkeys((*account.unknown, *unknown))),
        problems=tuple(dict.fromkeys((*account.problems, problem))),
    )


def noted(account: Account, problem: str) -> Account:
    """The account as it is, with something for its owner to know."""
    return replace(account, problems=tuple(dict.fromkeys((*account.problems, problem))))


def _at_least(old: ContainerAllocation, new: ContainerAllocation) -> ContainerAllocation:
    """Every grant of both; where both have a device, the larger of each amount."""
    left = list(new.grants)
    grants: list[Grant] = []
    for grant in old.grants:
        place = next((i for i, g in enumerate(left) if _same_device(g, grant)), None)
        grants.append(grant if place is None else _larger(grant, left.pop(place)))
    return replace(old, grants=(*grants, *left))


def _same_device(one: Grant, other: Grant) -> bool:
    return (one.vendor, one.device_id) == (other.vendor, other.device_id)


def _larger(old: Grant, new: Grant) -> Grant:
    memory = MemoryMiB(max(old.memory_mib, new.memory_mib))
    return replace(old, memory_mib=memory, cores=CorePercent(max(old.cores, new.cores)))


def known_part(allocation: PodAllocation, vendors: Vendors) -> PodAllocation:
    """Without the grants of vendors that are no more; nobody can be given their devices either."""
    return replace(
        allocation,
        containers=tuple(
            replace(c, grants=tuple(g for g in c.grants if g.vendor in vendors))
            for c in allocation.containers
        ),
    )
