"""Manifests of one's own on the embedded cluster: applied, and watched until nothing moves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from hami.domain.errors import ConfigError
from hami.domain.kubernetes.objects import Metadata, Pod
from hami.kube.errors import ApiError
from hami.simulate.documents import Document, read_documents
from hami.simulate.result import DeniedPod, Simulation
from hami_lab.cluster import EmbeddedCluster
from hami_lab.cluster.objects import apply, flattened, resource_of
from hami_lab.demo.picture import Cluster, picture
from hami_lab.live import LivePod

QUIET = 1.0
"""Seconds without a change after which nothing more is expected."""
LONGEST = 60.0
_FIRST = (
    "Namespace",
    "Node",
    "PriorityClass",
    "ResourceQuota",
    "QuotaTree",
    "CompositeElasticQuota",
    "ElasticQuota",
)
"""Kinds that others depend on; ``kubectl apply -f`` of a folder sorts by file name instead."""


def read_objects(files: Sequence[tuple[str, str]]) -> list[Document]:
    """Every object of (file name, text) pairs, those that others depend on first.

    Raises:
        ConfigError: a text is no manifest, or names a kind that nobody knows.
    """
    documents = [
        document for file, text in files for document in flattened(read_documents(file, text))
    ]
    for document in documents:
        try:
            resource_of(document.value["apiVersion"], document.value["kind"])
        except ConfigError as error:
            raise ConfigError(f"{document.place}: {error}") from error
    ranks = {kind: rank for rank, kind in enumerate(_FIRST)}
    return sorted(documents, key=lambda d: ranks.get(d.value["kind"], len(ranks)))


@dataclass(slots=True)
class Applied:
    """What the API server said to the objects."""

    denied: list[DeniedPod] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)


async def apply_objects(cluster: EmbeddedCluster, documents: Sequence[Document]) -> Applied:
    """Send them all; pods that admission denies are kept apart.

    Raises:
        ConfigError: another object is refused.
    """
    done = Applied()
    await _add_namespaces(cluster, documents)
    for document in documents:
        kind, about = document.value["kind"], document.value["metadata"]
        try:
            made = await apply(cluster.client, document.value)
        except ApiError as error:
            if error.outcome_unknown:
                raise
            if kind != "Pod":
                name = about.get("name")
                raise ConfigError(f"{document.place}: {kind} {name}: {error.message}") from error
            pod = Pod(metadata=msgspec.convert(about, Metadata))
            done.denied.append(DeniedPod(pod=pod, message=error.message))
            continue
        if kind == "Node":
            done.nodes.append(made.metadata.name)
        if done.nodes and kind != "Node":
            await cluster.ready_nodes(*done.nodes)
            done.nodes.clear()
    return done


async def _add_namespaces(cluster: EmbeddedCluster, documents: Sequence[Document]) -> None:
    """Those that objects name and no file brings, so that examples need not."""
    named = {d.value["metadata"].get("namespace") for d in documents} - {None, ""}
    brought = {d.value["metadata"].get("name") for d in documents if d.value["kind"] == "Namespace"}
    for name in sorted(map(str, named - brought)):
        metadata = {"name": name}
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


async def settled(cluster: EmbeddedCluster) -> None:
    """Until every pod has a node or a reason to have none, and no pod has changed for a while."""
    end = time.monotonic() + LONGEST
    former: object = None
    since = time.monotonic()

    async def quiet() -> bool | None:
        nonlocal former, since
        now = time.monotonic()
        current = {key: pod.metadata.resource_version for key, pod in cluster.pods.items()}
        if current != former:
            former, since = current, now
        decided = all(_is_decided(pod) for pod in cluster.pods.values())
        return True if (decided and now - since >= QUIET) or now >= end else None

    await cluster.eventually("a quiet cluster", quiet, timeout=LONGEST + 1)


async def outcome(cluster: EmbeddedCluster, applied: Applied) -> Simulation:
    """Who runs, who waits, who was denied."""
    objects = Cluster(
        nodes=await cluster.nodes(), pods=list(cluster.pods.values()), denied=applied.denied
    )
    return picture(objects, cluster.vendors)


def _is_decided(pod: LivePod) -> bool:
    condition = pod.condition("PodScheduled")
    refused = condition is not None and condition.status == "False"
    return pod.finished or bool(pod.spec.node_name) or refused
