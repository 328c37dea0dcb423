"""The read-only API: what the service knows, as JSON, for people and tools.

Lists come in pages, sorted by name. The loop gathers a page in short turns and a thread makes JSON
of it, so that neither stops a filter.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from starlette.responses import Response

from hami.domain.devices import Device, Usage
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.kube.pace import Turns
from hami.policy.quota.elastic.plans.plan import NoPlan
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.readonly.elastic import add_elastic, elastic_why
from hami.scheduler.readonly.models import (
    DevicePage,
    DeviceView,
    NodeDetail,
    NodePage,
    NodeView,
    PodPage,
    PodPhase,
    PodView,
    QuotaPage,
    QuotaView,
    SummaryView,
    WhyView,
)
from hami.scheduler.readonly.pages import After, Limit, as_json, not_known, page
from hami.scheduler.readonly.views import (
    PodsOfDevices,
    device_views,
    holders,
    node_detail,
    node_view,
    pod_view,
    quota_view,
    standing,
    vendor_summary,
    why_view,
)

_NOBODY: Mapping[PodUid, NoPlan] = MappingProxyType({})


def api_router(
    state: ClusterState,
    *,
    leading: Callable[[], bool],
    unplanned: Callable[[], Mapping[PodUid, NoPlan]] = lambda: _NOBODY,
) -> APIRouter:
    """Every route under ``/api/v1``; ``unplanned`` says why no pod is evicted for another."""
    router = APIRouter(prefix="/api/v1", tags=["cluster"])
    _add_nodes(router, state)
    _add_devices(router, state)
    _add_pods(router, state)
    _add_why(router, state, unplanned)
    _add_quotas(router, state)
    add_elastic(router, state)
    _add_summary(router, state, leading)
    return router


def _add_nodes(router: APIRouter, state: ClusterState) -> None:
    @router.get("/nodes", response_model=NodePage, summary="Nodes, with what they have and use")
    async def nodes(limit: Limit = 100, after: After = "") -> Response:
        names = await page(state.nodes, after, limit)
        turns, items = Turns(), list[NodeView]()
        for name in names[:limit]:
            if view := node_view(state, name):
                items.append(view)
            await turns.pause()
        more = names[limit - 1] if len(names) > limit else ""
        return await as_json(NodePage(items=items, more=more))

    @router.get(
        "/nodes/{name}",
        response_model=NodeDetail,
        responses=not_known(),
        summary="One node, with its devices and the pods on them",
    )
    async def node(name: str) -> Response:
        detail = node_detail(state, name)
        if detail is None:
            raise HTTPException(404, f"no node {name} is known")
        return await as_json(detail)


def _add_devices(router: APIRouter, state: ClusterState) -> None:
    @router.get("/devices", response_model=DevicePage, summary="Devices, with what is used of them")
    async def devices(
        vendor: Annotated[str, Query(description="A vendor's key, for example NVIDIA.")] = "",
        node: Annotated[str, Query(description="A node's name.")] = "",
        limit: Limit = 100,
        after: After = "",
    ) -> Response:
        last = _device_key(after)
        names = [node] if node else await asyncio.to_thread(sorted, list(state.nodes))
        turns, found = Turns(), list[DeviceView]()
        for name in names[bisect_left(names, last[0]) :]:
            views = sorted(device_views(state, name, vendor), key=_key_of)
            found += [view for view in views if _key_of(view) > last]
            if len(found) > limit:
                break
            await turns.pause()
        shown = found[:limit]
        pods = PodsOfDevices()
        for pod, allocation in holders(state, {device.node for device in shown}):
            pods.add(pod, allocation)
            await turns.pause()
        items = [pods.shown(device) for device in shown]
        more = "/".join(map(str, _key_of(items[-1]))) if len(found) > limit else ""
        return await as_json(DevicePage(items=items, more=more))


DeviceKey = tuple[str, str, int, str]


def _key_of(device: DeviceView) -> DeviceKey:
    return device.node, device.vendor, device.index, device.id


def _device_key(after: str) -> DeviceKey:
    if not after:
        return "", "", 0, ""
    node, vendor, index, device = [*after.split("/", 3), "", "", ""][:4]
    if not index.isdecimal() or len(index) > 9:
        raise HTTPException(400, f"continue={after!r} is from no page of devices; leave it out")
    return node, vendor, int(index), device


def _add_pods(router: APIRouter, state: ClusterState) -> None:
    @router.get("/pods", response_model=PodPage, summary="Pods that hold or await devices")
    async def pods(
        namespace: str = "",
        node: Annotated[str, Query(description="Where they hold devices.")] = "",
        phase: Annotated[PodPhase | None, Query()] = None,
        limit: Limit = 100,
        after: After = "",
    ) -> Response:
        turns, keys = Turns(), list[tuple[str, PodUid]]()
        for pod in _each_pod(state):
            found = standing(state, pod)
            await turns.pause()
            if found is None or (phase and found[0] != phase):
                continue
            if node and (found[1] is None or found[1].node != node):
                continue
            if not namespace or pod.namespace == namespace:
                keys.append((f"{pod.full_name}/{pod.uid}", pod.uid))
        names = dict(keys)
        chosen = await page(names, after, limit)
        items = list[PodView]()
        for key in chosen[:limit]:
            held = _pod_of(state, names[key])
            if held is not None and (found := standing(state, held)):
                items.append(pod_view(held, *found))
            await turns.pause()
        more = chosen[limit - 1] if len(chosen) > limit else ""
        return await as_json(PodPage(items=items, more=more))


def _add_why(
    router: APIRouter, state: ClusterState, unplanned: Callable[[], Mapping[PodUid, NoPlan]]
) -> None:
    @router.get(
        "/pods/{namespace}/{name}/why",
        response_model=WhyView,
        responses=not_known(),
        summary="Where a pod stands, and why it waits",
    )
    async def why(namespace: str, name: str) -> Response:
        same = [
            pod
            for pod in state.pods.values()
            if pod.metadata.name == name and pod.namespace == namespace
        ]
        if not same:
            raise HTTPException(404, f"no pod {namespace}/{name} is known")
        # A pod that ended may still be there beside its successor.
        newest = max(same, key=lambda p: (not p.finished, p.metadata.creation_timestamp or ""))
        elastic = elastic_why(state, newest, unplanned().get(newest.uid))
        return await as_json(why_view(state, newest).model_copy(update={"elastic": elastic}))


def _each_pod(state: ClusterState) -> list[Pod]:
    return [
        *(waiting.pod for waiting in state.pending.pods.values()),
        *(reservation.pod for reservation in state.reservations.values()),
        *(charge.pod for charge in state.charges.values()),
    ]


def _pod_of(state: ClusterState, uid: PodUid) -> Pod | None:
    if (charge := state.charges.get(uid)) is not None:
        return charge.pod
    if (reservation := state.reservations.get(uid)) is not None:
        return reservation.pod
    waiting = state.pending.pods.get(uid)
    return waiting.pod if waiting else None


def _add_quotas(router: APIRouter, state: ClusterState) -> None:
    @router.get("/quotas", response_model=QuotaPage, summary="ResourceQuotas on devices")
    async def quotas(namespace: str = "", limit: Limit = 100, after: After = "") -> Response:
        names = {
            f"{quota.namespace}/{quota.name}": key
            for key, quota in state.quotas.items()
            if namespace in ("", quota.namespace)
        }
        turns, items, chosen = Turns(), list[QuotaView](), await page(names, after, len(names))
        for key in chosen:
            if (quota := state.quotas.get(names[key])) is not None:
                view = quota_view(state, quota)
                if view.limits or view.counted_by_kubernetes:
                    items.append(view)
            await turns.pause()
            if len(items) > limit:
                break
        last = items[min(limit, len(items)) - 1] if items else None
        more = f"{last.namespace}/{last.name}" if last and len(items) > limit else ""
        return await as_json(QuotaPage(items=items[:limit], more=more))


def _add_summary(router: APIRouter, state: ClusterState, leading: Callable[[], bool]) -> None:
    @router.get("/summary", response_model=SummaryView, summary="The cluster in one look")
    async def summary() -> Response:
        pods: Counter[PodPhase] = Counter({"waiting": 0, "reserved": 0, "binding": 0, "bound": 0})
        pods["waiting"] += len(state.pending.pods)
        pods["bound"] += len(state.charges)
        for reservation in state.reservations.values():
            pods[reservation.phase.value] += 1
        limited = {(held.namespace, held.name) for held in state.ledger.constraints if held.limits}
        turns, by_vendor = Turns(), dict[str, list[tuple[Device, Usage]]]()
        for name in list(state.nodes):
            for device, usage in state.table.inventory(name):
                by_vendor.setdefault(device.vendor, []).append((device, usage))
            await turns.pause()
        vendors = {
            vendor: await asyncio.to_thread(vendor_summary, held)
            for vendor, held in sorted(by_vendor.items())
        }
        view = SummaryView(
            leading=leading(),
            nodes=len(state.nodes),
            vendors=vendors,
            pods=dict(pods),
            quotas=len(limited),
        )
        return await as_json(view)
