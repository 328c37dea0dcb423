"""Shows elastic quotas where people look: in the objects' status and annotations, and on pods.

``status.used`` is what nos puts there: the resources in ``min``, used by running pods. What nos has
no field for is in annotations. The label ``nos.nebuly.com/capacity`` says of each pod whether it is
over quota. Decisions never read that label, so an edited label is merely corrected. Only the leader
writes, and only what differs; each object at most once a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeVar

import msgspec

from hami.domain.kubernetes import quantity
from hami.domain.kubernetes.objects import CompositeElasticQuota, Condition, ElasticQuota, Pod
from hami.domain.units import PodUid
from hami.kube.errors import NOT_FOUND, ApiError
from hami.kube.pace import Turns
from hami.kube.resources import COMPOSITE_QUOTAS, ELASTIC_QUOTAS, PODS, Resource
from hami.policy.quota.elastic import CAPACITY_LABEL, Amounts, ElasticBook, Leaf, Shares, Units
from hami.scheduler.publish.publication import PatchClient, Publication

RESERVED: Final = "quota.hami.io/reserved"
BORROWED: Final = "quota.hami.io/borrowed"
LENT: Final = "quota.hami.io/lent"
GUARANTEED: Final = "quota.hami.io/guaranteed-over-quota"
"""JSON objects of resource and quantity, written like ``spec.min``. ``reserved`` counts every pod
that holds quota; ``status.used`` counts those that run."""

BACKED: Final = "GuaranteeBacked"
"""A condition in the status: False where the cluster has less than all quotas guarantee."""

REFRESH = 30.0
"""Seconds until amounts that follow from other quotas' usage are written again."""

AT_ONCE = 8
"""The most labels that are written at the same time."""

QUOTAS_A_TURN, LABELS_A_TURN = 25, 100
"""The most objects and labels written in one turn, so that neither waits long for the other."""

Object = ElasticQuota | CompositeElasticQuota
T = TypeVar("T", bound=Object)


class ElasticSource(Protocol):
    """The part of ``QuotaLedger`` that this needs."""

    @property
    def elastic(self) -> ElasticBook: ...

    @property
    def units(self) -> Units: ...


class Objects(Protocol):
    """The part of ``ElasticObjects`` that this needs."""

    def quota(self, key: str) -> Object | None: ...


class ElasticStatusState(Protocol):
    """The part of ``ClusterState`` that this needs."""

    @property
    def ledger(self) -> ElasticSource: ...

    @property
    def elastic(self) -> Objects: ...

    @property
    def pods(self) -> Mapping[PodUid, Pod]: ...


class ElasticStatus:
    """Publishes: ``touch`` says that a quota's usage may have changed; ``run`` writes."""

    def __init__(
        self,
        state: ElasticStatusState,
        client: PatchClient,
        *,
        leading: Callable[[], bool],
        on_problem: Callable[[str], None],
        unbacked: Callable[[], Mapping[str, object]] = dict,
        rest: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``rest`` seconds lie between two writes about one object.

        ``unbacked``, by resource: how much less the cluster has than all guarantees together.
        """
        self._state = state
        self._client = client
        self._leading = leading
        self._on_problem = on_problem
        self._unbacked = unbacked
        self._told: dict[str, Condition] = {}
        """By quota, as it was written last: a definition without conditions drops it."""
        self._rest = rest
        self._clock = clock
        self._due: dict[str, float] = {}
        self._labels: dict[PodUid, float] = {}
        self._publications: dict[str, Publication[Object]] = {}
        self._refresh_at = 0.0
        self._all_pods = True
        self._wake = asyncio.Event()

    @property
    def _book(self) -> ElasticBook:
        """The present book; a change of the vendors' configuration replaces it."""
        return self._state.ledger.elastic

    def touch(self, namespace: str) -> None:
        """The usage of the quota that counts this namespace may have changed."""
        if (leaf := self._book.leaf_of(namespace)) is not None:
            self._touch(leaf.key)

    def touch_all(self) -> None:
        """Publish all quotas again: they have changed, or this replica leads from now on."""
        for leaf in self._book.leaves:
            self._touch(leaf.key)
        self._all_pods = True
        self._wake.set()

    def look_at(self, pod: Pod) -> None:
        """Queue the pod for a new label if its label is wrong."""
        if self._book.capacity(pod.uid) != pod.labels.get(CAPACITY_LABEL):
            self._labels.setdefault(pod.uid, 0.0)
            self._wake.set()

    def _touch(self, key: str) -> None:
        self._due.setdefault(key, self._publication(key).rest_until)
        self._wake.set()

    def _publication(self, key: str) -> Publication[Object]:
        return self._publications.setdefault(key, Publication())

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await self._wait()
            if not self._leading():
                self._due.clear()
                self._labels.clear()
                continue
            if self._clock() >= self._refresh_at:
                self._refresh_at = self._clock() + REFRESH
                for leaf in self._book.leaves:
                    self._touch(leaf.key)
            if self._all_pods:
                self._all_pods = False
                await self._look_at_all()
            await self._publish_due()

    async def _look_at_all(self) -> None:
        """Look at every pod, including those whose quota is gone."""
        turns = Turns()
        for pod in list(self._state.pods.values()):
            await turns.pause()
            self.look_at(pod)

    async def _wait(self) -> None:
        """Wait until something is touched or due."""
        due = [*self._due.values(), *self._labels.values()]
        if self._book.leaves and self._leading():
            due.append(self._refresh_at)
        seconds = max(0.0, min(due) - self._clock()) if due else None
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _publish_due(self) -> None:
        now, leaves = self._clock(), self._leaves()
        for key in self._publications.keys() - leaves.keys():
            del self._publications[key]
        due = [key for key, at in self._due.items() if at <= now]
        for key in due:
            if key in leaves:
                for uid in self._book.moved(leaves[key]):
                    self._labels.setdefault(uid, 0.0)
        turn = due[:QUOTAS_A_TURN]
        for key in turn:
            del self._due[key]  # A quota that is touched from here on is due once more.
        shares = await self._shares() if len(turn) > 1 else None
        for key in turn:
            # Quotas come and go while others are written.
            if (leaf := self._leaves().get(key)) is not None and self._leading():
                await self._publish(leaf, shares)
        await self._label(now)

    def _leaves(self) -> Mapping[str, Leaf]:
        return {leaf.key: leaf for leaf in self._book.leaves}

    async def _shares(self) -> Mapping[str, Shares]:
        """The shares of all quotas by resource. One quota's take about as long as all quotas'."""
        book, turns, found = self._book, Turns(), {}
        for resource in list(book.pool):
            found[resource] = book.shares(resource)
            await turns.pause()
        return found

    # Pods.

    async def _label(self, now: float) -> None:
        """Write the due labels. A pod that has changed sides twice meanwhile needs no write."""
        due = [uid for uid, at in self._labels.items() if at <= now][:LABELS_A_TURN]
        permits = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self._label_pod(uid, permits) for uid in due))

    async def _label_pod(self, uid: PodUid, permits: asyncio.Semaphore) -> None:
        async with permits:
            pod = self._state.pods.get(uid)
            # The binding gives a reserved pod its label.
            wrong = pod is not None and pod.spec.node_name and not pod.finished
            wanted = self._book.capacity(uid)
            if pod is None or not wrong or pod.labels.get(CAPACITY_LABEL) == wanted:
                self._labels.pop(uid, None)
                return
            # Do not write it again until the informer shows it.
            self._labels[uid] = self._clock() + self._rest
            patch = {"metadata": {"uid": uid, "labels": {CAPACITY_LABEL: wanted}}}
            try:
                await self._client.patch(PODS, pod.name, patch, namespace=pod.namespace)
            except ApiError as error:
                self._not_labelled(pod, error)

    def _not_labelled(self, pod: Pod, error: ApiError) -> None:
        self._labels[pod.uid] = self._clock() + max(error.retry_after or 0.0, 5 * self._rest)
        if error.status not in (NOT_FOUND, 409):
            self._on_problem(f"label {CAPACITY_LABEL} of pod {pod.full_name}: {error}")

    # Objects.

    async def _publish(self, leaf: Leaf, shares: Mapping[str, Shares] | None) -> None:
        publication, shown = self._publication(leaf.key), self._state.elastic.quota(leaf.key)
        if shown is None:
            return
        known = publication.known(shown)
        try:
            made = await self._write(leaf, known, shares)
        except ApiError as error:
            self._failed(leaf, publication, error)
            return
        publication.backoff.reset()
        if made is not known:
            publication.seen, publication.made = shown, made
            publication.rest_until = self._clock() + self._rest
            if leaf.key in self._due:
                self._due[leaf.key] = publication.rest_until

    def _failed(self, leaf: Leaf, publication: Publication[Object], error: ApiError) -> None:
        if error.status == NOT_FOUND:
            return  # The informer will say so too.
        delay = max(publication.backoff.delay(), error.retry_after or 0.0, self._rest)
        publication.made = None
        self._told.pop(leaf.key, None)
        publication.rest_until = self._due[leaf.key] = self._clock() + delay
        if not error.outcome_unknown and error.status not in (409, 429):
            self._on_problem(f"the status of {leaf.key}: {error}")

    async def _write(
        self, leaf: Leaf, known: Object, shares: Mapping[str, Shares] | None
    ) -> Object:
        """Write what differs; returns the object as written.

        Without ``shares`` the quota's own are computed.
        """
        single = leaf.kind == "ElasticQuota"
        resource: Resource[Any] = ELASTIC_QUOTAS if single else COMPOSITE_QUOTAS
        book, units = self._book, self._state.ledger.units
        used = units.texts(book.running_used(leaf))
        if shares is None:
            lent, guaranteed = book.lent(leaf), book.guaranteed(leaf)
        else:
            lent = {r: share.lent.get(leaf.key, 0) for r, share in shares.items()}
            guaranteed = {r: share.guaranteed.get(leaf.key, 0) for r, share in shares.items()}
        annotations = {
            RESERVED: _json(units, book.used(leaf)),
            BORROWED: _json(units, book.borrowed(leaf)),
            LENT: _json(units, lent),
            GUARANTEED: _json(units, guaranteed),
        }
        status: dict[str, Any] = {}
        if changes := used_changes(known, used):
            status["used"] = changes
        if (conditions := self._conditions_of(leaf, known)) is not None:
            status["conditions"] = [_written(condition) for condition in conditions]
        if status:
            known = await self._client.patch(
                resource,
                leaf.name,
                {"status": status},
                namespace=leaf.namespace,
                subresource="status",
            )
        has = known.metadata.annotations or {}
        if any(has.get(key) != text for key, text in annotations.items()):
            known = await self._client.patch(
                resource,
                leaf.name,
                {"metadata": {"annotations": annotations}},
                namespace=leaf.namespace,
            )
        return known

    def _conditions_of(self, leaf: Leaf, known: Object) -> tuple[Condition, ...] | None:
        """The conditions to write; None when the object has them, or we wrote the same before."""
        shown = tuple((known.status and known.status.conditions) or ())
        before = next((one for one in shown if one.type == BACKED), self._told.get(leaf.key))
        unbacked = self._unbacked()
        lacking = [str(unbacked[r]) for r in sorted(unbacked) if leaf.min.get(r, 0) > 0]
        if before is None and not lacking:
            return None
        wanted = Condition(
            type=BACKED,
            status="False" if lacking else "True",
            reason="MoreThanTheClusterHas" if lacking else "Backed",
            message="; ".join(lacking),
            last_transition_time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        if before is not None and before.status == wanted.status:
            since = before.last_transition_time
            wanted = msgspec.structs.replace(wanted, last_transition_time=since)
        if wanted == before:
            return None
        self._told[leaf.key] = wanted
        return (*(one for one in shown if one.type != BACKED), wanted)


def _written(condition: Condition) -> dict[str, str]:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.last_transition_time,
    }


def used_changes(known: Object, used: Mapping[str, str]) -> dict[str, str | None]:
    """The merge patch of ``status.used``; keys that left ``min`` become null."""
    shown = (known.status.used if known.status else None) or {}
    changed = {
        key: text
        for key, text in used.items()
        if key not in shown or not quantity.same(str(shown[key]), text)
    }
    return changed | {key: None for key in shown if key not in used}


def _json(units: Units, amounts: Amounts) -> str:
    texts = units.texts({resource: amount for resource, amount in amounts.items() if amount})
    return msgspec.json.encode(texts, order="sorted").decode()
