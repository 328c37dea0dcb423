"""What a container may have: the grants of its pod's signed allocation, or why it gets none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hami.domain.allocations import ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.objects import Pod
from hami.domain.units import VendorKey
from hami.policy.pods.accounting import account_of
from hami.policy.pods.escapes import escape_of
from hami.policy.ports import VendorRegistry
from hami.signing import BadSignature, Signer
from hami.wire import keys


@dataclass(frozen=True, slots=True)
class NotGranted:
    """The container must not start; ``text`` names pod, container and cause, for people.

    ``ended``: its pod is gone or has ended, so that nothing of it starts, whatever is answered.
    """

    text: str
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """One vendor's grants to one container, vouched for by the scheduler.

    ``generation`` is 0 for an allocation that nobody signed.
    """

    pod: Pod
    container: str
    kind: ContainerKind
    grants: tuple[Grant, ...]
    allocation: PodAllocation
    generation: int


class Granting:
    """Reads and verifies allocations for one vendor on one node.

    It remembers the highest generation seen of each pod: an older allocation, though signed, is
    somebody's replay.
    """

    def __init__(
        self,
        vendor: VendorKey,
        node: str,
        vendors: VendorRegistry,
        signer: Callable[[], Signer],
        *,
        accept_unsigned: bool,
    ) -> None:
        self._vendor = vendor
        self._node = node
        self._vendors = vendors
        self._signer = signer
        self._accept_unsigned = accept_unsigned
        self._highest: dict[str, int] = {}

    def granted(self, pod: Pod, container: str) -> Granted | NotGranted:
        """The grants of this container; costs one signature, about 110 µs."""
        who = f"pod {pod.full_name}, container {container}"
        if pod.spec.node_name != self._node:
            return NotGranted(f"{who}: is bound to node {pod.spec.node_name!r}, not {self._node}")
        account = account_of(pod, self._vendors)
        if account is None:
            return NotGranted(f"{who}: its pod asks for no device of a vendor that is known here")
        if account.problems:
            return NotGranted(f"{who}: {'; '.join(account.problems)}")
        if (escape := escape_of(pod, self._vendors)) is not None:
            return NotGranted(f"{who}: {escape}: its pod may have no slice")
        generation = self._generation(pod, account.allocation)
        if isinstance(generation, str):
            return NotGranted(f"{who}: {generation}")
        return self._of(pod, container, account.allocation, generation)

    def recovered(self, pod: Pod, container: str, generation: int) -> Granted | NotGranted:
        """What was granted before a restart, as the disk says; it was verified then."""
        account = account_of(pod, self._vendors)
        if account is None or account.problems:
            problems = "; ".join(account.problems) if account else "it asks for no device"
            return NotGranted(f"pod {pod.full_name}, container {container}: {problems}")
        self.saw(pod, generation)
        return self._of(pod, container, account.allocation, generation)

    def saw(self, pod: Pod, generation: int) -> None:
        """An allocation of this generation was verified, perhaps before a restart."""
        self._highest[pod.uid] = max(generation, self._highest.get(pod.uid, 0))

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._highest.pop(uid, None)

    def _of(
        self, pod: Pod, container: str, allocation: PodAllocation, generation: int
    ) -> Granted | NotGranted:
        for held in allocation.containers:
            grants = tuple(g for g in held.grants if g.vendor == self._vendor)
            if held.name == container and grants:
                return Granted(
                    pod=pod,
                    container=container,
                    kind=held.kind,
                    grants=grants,
                    allocation=allocation,
                    generation=generation,
                )
        return NotGranted(
            f"pod {pod.full_name}, container {container}: the allocation of its pod gives this "
            f"container nothing of {self._vendor}"
        )

    def _generation(self, pod: Pod, allocation: PodAllocation) -> int | str:
        """The allocation's, or what is wrong with its signature."""
        text = pod.annotations.get(keys.ALLOCATION_SIGNATURE, "")
        if not text:
            if self._accept_unsigned and not self._highest.get(pod.uid):
                return 0
            return (
                f"its allocation has no signature (annotation {keys.ALLOCATION_SIGNATURE}): the "
                "scheduler did not make it; delete the pod, so that it is scheduled again"
            )
        verdict = self._signer().verify(pod.uid, allocation, text)
        if isinstance(verdict, BadSignature):
            return f"the signature of its allocation {verdict.problem}"
        highest = self._highest.get(pod.uid, 0)
        if verdict.generation < highest:
            return (
                f"its allocation is generation {verdict.generation}, and generation {highest} was "
                "seen before: somebody put an old one back"
            )
        self.saw(pod, verdict.generation)
        return verdict.generation
