"""Allocations that this scheduler did not make: told, bounded, and never more than a device has.

Where there are keys, an allocation without a good signature counts at most as much as its pod asks
for, and only where there is room for it beside the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

from msgspec.structs import replace

from hami.domain.devices import DeviceState
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.policy.pods.accounting import Account, at_most_asked
from hami.scheduler.bookings.charge_book import ChargeBook
from hami.scheduler.bookings.charges import Charge, Unjudged, doubted, noted, set_aside
from hami.scheduler.bookings.problems import Problems
from hami.signing import BadSignature, Signer, Verdict, Verified
from hami.wire import keys


class Strangers:
    """Looks at charges as they are made."""

    def __init__(
        self,
        books: ChargeBook,
        problems: Problems,
        signer: Callable[[], Signer],
        freed: Callable[[Pod, str], None],
    ) -> None:
        """``freed`` is told of a pod that is set aside, and its node."""
        self._books = books
        self._problems = problems
        self._signer = signer
        self._freed = freed

    def node_reread(self, name: str) -> None:
        """A node has changed, or has appeared after pods on it."""
        on_it = self._books.table.charged_on(name)
        self._books.ledger.look_again(on_it)
        for uid in on_it:
            if (charge := self._books.charges.get(uid)) is not None:
                self.look_at(charge)

    def is_strange(self, pod: Pod, account: Account) -> bool:
        """There are keys, and this scheduler would have signed it."""
        signed = pod.annotations.get(keys.ALLOCATION_SIGNATURE)
        return not signed and self._signer().signs and bool(account.allocation.grants)

    def at_most_asked(self, pod: Pod, account: Account) -> Account:
        device_of = partial(self._books.table.device_of, pod.spec.node_name)
        return at_most_asked(account, pod, self._books.table.vendors, device_of)

    def look_at(self, charge: Charge) -> None:
        """What was just charged, or whose node has changed."""
        pod = charge.pod
        unsigned = (_unsigned(pod),) if charge.strange and not charge.account.problems else ()
        self._problems.tell(pod, ("unsigned", pod.uid), "UnsignedAllocation", unsigned)
        table = self._books.table
        over = table.overfull(pod.uid)
        if over:
            for uid in table.charged_on(pod.spec.node_name):
                other = self._books.charges.get(uid)
                if other is not None and other.strange and (too_much := table.overfull(uid)):
                    self._set_aside(other, tuple(_overfull(other.pod, s) for s in too_much))
            over = table.overfull(pod.uid)
        texts = tuple(_overfull(pod, state) for state in over)
        self._problems.tell(pod, ("overfull", pod.uid), "OverAllocated", texts)

    def judged(self, known: Charge, about: Unjudged, verdict: Verdict) -> Charge:
        """What the pod is charged from now on; as before where it is an older allocation."""
        match verdict:
            case Verified(generation=generation):
                if generation <= known.generation:
                    return known
                return Charge.signed(known.pod, about.account, generation, about.text)
            case BadSignature(problem=problem):
                return self._doubted(known, problem)
            case never:
                assert_never(never)

    def _doubted(self, charge: Charge, problem: str) -> Charge:
        pod = charge.pod
        who = f"Pod {pod.full_name} on {pod.spec.node_name}"
        text = f"{who}: {keys.ALLOCATION_SIGNATURE} {problem}"
        if charge.verified is not None:  # No agent that has keys obeys anything else.
            account = replace(charge.account, allocation=charge.verified)
            return replace(charge, account=noted(account, text))
        account = self.at_most_asked(pod, charge.account)
        return doubted(replace(charge, account=account), text, self._books.table.vendors)

    def forget(self, uid: PodUid) -> None:
        for about in ("unsigned", "overfull", "aside"):
            self._problems.forget((about, uid))

    def _set_aside(self, strange: Charge, texts: tuple[str, ...]) -> None:
        self._books.charge_bound(set_aside(strange, self._books.table.vendors))
        about = ("aside", strange.pod.uid)
        self._problems.tell(strange.pod, about, "OverAllocated", texts)
        self._freed(strange.pod, strange.pod.spec.node_name)


def _unsigned(pod: Pod) -> str:
    return (
        f"Pod {pod.full_name} on {pod.spec.node_name}: this scheduler did not make its allocation, "
        f"which has no {keys.ALLOCATION_SIGNATURE}: it counts at most as much as it asks for, and "
        "agents with verification keys start nothing of it; delete it, so that it is scheduled here"
    )


def _overfull(pod: Pod, state: DeviceState) -> str:
    used, device = state.usage, state.device
    return (
        f"Pod {pod.full_name} on {pod.spec.node_name}: with it, of device {device.id} "
        f"{used.memory_mib} of {device.memory_mib} MiB, {used.cores} of {device.cores} percent and "
        f"{used.slots} of {device.slots} slices are given away: another scheduler put a pod there, "
        "or the device has less than before; delete it, or another pod of the device"
    )
