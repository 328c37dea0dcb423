"""What a workload lacks, what it has too much, and what its status says; pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hami.domain.kubernetes.objects import Lean, Metadata, Pod
from hami_lab.live import LivePod

BACKOFF_LIMIT = 6
"""The API's default for a Job's ``backoffLimit``."""


class OwnerMetadata(Metadata, frozen=True):
    generation: int | None = None


class Owner(Lean, frozen=True):
    """A workload object; its template is kept as it is written."""

    metadata: OwnerMetadata = OwnerMetadata()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] | None = None


Body = Mapping[str, Any]
"""An object to be created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``create`` objects, ``delete`` names, and the status as it should be."""

    create: Sequence[Body] = ()
    delete: Sequence[str] = ()
    status: Mapping[str, Any] = field(default_factory=dict)


def plan_replica_set(owner: Owner, pods: Sequence[LivePod]) -> Plan:
    """As many pods as ``replicas`` says; finished ones and those that go do not count."""
    active = [pod for pod in pods if is_active(pod)]
    wanted = _number(owner.spec, "replicas", 1)
    # Pods that wait go first, then the youngest, as the real controller prefers.
    surplus = sorted(active, key=lambda p: (bool(p.spec.node_name), _reversed(p)))
    return Plan(
        create=[_pod(owner, "ReplicaSet") for _ in range(wanted - len(active))],
        delete=[pod.name for pod in surplus[: max(0, len(active) - wanted)]],
        status=_replicas(owner, active),
    )


def plan_stateful_set(owner: Owner, pods: Sequence[LivePod]) -> Plan:
    """Pods named ``<name>-0`` and on, all at once."""
    wanted = _number(owner.spec, "replicas", 1)
    names = [f"{owner.metadata.name}-{number}" for number in range(wanted)]
    there = {pod.name for pod in pods}
    return Plan(
        create=[_pod(owner, "StatefulSet", name) for name in names if name not in there],
        delete=[pod.name for pod in pods if is_active(pod) and pod.name not in names]
        + [pod.name for pod in pods if pod.finished and not pod.metadata.deletion_timestamp],
        status=_replicas(owner, [pod for pod in pods if is_active(pod)]),
    )


def plan_job(owner: Owner, pods: Sequence[LivePod]) -> Plan:
    """``parallelism`` pods at a time until ``completions`` have succeeded."""
    conditions = (owner.status or {}).get("conditions") or ()
    if any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions):
        return Plan(status=owner.status or {})
    succeeded = sum(_phase(pod) == "Succeeded" for pod in pods)
    failed = sum(_phase(pod) == "Failed" for pod in pods)
    active = [pod for pod in pods if is_active(pod)]
    parallelism = _number(owner.spec, "parallelism", 1)
    completions = _number(owner.spec, "completions", parallelism)
    status: dict[str, Any] = {"succeeded": succeeded, "failed": failed, "active": len(active)}
    if succeeded >= completions:
        return Plan(
            delete=[pod.name for pod in active],
            status=status | {"conditions": [_condition("Complete", "CompletionsReached")]},
        )
    if failed > _number(owner.spec, "backoffLimit", BACKOFF_LIMIT):
        return Plan(
            delete=[pod.name for pod in active],
            status=status | {"conditions": [_condition("Failed", "BackoffLimitExceeded")]},
        )
    wanted = 0 if owner.spec.get("suspend") else min(parallelism, completions - succeeded)
    return Plan(
        create=[_pod(owner, "Job") for _ in range(wanted - len(active))],
        delete=[pod.name for pod in active[wanted:]],
        status=status,
    )


def plan_deployment(owner: Owner, sets: Sequence[Owner]) -> tuple[Plan, Mapping[str, int]]:
    """One ReplicaSet for the present template; and new ``replicas`` for sets by name."""
    template = owner.spec.get("template") or {}
    hash_ = template_hash(template)
    name = f"{owner.metadata.name}-{hash_}"
    wanted = _number(owner.spec, "replicas", 1)
    scaled = {
        one.metadata.name: replicas
        for one in sets
        if _number(one.spec, "replicas", 1)
        != (replicas := wanted if one.metadata.name == name else 0)
    }
    exists = any(one.metadata.name == name for one in sets)
    statuses = [one.status or {} for one in sets]
    keys = ("replicas", "readyReplicas", "availableReplicas")
    totals = {key: sum(int(status.get(key) or 0) for status in statuses) for key in keys}
    current = next((one.status or {} for one in sets if one.metadata.name == name), {})
    available = totals["availableReplicas"] >= wanted
    status = {
        **totals,
        "updatedReplicas": int(current.get("replicas") or 0),
        "unavailableReplicas": max(0, wanted - totals["availableReplicas"]),
        "observedGeneration": owner.metadata.generation,
        "conditions": [
            {
                "type": "Available",
                "status": "True" if available else "False",
                "reason": f"MinimumReplicas{'Available' if available else 'Unavailable'}",
            },
            *(c for c in current.get("conditions") or () if c["type"] == "ReplicaFailure"),
        ],
    }
    create = [] if exists else [_replica_set(owner, name, hash_, wanted)]
    return Plan(create=create, status=status), scaled


def template_hash(template: Mapping[str, Any]) -> str:
    """Part of a ReplicaSet's name; equal templates have equal hashes."""
    text = msgspec.json.encode(template, order="deterministic")
    return f"{zlib.crc32(text):08x}".translate(str.maketrans("013ae", "xzwvm"))


def is_active(pod: Pod) -> bool:
    return not pod.finished and not pod.metadata.deletion_timestamp


def owner_reference(owner: Owner, kind: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _replica_set(owner: Owner, name: str, hash_: str, replicas: int) -> Body:
    template = owner.spec.get("template") or {}
    about = template.get("metadata") or {}
    labels = {**(about.get("labels") or {}), "pod-template-hash": hash_}
    return {
        "metadata": {
            "name": name,
            "namespace": owner.metadata.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(owner, "Deployment")],
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {**template, "metadata": {**about, "labels": labels}},
        },
    }


def _pod(owner: Owner, kind: str, name: str = "") -> Body:
    template = owner.spec.get("template") or {}
    about = template.get("metadata") or {}
    labels = dict(about.get("labels") or {})
    if kind == "Job":
        labels["batch.kubernetes.io/job-name"] = owner.metadata.name
    if kind == "StatefulSet":
        labels["statefulset.kubernetes.io/pod-name"] = name
    named = {"name": name} if name else {"generateName": f"{owner.metadata.name}-"}
    return {
        "metadata": {
            **named,
            "namespace": owner.metadata.namespace,
            "labels": labels,
            "annotations": about.get("annotations") or {},
            "ownerReferences": [owner_reference(owner, kind)],
        },
        "spec": template.get("spec") or {},
    }


def _replicas(owner: Owner, active: Sequence[LivePod]) -> dict[str, Any]:
    ready = sum((c := pod.condition("Ready")) is not None and c.status == "True" for pod in active)
    return {
        "replicas": len(active),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": owner.metadata.generation,
    }


def _condition(type_: str, reason: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "reason": reason}


def _phase(pod: LivePod) -> str:
    return pod.status.phase if pod.status else ""


def _number(spec: Mapping[str, Any], key: str, default: int) -> int:
    number = spec.get(key)
    return default if number is None else int(number)


def _reversed(pod: LivePod) -> tuple[int, ...]:
    """Sorts later creation times first."""
    return tuple(-ord(character) for character in pod.metadata.creation_timestamp or "")
