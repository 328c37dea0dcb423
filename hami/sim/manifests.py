"""Kubernetes manifests into the nodes, pods and quotas of a simulation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec

from hami.domain.errors import ConfigError, shortened
from hami.domain.objects import (
    CompositeElasticQuota,
    ElasticQuota,
    Metadata,
    Node,
    Pod,
    QuotaTree,
    ResourceQuota,
)
from hami.domain.units import PodUid
from hami.policy.quota.elastic.validation import QuotaObject
from hami.sim.decode import check_quantities, decode
from hami.sim.documents import Document, read_documents
from hami.sim.kube_filter import affinity_problem
from hami.sim.lifecycle import read_life
from hami.sim.names import deployment_of, generated_name
from hami.sim.workloads import KINDS as WORKLOADS
from hami.sim.workloads import Workload, identified

_CLUSTER_SCOPED = ("Node", "Namespace", "QuotaTree")
_ELASTIC: Mapping[str, type[QuotaObject]] = MappingProxyType(
    {
        "ElasticQuota": ElasticQuota,
        "CompositeElasticQuota": CompositeElasticQuota,
        "QuotaTree": QuotaTree,
    }
)
_KINDS = ("Node", "Namespace", "Pod", "ResourceQuota", *_ELASTIC, *WORKLOADS)
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
_NOW = datetime.max.replace(tzinfo=UTC)
"""A pod without a creation time is created now: after all that have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """What the files hold. ``pods`` includes those of workloads, in scheduling order.

    ``from_cluster`` are the pods whose status a cluster wrote. ``warnings`` name what was left
    out and why.
    """

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    quotas: tuple[ResourceQuota, ...]
    elastic: tuple[QuotaObject, ...] = ()
    from_cluster: frozenset[PodUid] = frozenset()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Object:
    document: Document
    kind: str
    metadata: Metadata

    @property
    def namespace(self) -> str:
        return "" if self.kind in _CLUSTER_SCOPED else self.metadata.namespace or "default"

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.kind, self.namespace, self.metadata.name)

    @property
    def title(self) -> str:
        name = self.metadata.name
        return f"{self.kind} {self.namespace}/{name}" if self.namespace else f"{self.kind} {name}"

    def error(self, problem: str) -> ConfigError:
        return ConfigError(f"{self.document.place}: {self.title}: {problem}")


class _Head(msgspec.Struct):
    metadata: Metadata = Metadata()


def read_manifests(files: Iterable[tuple[str, str]]) -> Manifests:
    """From (file name, text) pairs.

    Pods are in the order in which a scheduler would see them: creation time, then priority, then
    place in the files.

    Raises:
        ConfigError: names file, object, field and value, and what to write instead.
    """
    warnings: list[str] = []
    objects: dict[tuple[str, str, str], _Object] = {}
    numbers: Counter[str] = Counter()
    for file, text in files:
        documents = read_documents(file, text)
        if not documents:
            warnings.append(f"{file} holds no object")
        for one in _objects(documents, numbers, warnings):
            if one.key in objects:
                former = objects[one.key].document.place
                raise one.error(f"is there twice, also at {former}; remove one of them")
            objects[one.key] = one
    nodes = [_node(o) for o in objects.values() if o.kind == "Node"]
    quotas = [_quota(o) for o in objects.values() if o.kind == "ResourceQuota"]
    elastic = [
        decode(o.document, o.title, _ELASTIC[o.kind])
        for o in objects.values()
        if o.kind in _ELASTIC
    ]
    if not nodes:
        warnings.append("no Node in the files: nothing can be placed")
    found = _pods(objects, warnings)
    return Manifests(
        nodes=tuple(nodes),
        pods=tuple(pod for pod, _ in found),
        quotas=tuple(quotas),
        elastic=tuple(elastic),
        from_cluster=frozenset(
            pod.uid
            for pod, one in found
            if one.kind == "Pod" and read_life(one.document, one.title).seen_by_scheduler
        ),
        warnings=tuple(warnings),
    )


def _objects(
    documents: Iterable[Document], numbers: Counter[str], warnings: list[str]
) -> Iterator[_Object]:
    for document, kind in _flattened(documents):
        metadata = document.value.get("metadata")
        title = _title(kind, metadata)
        # An unknown kind may have any shape, so it is left out before anything is decoded.
        if kind not in _KINDS:
            warnings.append(
                f"{document.place}: {title} is skipped; hami simulate reads {', '.join(_KINDS)}"
            )
            continue
        only_head = Document(document.file, document.line, {"metadata": metadata})
        head = decode(only_head, title, _Head)
        named, about = _named(document, kind, head.metadata, numbers)
        if not about.name:
            raise ConfigError(f"{document.place}: {title} has no metadata.name; give it one")
        for field in ("name", "namespace"):
            name = getattr(about, field)
            if name and not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{document.place}: {title}: metadata.{field} is {shortened(name)!r}; use "
                    f"lower-case letters, digits, '-' and '.', at most 253"
                )
        yield _Object(named, kind, about)


def _named(
    document: Document, kind: str, metadata: Metadata, numbers: Counter[str]
) -> tuple[Document, Metadata]:
    """With a name made from ``generateName``, where there is no other."""
    if metadata.name or not metadata.generate_name:
        return document, metadata
    about = f"{kind}/{metadata.namespace or 'default'}/{metadata.generate_name}"
    numbers[about] += 1
    name = generated_name(metadata.generate_name, f"{about}/{numbers[about]}")
    named = {**document.value, "metadata": {**document.value["metadata"], "name": name}}
    metadata = msgspec.structs.replace(metadata, name=name)
    return Document(document.file, document.line, named), metadata


def _title(kind: str, metadata: Any) -> str:
    """``Pod ml/train``, as far as it can be read."""
    if not isinstance(metadata, dict):
        return shortened(kind)
    name, namespace = metadata.get("name") or "", metadata.get("namespace") or "default"
    named = f"{name}" if kind in _CLUSTER_SCOPED else f"{namespace}/{name}"
    return f"{shortened(kind)} {shortened(named)}" if name else shortened(kind)


def _flattened(documents: Iterable[Document]) -> Iterator[tuple[Document, str]]:
    """Every object with its kind; a List is its items."""
    for document in documents:
        value: Any = document.value
        if not isinstance(value, dict):
            raise ConfigError(
                f"{document.place}: this is no Kubernetes object; write apiVersion, kind and "
                f"metadata"
            )
        kind = value.get("kind")
        if not isinstance(kind, str) or not kind:
            raise ConfigError(f"{document.place}: this object has no kind")
        items = value.get("items")
        if not kind.endswith("List") or not isinstance(items, list):
            yield document, kind
            continue
        of = kind.removesuffix("List")
        for item in items:
            if isinstance(item, dict) and of and not item.get("kind"):
                item = {"kind": of, **item}  # noqa: PLW2901 -- a PodList's items bear no kind
            yield from _flattened([Document(document.file, document.line, item)])


def _node(one: _Object) -> Node:
    node = decode(one.document, one.title, Node)
    if node.status:
        for field in ("allocatable", "capacity"):
            quantities = getattr(node.status, field)
            check_quantities(one.document, one.title, f"status.{field}", quantities)
    return node


def _quota(one: _Object) -> ResourceQuota:
    quota = decode(one.document, one.title, ResourceQuota)
    check_quantities(one.document, one.title, "spec.hard", quota.spec.hard)
    return quota


def _pods(
    objects: Mapping[tuple[str, str, str], _Object], warnings: list[str]
) -> list[tuple[Pod, _Object]]:
    """The pods, each with the object that gives it, in scheduling order."""
    found: dict[tuple[str, str], tuple[Pod, _Object]] = {}
    uids: dict[str, _Object] = {}
    controllers = _controllers(objects)
    for one in objects.values():
        if one.key in controllers:
            warnings.append(
                f"{one.document.place}: {one.title} is not expanded: the files hold what it made"
            )
            continue
        pods = _pods_of(one)
        if pods and _never_scheduled(one, pods[0], warnings):
            continue
        for pod in pods:
            key = (pod.namespace, pod.name)
            for former in filter(None, (found.get(key, (pod, None))[1], uids.get(pod.uid))):
                same = "the pod" if key in found else "the uid of the pod"
                raise one.error(
                    f"gives {same} {pod.full_name}, which {former.title} "
                    f"({former.document.place}) gives too; rename or remove one of them"
                )
            found[key] = (pod, one)
            uids[pod.uid] = one
    created = [(_created(one, pod), (pod, one)) for pod, one in found.values()]
    created.sort(key=lambda item: item[0])
    return [both for _, both in created]


def _controllers(
    objects: Mapping[tuple[str, str, str], _Object],
) -> set[tuple[str, str, str]]:
    """The objects that other objects of the files name as what made them."""
    made: set[tuple[str, str, str]] = set()
    for one in objects.values():
        for owner in one.metadata.owner_references or ():
            if not owner.controller:
                continue
            key = (owner.kind, one.namespace, owner.name)
            made.add(key)
            if owner.kind == "ReplicaSet" and key not in objects:
                # A dump of pods and Deployments lacks what stands between them.
                made.add(("Deployment", one.namespace, deployment_of(owner.name, one.metadata)))
    return made


def _never_scheduled(one: _Object, pod: Pod, warnings: list[str]) -> bool:
    """No scheduler looks at a pod that is going away, or that something holds back."""
    if pod.spec.node_name:
        return False
    if pod.metadata.deletion_timestamp:
        return True
    path = () if one.kind == "Pod" else ("spec", "template")
    if gates := read_life(one.document, one.title, *path).gates:
        named = ", ".join(gates)
        warnings.append(
            f"{one.document.place}: {one.title} is left out: no scheduler looks at it before its "
            f"schedulingGates are removed: {named}"
        )
    return bool(gates)


def _pods_of(one: _Object) -> list[Pod]:
    if one.kind == "Pod":
        pod = decode(one.document, one.title, Pod)
        if not pod.spec.containers:
            raise one.error("spec.containers is empty; name at least one container")
        _check_spec(one, pod, "spec")
        return [identified(pod)]
    if one.kind not in WORKLOADS:
        return []
    workload = decode(one.document, one.title, Workload)
    if problem := workload.problem():
        raise one.error(problem)
    over = one.kind == "Job" and read_life(one.document, one.title).job_over
    pods = [] if over else workload.pods(one.kind)
    if pods:
        _check_spec(one, pods[0], "spec.template.spec")
    return pods


def _check_spec(one: _Object, pod: Pod, field: str) -> None:
    names = [container.name for container, _ in pod.each_container()]
    for name in names:
        if not name or names.count(name) > 1:
            problem = f"two containers are named {name!r}" if name else "a container has no name"
            raise one.error(f"{field}: {problem}; give each a name of its own")
    if problem := affinity_problem(pod.spec):
        raise one.error(f"{field}.affinity{problem}")


def _created(one: _Object, pod: Pod) -> datetime:
    text = pod.metadata.creation_timestamp
    if not text:
        return _NOW
    try:
        created = datetime.fromisoformat(text)
    except ValueError:
        created = None
    if created is None or created.tzinfo is None:
        raise one.error(
            f"metadata.creationTimestamp is {shortened(text)!r}; write it like 2026-01-31T12:00:00Z"
        )
    return created
