"""Binds a pod: one POST that carries the node and the whole allocation.

Its reservation is given up only when the API server definitely did not bind the pod. After a
timeout or a 5xx the pod's node is asked for; until that is known, the devices stay taken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.requests import Invalid
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid, VendorKey
from hami.kube.client import KubeClient, PodBinding
from hami.kube.errors import ApiError
from hami.kube.leases.leadership import Leadership
from hami.kube.resources import PODS
from hami.policy.pods.escapes import escape_of
from hami.policy.pods.pod_request import parse_pod
from hami.policy.quota.elastic import CAPACITY_LABEL
from hami.scheduler.bookings.decision import CannotBeWritten, annotations_of, label_of, signed
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.decide.locks import NodeLocks
from hami.scheduler.pending import answers
from hami.signing import Signer
from hami.wire import keys
from hami.wire.extender import ExtenderBindingArgs

PATIENCE = 1.0
"""Seconds that a bind waits for the informer to show a pod (after a restart)."""

NOT_FOUND, CONFLICT = 404, 409


@dataclass(frozen=True, slots=True)
class Bound:
    """How a bind ended: ``bound``, ``refused``, ``unknown`` or ``error``; the text when not."""

    outcome: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindSettings:
    """``timeout``: seconds for the POST; ``retry``: seconds between questions after a lost one."""

    policy: SchedulingPolicy
    timeout: float = 5.0
    retry: float = 1.0


class Binder:
    """Owns the binds under way."""

    def __init__(
        self,
        state: ClusterState,
        client: KubeClient,
        leadership: Leadership,
        locks: NodeLocks,
        *,
        settings: Callable[[], BindSettings],
        signer: Callable[[], Signer],
        failed: Callable[[Pod, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._client = client
        self._leadership = leadership
        self._locks = locks
        self._settings = settings
        self._signer = signer
        self._failed = failed
        self._clock = clock
        self._busy: set[PodUid] = set()
        self._posting: set[PodUid] = set()
        self._lost_until = float("-inf")
        self._settling: dict[PodUid, asyncio.Task[None]] = {}
        self._log = structlog.get_logger("hami.binding")

    async def bind(self, args: ExtenderBindingArgs) -> Bound:
        """Never raises for what a caller sends or the API server answers."""
        if not self._leadership.leading:
            holder = self._leadership.holder or "none"
            return Bound("error", f"this replica does not lead; {holder} does")
        uid, node = PodUid(args.pod_uid), args.node
        name = f"{args.pod_namespace}/{args.pod_name}"
        pod = await self._state.expected.pod(uid, PATIENCE)
        if pod is None or pod.full_name != name:
            return Bound("error", f"there is no pod {name} with the uid {uid}")
        if uid in self._busy:
            return Bound("error", f"a bind of pod {name} is under way; its outcome is awaited")
        with self._alone_with(uid):
            done = await self._bind(pod, node)
        if done.error:
            self._failed(pod, done.error)
        return done

    @property
    def quiet(self) -> bool:
        """No POST of ours can reach the API server any more."""
        return not self._posting and self._clock() >= self._lost_until

    async def close(self) -> None:
        """Stop asking for the outcome of lost binds; a restart reads it from the pods."""
        tasks = list(self._settling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def _alone_with(self, uid: PodUid) -> Iterator[None]:
        """One thing at a time is done or asked about a pod, so that no answer is of the past."""
        self._busy.add(uid)
        try:
            yield
        finally:
            self._busy.discard(uid)

    async def _bind(self, pod: Pod, node: str) -> Bound:
        # After an earlier POST that was lost, whether it arrived decides.
        if self._is_lost(pod.uid) and (settled := await self._settle(pod, node)) is not None:
            return settled
        if (bound_to := self._bound_to(pod.uid)) is not None:
            return _already(pod, bound_to, node)
        allocation = self._reserved(pod, node)
        if isinstance(allocation, Bound):
            return allocation
        if allocation is None:
            return await self._post(pod, PodBinding(
                namespace=pod.namespace, name=pod.name, uid=pod.uid, node=node,
                annotations={}, labels={},
            ))  # fmt: skip
        return await self._bind_with_devices(pod, allocation)

    def _is_lost(self, uid: PodUid) -> bool:
        reservation = self._state.reservations.get(uid)
        return reservation is not None and reservation.phase is Phase.BINDING

    def _bound_to(self, uid: PodUid) -> str | None:
        """As far as the informer or the API server has said."""
        pod = self._state.pods.get(uid)
        if pod is not None and pod.spec.node_name:
            return pod.spec.node_name
        reservation = self._state.reservations.get(uid)
        if reservation is not None and reservation.phase is Phase.BOUND:
            return reservation.allocation.node
        return None

    def _reserved(self, pod: Pod, node: str) -> PodAllocation | Bound | None:
        """What the pod was promised on this node, or can be now; None: it needs no device."""
        state = self._state
        if (promised := state.reservations.promised(pod.uid)) not in (None, node):
            text = f"whether pod {pod.full_name} is bound to {promised} is not known yet"
            return Bound("unknown", text)
        reservation = state.reservations.get(pod.uid)
        if reservation is None or reservation.allocation.node != node:
            # After a restart, a change of leader, a long volume bind: decide now.
            request = parse_pod(pod, state.vendors, self._settings().policy)
            if isinstance(request, Invalid):
                return Bound("refused", request.text)
            if not request.vendors:
                return None
            outcome = state.bookings.reserve(request, [node])
            if not isinstance(outcome, PodAllocation):
                return Bound("refused", f"node {node}: {answers.summary(outcome)}")
        elif (escape := escape_of(pod, state.vendors)) is not None:
            state.bookings.give_up(pod.uid)  # A container was added since it was filtered.
            return Bound("refused", escape)
        return state.bookings.begin_bind(pod.uid)

    async def _bind_with_devices(self, pod: Pod, allocation: PodAllocation) -> Bound:
        node, vendors = allocation.node, _vendors_of(allocation)
        prepared = False
        try:
            if contended := await self._locks.take(pod, node, vendors):
                return Bound("refused", contended)
            try:
                binding = self._binding(pod, allocation)
                prepared = True
            except Exception as error:
                await self._locks.release(pod, node)
                if isinstance(error, CannotBeWritten):
                    return Bound("error", str(error))
                raise
        finally:
            if not prepared:
                self._state.bookings.give_up(pod.uid)
        done = await self._post(pod, binding)
        if done.outcome == "bound":
            await self._locks.bound(pod, node)
        elif done.outcome != "unknown":
            await self._locks.release(pod, node)
        return done

    def _binding(self, seen: Pod, allocation: PodAllocation) -> PodBinding:
        # Waiting for a lock took its time: the pod may have been edited meanwhile.
        pod = self._state.pods.get(seen.uid, seen)
        now, node, table = datetime.now(UTC), allocation.node, self._state.table
        annotations = annotations_of(pod, allocation, table, now)
        annotations[keys.SCHEDULER_TERM] = str(self._leadership.term)
        decision = signed(pod, allocation, annotations, table, self._signer())
        self._state.bookings.wrote(decision.pod, decision.account, decision.signature)
        return PodBinding(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            node=node,
            annotations=decision.annotations,
            labels=label_of(node) | self._capacity_label(pod),
        )

    def _capacity_label(self, pod: Pod) -> dict[str, str]:
        """Where elastic quotas count it, whether it is over quota, from its first moment on."""
        ledger = self._state.ledger
        if pod.namespace not in ledger.elastic_namespaces:
            return {}
        capacity = ledger.elastic.capacity(pod.uid)
        return {CAPACITY_LABEL: capacity} if capacity else {}

    async def _post(self, pod: Pod, binding: PodBinding) -> Bound:
        if not self._leadership.leading:
            # A Binding carries no fencing token: none is sent that could arrive after our term.
            self._state.bookings.give_up(pod.uid)
            return Bound("error", "this replica has just stopped to lead")
        self._posting.add(pod.uid)
        try:
            await self._client.bind(binding, timeout=self._settings().timeout)
        except ApiError as error:
            if error.outcome_unknown:
                self._lost(pod)
            return await self._not_bound(pod, binding.node, error)
        except BaseException:
            # Cut off in the middle: nobody knows how far it came.
            self._lost(pod)
            self._settle_later(pod, binding.node)
            raise
        finally:
            self._posting.discard(pod.uid)
        self._state.bookings.bound(pod.uid)
        return Bound("bound")

    def _lost(self, pod: Pod) -> None:
        """A POST got no answer; so long as it may take, it may yet be carried out."""
        timeout = self._settings().timeout
        self._state.bookings.lost(pod.uid, timeout)
        self._lost_until = self._clock() + timeout

    async def _not_bound(self, pod: Pod, node: str, error: ApiError) -> Bound:
        if not error.outcome_unknown and error.status != CONFLICT:
            self._state.bookings.give_up(pod.uid)
            return Bound("refused", str(error))
        settled = await self._settle(pod, node)
        if settled is None:
            return Bound("refused", str(error))
        return settled if settled.outcome == "bound" else Bound(settled.outcome, str(error))

    async def _settle(self, pod: Pod, node: str) -> Bound | None:
        """Ask where the pod is after a bind whose outcome is not known.

        None: it is not bound. Its promise stands for the next attempt, because the lost POST may
        yet arrive.
        """
        try:
            found = await self._client.get(PODS, pod.name, namespace=pod.namespace)
        except ApiError as error:
            if error.status == NOT_FOUND:
                self._state.bookings.release(pod.uid)
                return Bound("refused", f"pod {pod.full_name} is gone")
            self._settle_later(pod, node)
            return Bound("unknown", str(error))
        if found.uid != pod.uid:
            self._state.bookings.release(pod.uid)
            return Bound("refused", f"pod {pod.full_name} is another one by now")
        if not found.spec.node_name:
            self._state.bookings.not_bound(pod.uid)
            return None
        self._state.bookings.found_on(pod.uid, found.spec.node_name)
        return _already(pod, found.spec.node_name, node)

    def _settle_later(self, pod: Pod, node: str) -> None:
        if pod.uid not in self._settling:
            task = asyncio.create_task(self._keep_asking(pod, node))
            self._settling[pod.uid] = task
            task.add_done_callback(lambda done: self._settled_later(pod, done))

    def _settled_later(self, pod: Pod, done: asyncio.Task[None]) -> None:
        del self._settling[pod.uid]
        if not done.cancelled() and (error := done.exception()) is not None:
            self._log.error("asking for a lost bind failed", pod=pod.full_name, exc_info=error)

    async def _keep_asking(self, pod: Pod, node: str) -> None:
        while True:
            await asyncio.sleep(self._settings().retry)
            reservation = self._state.reservations.get(pod.uid)
            if reservation is None or reservation.phase is not Phase.BINDING:
                return  # The informer has said it.
            if pod.uid in self._busy:
                continue
            with self._alone_with(pod.uid):
                settled = await self._settle(pod, node)
            if settled is None or settled.outcome != "unknown":
                self._log.info("settled a lost bind", pod=pod.full_name, node=node)
                if settled is None or settled.outcome != "bound":
                    await self._locks.release(pod, node)
                return


def _vendors_of(allocation: PodAllocation) -> frozenset[VendorKey]:
    return frozenset(grant.vendor for grant in allocation.grants)


def _already(pod: Pod, bound_to: str, node: str) -> Bound:
    if bound_to == node:
        return Bound("bound")
    return Bound("refused", f"pod {pod.full_name} is bound to {bound_to} already")
