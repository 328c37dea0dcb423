"""The controllers' loop: whenever something changes, each workload concerned is looked at again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from hami.domain.kubernetes.objects import Metadata
from hami.kube.client import KubeClient
from hami.kube.errors import CONFLICT, NOT_FOUND, ApiError
from hami.kube.informer import Informer
from hami.kube.resources import Resource
from hami_lab.controllers.plans import (
    Body,
    Owner,
    Plan,
    plan_deployment,
    plan_job,
    plan_replica_set,
    plan_stateful_set,
)
from hami_lab.live import LIVE_PODS, LivePod

RETRY = 2.0
"""Seconds after which a workload that could not be served is looked at again."""
_SETTLED = frozenset({NOT_FOUND, CONFLICT})

Concern = tuple[str, str, str]
"""Kind, namespace, name."""


def _resource(group_version: str, plural: str, kind: str) -> Resource[Owner]:
    return Resource(
        group_version=group_version, plural=plural, kind=kind, type=Owner, namespaced=True
    )


_RESOURCES = (
    _resource("apps/v1", "deployments", "Deployment"),
    _resource("apps/v1", "replicasets", "ReplicaSet"),
    _resource("apps/v1", "statefulsets", "StatefulSet"),
    _resource("batch/v1", "jobs", "Job"),
)


class WorkloadControllers:
    """Makes and removes pods for workloads, until cancelled."""

    def __init__(self, client: KubeClient, *, on_problem: Callable[[str], None]) -> None:
        self._client = client
        self._on_problem = on_problem
        self._resources = {resource.kind: resource for resource in _RESOURCES}
        self._owners: dict[Concern, Owner] = {}
        self._pods: dict[str, dict[str, LivePod]] = defaultdict(dict)  # by owner's uid, by name
        self._unseen: dict[str, set[str]] = defaultdict(set)  # created, not yet shown to us
        self._due: asyncio.Queue[Concern] = asyncio.Queue()
        self._queued: set[Concern] = set()

    async def run(self) -> None:
        """Follow workloads and pods until cancelled."""
        informers: list[Informer[Any]] = [
            Informer(self._client, resource, _Owners(self, kind), on_problem=self._on_problem)
            for kind, resource in self._resources.items()
        ]
        informers.append(
            Informer(self._client, LIVE_PODS, _Pods(self), on_problem=self._on_problem)
        )
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run())
            for informer in informers:
                await informer.synced.wait()
            while True:
                concern = await self._due.get()
                self._queued.discard(concern)
                if not await self._serve(concern):
                    asyncio.get_running_loop().call_later(RETRY, self._look_at, concern)

    # What the informers say.

    def owner_changed(self, kind: str, owner: Owner) -> None:
        self._owners[kind, owner.metadata.namespace, owner.metadata.name] = owner
        self._unseen[owner.metadata.uid].discard(owner.metadata.name)
        self._look_at((kind, owner.metadata.namespace, owner.metadata.name))
        self._look_at_owner_of(owner.metadata)

    def owner_gone(self, kind: str, owner: Owner) -> None:
        concern = (kind, owner.metadata.namespace, owner.metadata.name)
        self._owners.pop(concern, None)
        self._unseen.pop(owner.metadata.uid, None)
        self._look_at_owner_of(owner.metadata)
        # Nobody else collects what it leaves behind.
        for key, one in list(self._owners.items()):
            if _owner_uid(one.metadata) == owner.metadata.uid:
                self._look_at(key)
        for pod in self._pods.get(owner.metadata.uid, {}).values():
            self._look_at(("Pod", pod.namespace, pod.name))

    def pod_changed(self, pod: LivePod) -> None:
        uid = _owner_uid(pod.metadata)
        if uid:
            self._pods[uid][pod.name] = pod
            self._unseen[uid].discard(pod.name)
            self._look_at_owner_of(pod.metadata)

    def pod_gone(self, pod: LivePod) -> None:
        uid = _owner_uid(pod.metadata)
        if uid:
            self._pods[uid].pop(pod.name, None)
            self._look_at_owner_of(pod.metadata)

    def _look_at_owner_of(self, metadata: Metadata) -> None:
        for reference in metadata.owner_references or ():
            if reference.controller:
                self._look_at((reference.kind, metadata.namespace, reference.name))

    def _look_at(self, concern: Concern) -> None:
        if concern not in self._queued:
            self._queued.add(concern)
            self._due.put_nowait(concern)

    # One workload.

    async def _serve(self, concern: Concern) -> bool:
        """Whether all went well."""
        kind, namespace, name = concern
        owner = self._owners.get(concern)
        try:
            if kind == "Pod":
                await self._client.delete(LIVE_PODS, name, namespace=namespace)
            elif owner is not None and self._orphaned(owner):
                await self._client.delete(
                    self._resources[kind], name, namespace=namespace, uid=owner.metadata.uid
                )
            elif owner is not None and not owner.metadata.deletion_timestamp:
                return await self._reconcile(kind, owner)
        except ApiError as error:
            if error.status not in _SETTLED:
                self._on_problem(f"{kind} {namespace}/{name}: {error}")
                return False
        return True

    def _orphaned(self, owner: Owner) -> bool:
        """What made it is gone, and was of a kind that we follow."""
        return any(
            reference.controller
            and reference.kind in self._resources
            and all(one.metadata.uid != reference.uid for one in self._owners.values())
            for reference in owner.metadata.owner_references or ()
        )

    async def _reconcile(self, kind: str, owner: Owner) -> bool:
        uid = owner.metadata.uid
        if self._unseen[uid]:
            return True  # Its news will bring us back.
        if kind == "Deployment":
            return await self._reconcile_deployment(owner)
        pods = list(self._pods[uid].values())
        match kind:
            case "ReplicaSet":
                plan = plan_replica_set(owner, pods)
            case "StatefulSet":
                plan = plan_stateful_set(owner, pods)
            case _:
                plan = plan_job(owner, pods)
        refused = await self._create(LIVE_PODS, owner, plan.create)
        for name in plan.delete:
            await self._client.delete(LIVE_PODS, name, namespace=owner.metadata.namespace)
        await self._write_status(kind, owner, plan, refused)
        return not refused

    async def _reconcile_deployment(self, owner: Owner) -> bool:
        uid = owner.metadata.uid
        sets = [
            one
            for (kind, _, _), one in self._owners.items()
            if kind == "ReplicaSet" and _owner_uid(one.metadata) == uid
        ]
        plan, scaled = plan_deployment(owner, sets)
        resource = self._resources["ReplicaSet"]
        refused = await self._create(resource, owner, plan.create)
        for name, replicas in scaled.items():
            patch = {"spec": {"replicas": replicas}}
            await self._client.patch(resource, name, patch, namespace=owner.metadata.namespace)
        await self._write_status("Deployment", owner, plan, refused)
        return not refused

    async def _create(self, resource: Resource[Any], owner: Owner, bodies: Iterable[Body]) -> str:
        """Why one could not be created; empty when all were."""
        unseen = self._unseen[owner.metadata.uid]
        for body in bodies:
            try:
                made = await self._client.create(resource, body, namespace=owner.metadata.namespace)
            except ApiError as error:
                return error.message
            if resource is LIVE_PODS and made.name not in self._pods[owner.metadata.uid]:
                unseen.add(made.name)
        return ""

    async def _write_status(self, kind: str, owner: Owner, plan: Plan, refused: str) -> None:
        conditions = [*(plan.status.get("conditions") or ())]
        if refused:
            conditions.append(
                {
                    "type": "ReplicaFailure",
                    "status": "True",
                    "reason": "FailedCreate",
                    "message": refused,
                }
            )
        status: dict[str, Any] = {**plan.status, "conditions": conditions or None}
        if _differs(status, owner.status or {}):
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            for condition in conditions:
                condition.setdefault("lastTransitionTime", now)
            await self._client.patch(
                self._resources[kind],
                owner.metadata.name,
                {"status": status},
                namespace=owner.metadata.namespace,
                subresource="status",
            )


def _differs(wanted: dict[str, Any], there: dict[str, Any]) -> bool:
    """Absent, 0 and None are the same; times of conditions do not count."""

    def plain(conditions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: v for k, v in c.items() if k != "lastTransitionTime"} for c in conditions]

    return any(
        plain(value or ()) != plain(there.get(key) or ())
        if key == "conditions"
        else (value or 0) != (there.get(key) or 0)
        for key, value in wanted.items()
    )


def _owner_uid(metadata: Metadata) -> str:
    return next((r.uid for r in metadata.owner_references or () if r.controller), "")


class _Owners:
    def __init__(self, controllers: WorkloadControllers, kind: str) -> None:
        self._controllers = controllers
        self._kind = kind

    def changed(self, new: Owner, old: Owner | None) -> None:  # noqa: ARG002 -- the handler's signature
        self._controllers.owner_changed(self._kind, new)

    def gone(self, last: Owner) -> None:
        self._controllers.owner_gone(self._kind, last)


class _Pods:
    def __init__(self, controllers: WorkloadControllers) -> None:
        self._controllers = controllers

    def changed(self, new: LivePod, old: LivePod | None) -> None:  # noqa: ARG002 -- the handler's signature
        self._controllers.pod_changed(new)

    def gone(self, last: LivePod) -> None:
        self._controllers.pod_gone(last)
