"""Kubernetes manifests into the nodes, pods and quotas of a simulation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from hami.domain.errors import ConfigError, shortened
from hami.domain.kubernetes.objects import (
    CompositeElasticQuota,
    ElasticQuota,
    Metadata,
    Node,
    Pod,
    QuotaTree,
    ResourceQuota,
)
from hami.domain.units import PodUid
from hami.policy.quota.elastic.objects.validation import QuotaObject
from hami.simulate.decode import check_quantities, decode
from hami.simulate.documents import Document, read_documents
from hami.simulate.expanded import WORKLOADS, pods_of
from hami.simulate.file_object import CLUSTER_SCOPED, FileObject
from hami.simulate.lifecycle import read_life
from hami.simulate.names import generated_name

_ELASTIC: Mapping[str, type[QuotaObject]] = MappingProxyType(
    {
        "ElasticQuota": ElasticQuota,
        "CompositeElasticQuota": CompositeElasticQuota,
        "QuotaTree": QuotaTree,
    }
)
_KINDS = ("Node", "Namespace", "Pod", "ResourceQuota", *_ELASTIC, *WORKLOADS)
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """What the files hold. ``pods`` includes those of workloads, in scheduling order.

    ``from_cluster`` are the pods whose status a cluster wrote. ``warnings`` say what was left out
    and why.
    """

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    quotas: tuple[ResourceQuota, ...]
    elastic: tuple[QuotaObject, ...] = ()
    from_cluster: frozenset[PodUid] = frozenset()
    warnings: tuple[str, ...] = ()


class _Head(msgspec.Struct):
    metadata: Metadata = Metadata()


def read_manifests(files: Iterable[tuple[str, str]]) -> Manifests:
    """Read (file name, text) pairs.

    Pods are in the order in which a scheduler would see them: creation time, then priority, then
    place in the files.

    Raises:
        ConfigError: names file, object, field and value, and what to write instead.
    """
    warnings: list[str] = []
    skipped: list[tuple[Document, str]] = []
    objects: dict[tuple[str, str, str], FileObject] = {}
    numbers: Counter[str] = Counter()
    for file, text in files:
        documents = read_documents(file, text)
        if not documents:
            warnings.append(f"{file} holds no object")
        for one in _objects(documents, numbers, skipped):
            if one.key in objects:
                former = objects[one.key].document.place
                raise one.error(f"is there twice, also at {former}; remove one of them")
            objects[one.key] = one
    if skipped:
        warnings.append(_skipped(skipped))
    nodes = [_node(o) for o in objects.values() if o.kind == "Node"]
    quotas = [_quota(o) for o in objects.values() if o.kind == "ResourceQuota"]
    elastic = [
        decode(o.document, o.title, _ELASTIC[o.kind])
        for o in objects.values()
        if o.kind in _ELASTIC
    ]
    if not nodes:
        warnings.append("no Node in the files: nothing can be placed")
    found = pods_of(objects, nodes, warnings)
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
    documents: Iterable[Document], numbers: Counter[str], skipped: list[tuple[Document, str]]
) -> Iterator[FileObject]:
    for document, kind in _flattened(documents):
        metadata = document.value.get("metadata")
        title = _title(kind, metadata)
        # An unknown kind may have any shape, so it is left out before anything is decoded.
        if kind not in _KINDS:
            skipped.append((document, kind))
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
        yield FileObject(named, kind, about)


def _skipped(left_out: Sequence[tuple[Document, str]]) -> str:
    """One sentence about all documents that were skipped."""
    (first, kind), *more = left_out
    said = f"{first.place}: {_title(kind, first.value.get('metadata'))}"
    if more:
        kinds = Counter(shortened(kind) for _, kind in left_out)
        counted = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        said += f" and {len(more)} more are skipped ({counted})"
    else:
        said += " is skipped"
    return f"{said}; hami simulate reads {', '.join(_KINDS)}"


def _named(
    document: Document, kind: str, metadata: Metadata, numbers: Counter[str]
) -> tuple[Document, Metadata]:
    """The object with a name made from ``generateName``, where it has no other."""
    if metadata.name or not metadata.generate_name:
        return document, metadata
    about = f"{kind}/{metadata.namespace or 'default'}/{metadata.generate_name}"
    numbers[about] += 1
    name = generated_name(metadata.generate_name, f"{about}/{numbers[about]}")
    named = {**document.value, "metadata": {**document.value["metadata"], "name": name}}
    metadata = msgspec.structs.replace(metadata, name=name)
    return Document(document.file, document.line, named), metadata


def _title(kind: str, metadata: Any) -> str:
    """``Pod ml/train``, as far as the document can be read."""
    if not isinstance(metadata, dict):
        return shortened(kind)
    name, namespace = metadata.get("name") or "", metadata.get("namespace") or "default"
    named = f"{name}" if kind in CLUSTER_SCOPED else f"{namespace}/{name}"
    return f"{shortened(kind)} {shortened(named)}" if name else shortened(kind)


def _flattened(documents: Iterable[Document]) -> Iterator[tuple[Document, str]]:
    """Every object with its kind; a List stands for its items."""
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


def _node(one: FileObject) -> Node:
    node = decode(one.document, one.title, Node)
    if node.status:
        for field in ("allocatable", "capacity"):
            quantities = getattr(node.status, field)
            check_quantities(one.document, one.title, f"status.{field}", quantities)
    return node


def _quota(one: FileObject) -> ResourceQuota:
    quota = decode(one.document, one.title, ResourceQuota)
    check_quantities(one.document, one.title, "spec.hard", quota.spec.hard)
    return quota
