"""The pods of one node: who has this UID, and what was its container granted?

``NodePods`` mirrors the pods that are bound here. ``Granting`` verifies the allocation that the
scheduler signed into a pod's annotations, and reads from it what each container may have.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from hami.domain.allocations import ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import CorePercent, PodUid, VendorKey
from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.kube.informer import Informer
from hami.kube.node_pod import NODE_PODS, NodePod
from hami.node.pod.refusal_causes import RefusalCause
from hami.policy.pods.accounting import account_of
from hami.policy.pods.escapes import escape_of
from hami.policy.ports import VendorRegistry
from hami.signing import BadSignature, SigningKeys
from hami.wire import keys

PATIENCE = 1.0
"""Seconds that the mirror may lag behind kubelet, which knows the pod already."""
LIST_PATIENCE = 5.0
"""Seconds for the list that is asked for then."""
MIRROR_LAG = 120.0
"""Seconds: a pod that a list showed and the mirror still does not is gone again."""
STATIC_POD = "kubernetes.io/config.hash"
"""On the mirror of a static pod: the UID by which kubelet knows it."""


@dataclass(frozen=True, slots=True)
class NoPod:
    """There is no such pod on this node, or (not ``certain``) nobody could be asked.

    ``static``: kubelet has it from a file, so that the API server knows it by another UID.
    """

    problem: str
    certain: bool
    static: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing of the pod starts any more."""
        return self.certain and not self.static


class PodListener(Protocol):
    """Hears of every change, on the loop. Must not block."""

    def pod_changed(self, pod: NodePod) -> None: ...

    def pod_gone(self, pod: NodePod) -> None: ...


class NodePods:
    """Mirrors the pods that are bound to one node, by UID."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        *,
        on_problem: Callable[[str], None],
        patience: float = PATIENCE,
    ) -> None:
        self._client = client
        self._node = node
        self._patience = patience
        self._selector = f"spec.nodeName={node}"
        self._by_uid: dict[PodUid, NodePod] = {}
        self._static: dict[str, NodePod] = {}
        self._arrived: dict[PodUid, asyncio.Event] = {}
        self._ahead: dict[PodUid, float] = {}
        self._listeners: list[PodListener] = []
        self._informer = Informer(
            client, NODE_PODS, self, field_selector=self._selector, on_problem=on_problem
        )

    @property
    def synced(self) -> asyncio.Event:
        return self._informer.synced

    @property
    def heard_at(self) -> float:
        """When the API server last said anything of pods (monotonic seconds)."""
        return self._informer.last_event_at

    def listen(self, listener: PodListener) -> None:
        self._listeners.append(listener)

    async def run(self) -> None:
        """Until cancelled."""
        await self._informer.run()

    def get(self, uid: PodUid) -> NodePod | None:
        """The pod as the mirror has it."""
        return self._by_uid.get(uid)

    def is_gone(self, uid: PodUid) -> bool:
        """Whether there was such a pod here and is none any more. False while nobody can say."""
        if not self.synced.is_set() or uid in self._by_uid:
            return False
        seen = self._ahead.get(uid)
        return seen is None or time.monotonic() - seen > MIRROR_LAG

    def __iter__(self) -> Iterator[NodePod]:
        return iter(list(self._by_uid.values()))

    async def find(self, uid: PodUid) -> NodePod | NoPod:
        """The pod from the mirror, as soon as that has caught up; else from the API server."""
        if (pod := self._by_uid.get(uid)) is not None:
            return pod
        event = self._arrived.setdefault(uid, asyncio.Event())
        try:
            async with asyncio.timeout(self._patience):
                await event.wait()
        except TimeoutError:
            return await self._listed(uid)
        finally:
            self._arrived.pop(uid, None)
        return self._by_uid.get(uid) or await self._listed(uid)

    async def _listed(self, uid: PodUid) -> NodePod | NoPod:
        try:
            async with asyncio.timeout(LIST_PATIENCE):
                pods = await self._client.list(NODE_PODS, field_selector=self._selector)
        except (ApiError, TimeoutError) as error:
            return NoPod(
                f"pod with UID {uid} is not known here yet, and the API server does not say who "
                f"it is: {error or 'no answer in time'}",
                certain=False,
            )
        for pod in pods:
            if pod.uid == uid:
                self._seen_ahead(uid)
                return pod
        # Asked last: the annotation is anybody's to write, and names whom he likes.
        if (static := self._static.get(uid)) is not None:
            return NoPod(
                f"{static.full_name} is a static pod: the scheduler never saw it, and it has no "
                "allocation; let a DaemonSet or Deployment run it",
                certain=True,
                static=True,
            )
        return NoPod(f"no pod with UID {uid} is bound to node {self._node}", certain=True)

    def _seen_ahead(self, uid: PodUid) -> None:
        """Remember a pod that a list showed and the mirror does not, yet or any more."""
        now = time.monotonic()
        self._ahead = {one: at for one, at in self._ahead.items() if now - at <= MIRROR_LAG}
        if uid not in self._by_uid:
            self._ahead[uid] = now

    # What the informer says.

    def changed(self, new: NodePod, old: NodePod | None) -> None:  # noqa: ARG002 -- the handler's signature
        self._by_uid[new.uid] = new
        self._ahead.pop(new.uid, None)
        if (kubelets := new.annotations.get(STATIC_POD)) is not None:
            self._static[kubelets] = new
        if (event := self._arrived.get(new.uid)) is not None:
            event.set()
        for listener in self._listeners:
            listener.pod_changed(new)

    def gone(self, last: NodePod) -> None:
        self._by_uid.pop(last.uid, None)
        self._static.pop(last.annotations.get(STATIC_POD, ""), None)
        for listener in self._listeners:
            listener.pod_gone(last)


@dataclass(frozen=True, slots=True)
class NotGranted:
    """The container must not start; ``text`` names pod, container and reason, for people.

    ``ended``: its pod is gone or has ended, so that nothing of it starts, whatever is answered.
    """

    text: str
    cause: RefusalCause
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """One vendor's grants to one container, vouched for by the scheduler.

    ``generation`` is 0 for an allocation that nobody signed. ``cores_limit``: what the
    container may have of idle compute, 0 for none.
    """

    pod: Pod
    container: str
    kind: ContainerKind
    grants: tuple[Grant, ...]
    cores_limit: CorePercent
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
        signing: SigningKeys,
        *,
        accept_unsigned: bool,
    ) -> None:
        self._vendor = vendor
        self._node = node
        self._vendors = vendors
        self._signing = signing
        self._accept_unsigned = accept_unsigned
        self._highest: dict[str, int] = {}

    def granted(self, pod: Pod, container: str) -> Granted | NotGranted:
        """The grants of this container; costs one signature, about 110 µs."""
        who = f"pod {pod.full_name}, container {container}"
        if pod.spec.node_name != self._node:
            return NotGranted(
                f"{who}: is bound to node {pod.spec.node_name!r}, not {self._node}",
                RefusalCause.NOT_ALLOCATED,
            )
        account = account_of(pod, self._vendors)
        if account is None:
            return NotGranted(
                f"{who}: its pod asks for no device of a vendor that is known here",
                RefusalCause.NOT_ALLOCATED,
            )
        if account.problems:
            return NotGranted(f"{who}: {'; '.join(account.problems)}", RefusalCause.BAD_ALLOCATION)
        if (escape := escape_of(pod, self._vendors)) is not None:
            return NotGranted(f"{who}: {escape}: its pod may have no slice", RefusalCause.ESCAPE)
        generation = self._generation(pod, account.allocation)
        if isinstance(generation, str):
            return NotGranted(f"{who}: {generation}", RefusalCause.BAD_SIGNATURE)
        return self._of(pod, container, account.allocation, generation)

    def recovered(self, pod: Pod, container: str, generation: int) -> Granted | NotGranted:
        """What was granted before a restart, as the slice's record says. It was verified then."""
        account = account_of(pod, self._vendors)
        if account is None or account.problems:
            problems = "; ".join(account.problems) if account else "it asks for no device"
            return NotGranted(
                f"pod {pod.full_name}, container {container}: {problems}",
                RefusalCause.BAD_ALLOCATION,
            )
        self.saw(pod, generation)
        return self._of(pod, container, account.allocation, generation)

    def saw(self, pod: Pod, generation: int) -> None:
        """Remember that an allocation of this generation was verified, perhaps before a restart."""
        self._highest[pod.uid] = max(generation, self._highest.get(pod.uid, 0))

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
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
                    cores_limit=held.cores_limit,
                    allocation=allocation,
                    generation=generation,
                )
        return NotGranted(
            f"pod {pod.full_name}, container {container}: the allocation of its pod gives this "
            f"container nothing of {self._vendor}",
            RefusalCause.NOT_ALLOCATED,
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
        verdict = self._signing.signer.verify(pod.uid, allocation, text)
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


async def find_granted(
    uid: PodUid, container: str, pods: NodePods, granting: Granting
) -> Granted | NotGranted | NoPod:
    """What was granted to a container of the pod with this UID; nothing once the pod has ended."""
    found = await pods.find(uid)
    if isinstance(found, NoPod):
        return found
    if found.finished:
        return NotGranted(
            f"pod {found.full_name} has ended: nothing of it starts again",
            RefusalCause.POD_ENDED,
            ended=True,
        )
    return granting.granted(found, container)
