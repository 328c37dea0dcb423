"""What a bound pod is charged, and what a later edit of its annotations may change of that.

A charge that was made is never lowered by an edit, because the devices are in use either way;
only a newer signed allocation (a live resize) replaces it. Nor does one that was signed grow by an
edit for longer than it takes to find that nobody signed that.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.policy.pods.accounting import Account, may_have_started, may_use
from hami.policy.ports import VendorRegistry
from hami.policy.usage import UnknownUsage, at_least


class Charge(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one bound pod is charged now.

    ``pod`` as it was read last. ``verified`` is the allocation that was verified last, as the
    ``generation`` of ``signature``; None, 0 and empty for one that is not signed. ``strange``: the
    scheduler has keys, and none of them signed it.
    """

    pod: Pod
    account: Account
    generation: int = 0
    signature: str = ""
    verified: PodAllocation | None = None
    strange: bool = False

    @classmethod
    def signed(cls, pod: Pod, account: Account, generation: int, signature: str) -> Charge:
        """Of a pod whose account is what was verified."""
        return cls(
            pod=pod,
            account=account,
            generation=generation,
            signature=signature,
            verified=account.allocation,
        )

    def vouches_for(self, account: Account, signature: str) -> bool:
        """This is what was verified before."""
        return bool(signature) and (self.signature, self.verified) == (
            signature,
            account.allocation,
        )

    def reads_alike(self, pod: Pod) -> bool:
        """The pod says nothing that would change the charge."""
        return (
            not self.account.idle  # Until something of it has started.
            and pod.annotations == self.pod.annotations
            and pod.init_finished == self.account.init_ended
            and pod.spec.active_deadline_seconds == self.pod.spec.active_deadline_seconds
        )

    def edited(self, pod: Pod, account: Account) -> Charge:
        """After an edit that no newer signature vouches for: at least what was verified, or else
        what was charged before.

        What was known once stays known, so that nobody blocks a node by editing a pod of theirs;
        what was not counted because nothing had started is counted when it has.
        """
        allocation = at_least(self.verified or self.account.allocation, account.allocation)
        idle = self.account.idle and account.idle
        unknown = account.unknown if self.account.idle else self.account.unknown
        edited = replace(account, allocation=allocation, unknown=unknown, idle=idle)
        return replace(self, pod=pod, account=edited)


class Unjudged(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A pod's signature that is to be verified, which takes too long for the loop."""

    uid: PodUid
    account: Account
    text: str


def doubted(charge: Charge, problem: str, vendors: VendorRegistry) -> Charge:
    """A pod whose signature is wrong: what it says, and on each device what it asks for as well.

    What was written may be less than it uses, or name other devices.
    """
    account, pod = noted(charge.account, problem), charge.pod
    if not may_have_started(pod, vendors):
        account = replace(account, idle=True)
    else:
        used = sorted({grant.vendor for grant in account.allocation.grants})
        unknown = [may_use(pod, vendor, vendors) for vendor in used]
        account = _with_unknown(account, unknown)
    return replace(charge, account=account, strange=True)


def set_aside(charge: Charge, vendors: VendorRegistry) -> Charge:
    """A strange pod whose devices have no room for it: it holds none of what is there.

    What is left of them is kept free, at most as much as the pod asks for.
    """
    account = charge.account
    devices = dict.fromkeys((g.vendor, g.device_id) for g in account.allocation.grants)
    unknown = [may_use(charge.pod, vendor, vendors, device) for vendor, device in devices]
    containers = tuple(replace(c, grants=()) for c in account.allocation.containers)
    allocation = replace(account.allocation, containers=containers)
    account = _with_unknown(replace(account, allocation=allocation), unknown)
    return replace(charge, account=account)


def _with_unknown(account: Account, unknown: Iterable[UnknownUsage]) -> Account:
    """Each once, however often the pod is edited."""
    new = [one for one in unknown if one not in account.unknown]
    return replace(account, unknown=(*account.unknown, *new))


def noted(account: Account, problem: str) -> Account:
    """The account as it is, with something for its owner to know."""
    return replace(account, problems=tuple(dict.fromkeys((*account.problems, problem))))


def known_part(allocation: PodAllocation, vendors: VendorRegistry) -> PodAllocation:
    """Without the grants of vendors that are no more; nobody can be given their devices either."""
    return replace(
        allocation,
        containers=tuple(
            replace(c, grants=tuple(g for g in c.grants if g.vendor in vendors))
            for c in allocation.containers
        ),
    )
