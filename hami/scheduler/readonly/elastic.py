"""Elastic quota in the read-only API: who holds what, who borrows, and why a pod waits.

Each quota is of one moment; two quotas may be some milliseconds apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from hami.domain.kubernetes.objects import Pod
from hami.domain.requests import Invalid
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.kube.pace import Turns
from hami.policy.pods.pod_request import parse_pod
from hami.policy.quota.elastic import Claim, ElasticBook, Leaf, Member
from hami.policy.quota.elastic.plans.plan import NoPlan
from hami.scheduler.bookings.holds import Hold
from hami.scheduler.bookings.quotas.elastic_levels import levels_of
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.readonly.models import (
    AskedAmount,
    Capacity,
    ElasticAmount,
    ElasticPod,
    ElasticQuotaPage,
    ElasticQuotaView,
    ElasticWhy,
    PoolAmount,
    VictimView,
)
from hami.scheduler.readonly.pages import After, Limit, as_json, page

Promised = Mapping[PodUid, tuple[str, bool]]
"""Victims by uid: the pod that each is evicted for, and whether the victim has left."""

_ANY_POD = PodUid("")


def add_elastic(router: APIRouter, state: ClusterState) -> None:
    @router.get(
        "/elasticquotas",
        response_model=ElasticQuotaPage,
        summary="Elastic quotas: guaranteed, used, borrowed, lent",
    )
    async def elastic_quotas(
        namespace: Annotated[str, Query(description="A namespace that it counts.")] = "",
        pods: Annotated[bool, Query(description="With the pods that it counts.")] = False,  # noqa: FBT002 -- a parameter of the URL
        limit: Limit = 100,
        after: After = "",
    ) -> Response:
        leaves = {
            leaf.key: leaf
            for leaf in state.ledger.elastic.leaves
            if namespace in ("", *leaf.namespaces)
        }
        turns, items, names = Turns(), list[ElasticQuotaView](), await page(leaves, after, limit)
        promised = promises(state.holds.holds.values())
        for name in names[:limit]:
            # A new configuration makes another book; a change of quotas may remove this quota.
            book = state.ledger.elastic
            if (leaf := _now(book, leaves[name])) is None:
                continue
            view = quota_view(book, leaf)
            if pods:
                members = book.members(leaf)
                shown = list[ElasticPod]()
                for member in members:
                    shown.append(pod_view(book, member, promised))
                    await turns.pause()
                view = view.model_copy(update={"pods": shown})
            items.append(view)
            await turns.pause()
        more = names[limit - 1] if len(names) > limit else ""
        pool = pool_view(state.ledger.elastic)
        return await as_json(ElasticQuotaPage(items=items, pool=pool, more=more))


def _now(book: ElasticBook, leaf: Leaf) -> Leaf | None:
    """The quota as of now; None when it is gone."""
    return next(
        (one for one in map(book.leaf_of, leaf.namespaces) if one and one.key == leaf.key), None
    )


def quota_view(book: ElasticBook, leaf: Leaf) -> ElasticQuotaView:
    anyone = Claim(uid=_ANY_POD, namespace=leaf.namespaces[0], name="", vector={})
    return ElasticQuotaView(
        kind=leaf.kind,
        namespace=leaf.namespace,
        name=leaf.name,
        namespaces=leaf.namespaces,
        parent=leaf.parent,
        resources={
            level.resource: ElasticAmount(
                unit=book.unit(level.resource),
                min=level.min or 0,
                max=level.max,
                used=level.used,
                reserved=level.reserved,
                borrowed=level.borrowed,
                lent=level.lent,
                guaranteed_over_quota=level.guaranteed,
                left=book.room(anyone, level.resource),
            )
            for level in levels_of(book, leaf)
        },
    )


def pool_view(book: ElasticBook) -> Mapping[str, PoolAmount]:
    return {
        resource: PoolAmount(unit=book.unit(resource), used=pool.used, free=pool.free)
        for resource, pool in sorted(book.pool.items())
    }


def pod_view(book: ElasticBook, member: Member, promised: Promised) -> ElasticPod:
    claimant, gone = promised.get(member.uid, ("", False))
    return ElasticPod(
        namespace=member.namespace,
        name=member.name,
        uid=member.uid,
        node=member.node,
        priority=member.priority,
        running=member.running and not gone,
        preemptible=member.preemptible,
        capacity=_capacity(book, member.uid),
        holds=dict(member.vector),
        victim_of=claimant,
        gone=gone,
    )


def _capacity(book: ElasticBook, uid: PodUid) -> Capacity:
    return "over-quota" if book.is_over(uid) else "in-quota"


def promises(holds: Iterable[Hold]) -> Promised:
    found: dict[PodUid, tuple[str, bool]] = {}
    for hold in holds:
        found |= dict.fromkeys(hold.expected, (hold.claimant.full_name, False))
        found |= dict.fromkeys(hold.left, (hold.claimant.full_name, True))
    return found


# Why.


def elastic_why(state: ClusterState, pod: Pod, unplanned: NoPlan | None) -> ElasticWhy | None:
    """What to say about a pod that waits or runs; None when there is nothing."""
    if pod.finished:
        return None
    book = state.ledger.elastic
    leaf, hold = book.leaf_of(pod.namespace), state.holds.holds.get(pod.uid)
    claimant, _ = promises(state.holds.holds.values()).get(pod.uid, ("", False))
    waits = pod.uid in state.pending.pods
    counted = leaf is not None and (waits or book.member(pod.uid) is not None)
    if not counted and hold is None and unplanned is None and not claimant:
        return None
    asks, refusals = _asked(state, pod, hold) if counted and waits else ({}, [])
    again = unplanned.again if unplanned else None
    return ElasticWhy(
        quota=leaf.key if leaf and counted else "",
        asks=asks,
        refusals=refusals,
        victims=_victims(state, hold) if hold else (),
        not_evicted=dict(unplanned.why) if unplanned else {},
        again="" if again is None else datetime.fromtimestamp(again, UTC).isoformat(),
        capacity=_capacity(book, pod.uid) if counted and not waits else "",
        victim_of=claimant,
    )


def _asked(
    state: ClusterState, pod: Pod, hold: Hold | None
) -> tuple[Mapping[str, AskedAmount], list[str]]:
    """What the pod asks and what its quota would refuse now, with what is held for the pod free."""
    request = parse_pod(pod, state.vendors, SchedulingPolicy())
    if isinstance(request, Invalid):
        return {}, []
    book, claim = state.ledger.elastic, state.ledger.claim(request)
    with book.trial() as trial:
        for uid in hold.left if hold else ():
            trial.drop(uid)
        asks = {
            resource: AskedAmount(
                unit=book.unit(resource), asked=amount, left=book.room(claim, resource)
            )
            for resource, amount in sorted(claim.vector.items())
        }
        return asks, [str(refusal) for refusal in book.refusals(claim)]


def _victims(state: ClusterState, hold: Hold) -> list[VictimView]:
    gone: list[tuple[Pod | None, bool]] = [(left.pod, True) for left in hold.left.values()]
    stay = [(state.pods.get(uid), False) for uid in hold.expected]
    shown = [
        VictimView(namespace=pod.namespace, name=pod.name, node=pod.spec.node_name, gone=left)
        for pod, left in (*gone, *stay)
        if pod is not None
    ]
    return sorted(shown, key=lambda victim: (victim.namespace, victim.name))
