"""From the informers into the state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic

import structlog

from hami.domain.kubernetes.objects import Node, Pod, PodGroup, ResourceQuota
from hami.kube.informer import Informer, T
from hami.policy.filter.gangs import GroupName
from hami.scheduler.bookings.quotas.elastic_objects import QuotaObject
from hami.scheduler.bookings.quotas.quota_objects import QuotaObjects
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.decide import gangs


class NodeFeed:
    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def changed(self, new: Node, old: Node | None) -> None:  # noqa: ARG002 -- Handler's signature
        self._state.node_changed(new)

    def gone(self, last: Node) -> None:
        self._state.node_gone(last)


class PodFeed:
    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def changed(self, new: Pod, old: Pod | None) -> None:
        self._state.pod_changed(new)
        if new.finished and not (old is not None and old.finished):
            self._left(new, self._state.groups.gang_of(new.uid))

    def gone(self, last: Pod) -> None:
        gang = self._state.groups.gang_of(last.uid)
        self._state.pod_gone(last)
        self._left(last, gang)

    def _left(self, pod: Pod, gang: GroupName | None) -> None:
        if gang is not None and not pod.spec.node_name:
            gangs.left(self._state, gang)


class GroupFeed:
    """``api``: the API group of the kind."""

    def __init__(self, state: ClusterState, api: str) -> None:
        self._groups = state.groups
        self._api = api

    def changed(self, new: PodGroup, old: PodGroup | None) -> None:  # noqa: ARG002 -- Handler's signature
        self._groups.group_changed(self._api, new)

    def gone(self, last: PodGroup) -> None:
        self._groups.group_gone(self._api, last)


class QuotaFeed:
    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def changed(self, new: ResourceQuota, old: ResourceQuota | None) -> None:  # noqa: ARG002 -- Handler's signature
        self._state.quota_changed(new)

    def gone(self, last: ResourceQuota) -> None:
        self._state.quota_gone(last)


class ElasticFeed:
    """Objects come one by one, at a start by the hundred; what they say together is worked out once
    per turn of the loop.
    """

    def __init__(self, quotas: QuotaObjects) -> None:
        self._quotas = quotas
        self._waiting: asyncio.Handle | None = None

    def changed(self, new: QuotaObject, old: QuotaObject | None) -> None:  # noqa: ARG002 -- Handler's signature
        if self._quotas.elastic.put(new):
            self._later()

    def gone(self, last: QuotaObject) -> None:
        self._quotas.elastic_gone(last)
        self._later()

    def _later(self) -> None:
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().call_soon(self._now)

    def _now(self) -> None:
        self._waiting = None
        self._quotas.arrange()


class Following(Generic[T]):
    """An informer at work, which can be made to list everything anew."""

    def __init__(self, what: str, informer: Informer[T]) -> None:
        self.what = what
        self.informer = informer
        self.ready = False
        self._anew = asyncio.Event()
        self._awaited: list[asyncio.Event] = []
        self._log = structlog.get_logger("hami.informers")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            awaited, self._awaited = self._awaited, []
            tasks = [
                asyncio.create_task(self.informer.run(), name=f"informer of {self.what}"),
                asyncio.create_task(self._anew.wait()),
            ]
            listed = asyncio.create_task(self._listed(awaited))
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if tasks[0].done():
                    tasks[0].result()
            finally:
                for task in (*tasks, listed):
                    task.cancel()
                await asyncio.gather(*tasks, listed, return_exceptions=True)
            self._anew.clear()
            self._awaited = [*(event for event in awaited if not event.is_set()), *self._awaited]
            self.informer.begin_anew()

    async def relist(self) -> None:
        """List everything anew and wait until that is applied."""
        listed = asyncio.Event()
        self._awaited.append(listed)
        self._anew.set()
        await listed.wait()

    async def _listed(self, awaited: Sequence[asyncio.Event]) -> None:
        await self.informer.synced.wait()
        self.ready = True
        self._log.info("synced", what=self.what, objects=len(self.informer.objects))
        for event in awaited:
            event.set()
