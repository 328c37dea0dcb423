"""The node lock, for vendors whose agent on a node still needs it.

Such an agent finds the pod it serves by "the one that is being bound here", so only one pod at a
time may be between bind and start. Agents of ours find it through kubelet and need no lock.
A filter passes over nodes that are locked or promised, and pods that wait are woken when one is
free again; whose pod needs it no more loses it, also where its agent did not see to that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import structlog

from hami.domain.kubernetes.objects import Node, Pod
from hami.domain.profile import VendorProfile
from hami.domain.units import PodUid, VendorKey
from hami.kube.client import KubeClient
from hami.kube.compat.node_lock import (
    PRIVATE_EXPIRY,
    Contended,
    Locked,
    free_if_over,
    private_value,
    release_node_lock,
    release_private_lock,
    take_node_lock,
    take_private_lock,
    utc_now,
)
from hami.kube.errors import ApiError
from hami.kube.outages import Outage
from hami.kube.resources import PODS
from hami.scheduler.bookings.decision import label_of
from hami.scheduler.bookings.lock_book import needs_lock
from hami.scheduler.bookings.state import ClusterState
from hami.wire import keys

BINDING_LABELS_SINCE = (1, 35)
"""Servers from this version on keep a Binding's labels."""

LOOK_EVERY = 1.0
"""Seconds between looks at which nodes have come free by time alone."""

OVERDUE = 3.0
"""Seconds that a lock may stand; then it is asked what its pod came to. An agent that is at work
releases it at once, and nothing is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSettings:
    """Seconds: when another one's lock has expired; how long the pods of a gang wait for it."""

    expiry: float = 300.0
    group_patience: float = 28.0


@dataclass(slots=True, eq=False)
class _Taken:
    """What one pod has, or may have, of a node, until all of it has expired.

    By the lock's annotation: what was written there, for a lock that does not name its owner.
    """

    until: float
    values: dict[str, set[str]] = field(default_factory=dict)


class NodeLocks:
    """Takes what a pod's vendors need on a node, and releases what was taken."""

    def __init__(
        self,
        state: ClusterState,
        client: KubeClient,
        settings: Callable[[], LockSettings],
        silent: Callable[[str, VendorKey], bool] = lambda _node, _vendor: False,
    ) -> None:
        """``silent``: this vendor's agent on that node is gone, whatever the node says of it."""
        self._state = state
        self._client = client
        self._settings = settings
        self._silent = silent
        self._book = state.inventory.locks
        self._outage = Outage()
        self._busy: Collection[str] = ()
        self._version: tuple[int, int] | None = None
        self._taken: dict[tuple[PodUid, str], _Taken] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("hami.locks")

    async def run(self, leading: Callable[[], bool]) -> None:
        """Until cancelled: frees what nobody else will."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if leading():
                for node, value in list(self._book.overdue(OVERDUE)):
                    await self._free(node, value)
                self._look_again()

    async def take(self, pod: Pod, node: str, vendors: frozenset[VendorKey]) -> str:
        """Why the node cannot be had now; empty when it can. All its locks are taken, or none."""
        for key in self._needed(node, vendors):
            taken = self._taken_by(pod, node)
            fresh = key not in taken.values
            values = taken.values.setdefault(key, set())
            written = False
            try:
                outcome = await self._take(pod, node, key, values)
                if isinstance(outcome, Locked):
                    self._book.taken(node, key, pod.uid, outcome.version)
                    continue
                problem = outcome.text
            except ApiError as error:
                # Whatever the last of several calls came to, an earlier one may have written.
                problem, written = f"cannot lock node {node}: {error}", True
            if fresh and not written:
                del taken.values[key]
            await self.release(pod, node)
            return problem
        return ""

    async def release(self, pod: Pod, node: str) -> None:
        """The pod will not start there. The agent releases the locks of one that does."""
        taken = self._taken.pop((pod.uid, node), None)
        for key, values in taken.values.items() if taken else ():
            self._book.released(node, key)
            try:
                if key == keys.NODE_LOCK:
                    await release_node_lock(self._client, node, pod)
                else:
                    await release_private_lock(self._client, node, key, values)
            except ApiError as error:
                self._log.warning(
                    "cannot release a node lock; it expires by itself",
                    node=node,
                    annotation=key,
                    error=str(error),
                )

    async def bound(self, pod: Pod, node: str) -> None:
        """Where HAMi's components are at work, give the pod the label that its monitor reads.

        That goes on beside the answer to kube-scheduler.
        """
        taken = self._taken.pop((pod.uid, node), None)
        if taken is None or not (labels := label_of(node)):
            return
        task = asyncio.create_task(self._label(pod, labels))
        self._tasks.add(task)
        task.add_done_callback(self._labelled)

    async def close(self, patience: float = 1.0) -> None:
        """Wait for what goes on still, ``patience`` seconds at most."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=patience)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _take(self, pod: Pod, node: str, key: str, values: set[str]) -> Locked | Contended:
        if key != keys.NODE_LOCK:
            at, ours = utc_now(), frozenset(values)
            values.add(private_value(at))
            return await take_private_lock(self._client, node, key, at, ours=ours)
        settings = self._settings()
        gang = self._state.groups.gang_of(pod.uid)
        patience = 0.0 if gang is None else settings.group_patience
        return await take_node_lock(
            self._client,
            node,
            pod,
            expiry=settings.expiry,
            patience=patience,
            seen=self._state.nodes.get(node),
        )

    def _taken_by(self, pod: Pod, node: str) -> _Taken:
        """The entry of this pod; those of pods of which nobody has heard again are dropped."""
        now = time.monotonic()
        for old in [old for old, taken in self._taken.items() if taken.until < now]:
            del self._taken[old]
        taken = self._taken.setdefault((pod.uid, node), _Taken(until=now))
        taken.until = now + max(self._settings().expiry, PRIVATE_EXPIRY)
        return taken

    def _needed(self, name: str, vendors: frozenset[VendorKey]) -> list[str]:
        """The annotations of the locks, HAMi's first: only for that one pods wait."""
        node = self._state.nodes.get(name)
        if node is None:
            return []
        found = {self._lock_on(node, self._state.vendors[key].profile) for key in vendors}
        return sorted(found - {""}, key=lambda key: (key != keys.NODE_LOCK, key))

    def _lock_on(self, node: Node, profile: VendorProfile) -> str:
        return needs_lock(node, profile, silent=self._silent(node.name, profile.key))

    async def _free(self, node: str, value: str) -> None:
        try:
            if await free_if_over(self._client, node, value):
                self._log.info("freed a lock that its pod needs no more", node=node, lock=value)
        except ApiError as error:
            if self._outage.is_news(error.status):
                self._log.warning("cannot look after a node lock", node=node, error=str(error))
        else:
            self._outage.over()

    def _look_again(self) -> None:
        """A promise or a lock may have run out: nothing in the cluster says so."""
        before, self._busy = self._busy, self._state.bookings.locked()
        for node in set(before).difference(self._busy):
            self._state.pending.freed_on(node)

    async def _label(self, pod: Pod, labels: Mapping[str, str]) -> None:
        try:
            self._version = self._version or await self._client.server_version()
            if self._version < BINDING_LABELS_SINCE:
                patch = {"metadata": {"uid": pod.uid, "labels": labels}}
                await self._client.patch(PODS, pod.name, patch, namespace=pod.namespace)
        except ApiError as error:
            self._log.warning("cannot label a pod", pod=pod.full_name, error=str(error))

    def _labelled(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("labelling a pod failed", exc_info=error)
