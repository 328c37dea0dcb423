"""Kubernetes manifests into the nodes, pods and quotas of a simulation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from hami.domain.errors import ConfigError, shortened
from hami.domain.objects import Metadata, Node, Pod, ResourceQuota
from hami.sim.decode import check_quantities, decode
from hami.sim.documents import Document, read_documents
from hami.sim.kube_filter import affinity_problem
from hami.sim.workloads import KINDS as WORKLOADS
from hami.sim.workloads import Workload, identified

_CLUSTER_SCOPED = ("Node", "Namespace")
_KINDS = ("Node", "Namespace", "Pod", "ResourceQuota", *WORKLOADS)
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
_NOW = datetime.max.replace(tzinfo=UTC)
"""A pod without a creation time is created now: after all that have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """What the files hold. ``pods`` includes those of workloads, in scheduling order.

    ``warnings`` name what was left out and why.
    """

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    quotas: tuple[ResourceQuota, ...]
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
    for file, text in files:
        documents = read_documents(file, text)
        if not documents:
            warnings.append(f"{file} holds no object")
        for one in _objects(documents, warnings):
            if one.key in objects:
                former = objects[one.key].document.place
                raise one.error(f"is there twice, also at {former}; remove one of them")
            objects[one.key] = one
    nodes = [_node(o) for o in objects.values() if o.kind == "Node"]
    quotas = [_quota(o) for o in objects.values() if o.kind == "ResourceQuota"]
    if not nodes:
        warnings.append("no Node in the files: nothing can be placed")
    return Manifests(
        nodes=tuple(nodes),
        pods=tuple(_pods(objects, warnings)),
        quotas=tuple(quotas),
        warnings=tuple(warnings),
    )


def _objects(documents: Iterable[Document], warnings: list[str]) -> Iterator[_Object]:
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
        if not head.metadata.name:
            raise ConfigError(f"{document.place}: {title} has no metadata.name; give it one")
        for field in ("name", "namespace"):
            name = getattr(head.metadata, field)
            if name and not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{document.place}: {title}: metadata.{field} is {shortened(name)!r}; use "
                    f"lower-case letters, digits, '-' and '.', at most 253"
                )
        yield _Object(document, kind, head.metadata)


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


def _pods(objects: Mapping[tuple[str, str, str], _Object], warnings: list[str]) -> list[Pod]:
    found: dict[tuple[str, str], tuple[Pod, _Object]] = {}
    uids: dict[str, _Object] = {}
    controllers = _controllers(objects.values())
    for one in objects.values():
        if one.key in controllers:
            warnings.append(
                f"{one.document.place}: {one.title} is not expanded: the files hold what it made"
            )
            continue
        for pod in _pods_of(one):
            key = (pod.namespace, pod.name)
            for former in filter(None, (found.get(key, (pod, None))[1], uids.get(pod.uid))):
                same = "the pod" if key in found else "the uid of the pod"
                raise one.error(
                    f"gives {same} {pod.full_name}, which {former.title} "
                    f"({former.document.place}) gives too; rename or remove one of them"
                )
            found[key] = (pod, one)
            uids[pod.uid] = one
    created = [(_created(one, pod), pod) for pod, one in found.values()]
    created.sort(key=lambda item: item[0])
    return [pod for _, pod in created]


def _controllers(objects: Iterable[_Object]) -> set[tuple[str, str, str]]:
    """The objects that other objects of the files name as what made them."""
    return {
        (owner.kind, one.namespace, owner.name)
        for one in objects
        for owner in one.metadata.owner_references or ()
        if owner.controller
    }


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
    pods = workload.pods(one.kind)
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
