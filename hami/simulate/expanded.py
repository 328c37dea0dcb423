"""The pods of the files: those that are written there, and those that workloads would run now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

import msgspec

from hami.domain.errors import shortened
from hami.domain.kubernetes.objects import Node, Pod, PodSpec, Toleration
from hami.simulate.decode import decode
from hami.simulate.file_object import FileObject
from hami.simulate.kube_filter import KubeFilter, affinity_problem
from hami.simulate.lifecycle import read_life
from hami.simulate.names import cron_job_of, deployment_of
from hami.simulate.operators import (
    VOLCANO,
    JobSet,
    LeaderWorkerSet,
    RayCluster,
    RayJob,
    RayService,
    TrainingJob,
    VolcanoJob,
)
from hami.simulate.parts import MOST_PODS, Part, Path, Unrunnable, Workload, dotted, identified
from hami.simulate.workloads import CronJob, DaemonSet, Job, Replicated, StatefulSet

WORKLOADS: Mapping[str, type[Workload]] = MappingProxyType(
    {
        "Deployment": Replicated,
        "ReplicaSet": Replicated,
        "StatefulSet": StatefulSet,
        "DaemonSet": DaemonSet,
        "Job": Job,
        "CronJob": CronJob,
        "PyTorchJob": TrainingJob,
        "TFJob": TrainingJob,
        "MPIJob": TrainingJob,
        "XGBoostJob": TrainingJob,
        "PaddleJob": TrainingJob,
        "JAXJob": TrainingJob,
        "RayCluster": RayCluster,
        "RayJob": RayJob,
        "RayService": RayService,
        "LeaderWorkerSet": LeaderWorkerSet,
        "JobSet": JobSet,
    }
)
_MAKERS: Mapping[str, str] = MappingProxyType(
    {
        "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
        "jobset.sigs.k8s.io/jobset-name": "JobSet",
    }
)
"""Labels of pods that name what made them, for pods whose owners are not in the files."""
_NOW = datetime.max.replace(tzinfo=UTC)
"""A pod without a creation time counts as created now, after all that have one."""
_EVERYWHERE = tuple(
    Toleration(key=f"node.kubernetes.io/{condition}", operator="Exists", effect=effect)
    for condition, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
"""What the DaemonSet controller lets its pods tolerate.
https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations"""

Objects = Mapping[tuple[str, str, str], FileObject]


def pods_of(
    objects: Objects, nodes: Sequence[Node], warnings: list[str]
) -> list[tuple[Pod, FileObject]]:
    """The pods, each with the object that gives it, in scheduling order.

    ``warnings`` receives a sentence for each thing left out.

    Raises:
        ConfigError: names file, object, field and value, and what to write instead.
    """
    found: dict[tuple[str, str], tuple[Pod, FileObject]] = {}
    uids: dict[str, FileObject] = {}
    controllers = _controllers(objects)
    for one in objects.values():
        if one.key in controllers:
            warnings.append(
                f"{one.document.place}: {one.title} is not expanded: the files hold what it made"
            )
            continue
        for pod in _pods_of(one, nodes, warnings):
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


def _controllers(objects: Objects) -> set[tuple[str, str, str]]:
    """The objects of the files that other objects name as their makers."""
    made: set[tuple[str, str, str]] = set()
    for one in objects.values():
        for owner in one.metadata.owner_references or ():
            if not owner.controller:
                continue
            key = (owner.kind, one.namespace, owner.name)
            made.add(key)
            if owner.kind == "ReplicaSet" and key not in objects:
                # A dump of pods and Deployments lacks the ReplicaSets between them.
                made.add(("Deployment", one.namespace, deployment_of(owner.name, one.metadata)))
            if owner.kind == "Job" and key not in objects:
                made.add(("CronJob", one.namespace, cron_job_of(owner.name)))
        labels = one.metadata.labels or {}
        for label, kind in _MAKERS.items():
            if label in labels:
                made.add((kind, one.namespace, labels[label]))
    return made


def _pods_of(one: FileObject, nodes: Sequence[Node], warnings: list[str]) -> Iterator[Pod]:
    if one.kind == "Pod":
        yield from _written_pod(one, warnings)
    elif one.kind in WORKLOADS:
        yield from _workload_pods(one, nodes, warnings)


def _written_pod(one: FileObject, warnings: list[str]) -> Iterator[Pod]:
    pod = decode(one.document, one.title, Pod)
    _check_spec(one, pod.spec, "spec")
    # No scheduler looks at a pod that is being deleted or has scheduling gates.
    waits = not pod.spec.node_name
    if waits and (pod.metadata.deletion_timestamp or _gated(one, (), warnings)):
        return
    yield identified(pod)


def _workload_pods(one: FileObject, nodes: Sequence[Node], warnings: list[str]) -> Iterator[Pod]:
    api_version = one.document.value.get("apiVersion")
    volcano = one.kind == "Job" and str(api_version).startswith(VOLCANO)
    workload = decode(one.document, one.title, VolcanoJob if volcano else WORKLOADS[one.kind])
    try:
        parts = list(workload.parts())
    except Unrunnable as problem:
        raise one.error(str(problem)) from problem
    if (pods := sum(part.count for part in parts)) > MOST_PODS:
        raise one.error(f"asks for {pods} pods in all; ask for at most {MOST_PODS}")
    gated: dict[Path, bool] = {}
    for part in parts:
        if part.path not in gated:
            _check_spec(one, part.template.spec, dotted((*part.path, "spec")))
            gated[part.path] = _gated(one, part.path, warnings)
    if read_life(one.document, one.title).over:
        return
    for part in parts:
        if gated[part.path]:
            continue
        if part.on_each_node:
            yield from _on_each_node(one, part, nodes)
        else:
            yield from part.pods(workload.metadata, one.kind)


def _on_each_node(one: FileObject, part: Part, nodes: Sequence[Node]) -> Iterator[Pod]:
    """A DaemonSet's pods, each pinned to its node as the controller does it.

    https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#how-daemon-pods-are-scheduled
    """
    spec = part.template.spec
    spec = msgspec.structs.replace(spec, tolerations=[*(spec.tolerations or ()), *_EVERYWHERE])
    names = KubeFilter(nodes).candidates(Pod(spec=spec)).names
    every = msgspec.structs.replace(part.template, spec=spec)
    pods = replace(part, template=every, count=len(names)).pods(one.metadata, one.kind)
    for pod, node in zip(pods, names, strict=True):
        yield msgspec.structs.replace(pod, spec=_pinned(spec, node))


def _pinned(spec: PodSpec, node: str) -> PodSpec:
    """The specification with the node's name in place of its node affinity, which was obeyed."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return msgspec.structs.replace(spec, affinity={"nodeAffinity": required})


def _gated(one: FileObject, path: Path, warnings: list[str]) -> bool:
    """Whether the pod has a scheduling gate, so that no scheduler looks at it."""
    if gates := read_life(one.document, one.title, *path).gates:
        named = ", ".join(gates)
        warnings.append(
            f"{one.document.place}: {one.title} is left out: no scheduler looks at it before its "
            f"schedulingGates are removed: {named}"
        )
    return bool(gates)


def _check_spec(one: FileObject, spec: PodSpec, field: str) -> None:
    if not spec.containers:
        raise one.error(f"{field}.containers is empty; name at least one container")
    names = [container.name for container, _ in Pod(spec=spec).each_container()]
    for name in names:
        if not name or names.count(name) > 1:
            problem = f"two containers are named {name!r}" if name else "a container has no name"
            raise one.error(f"{field}: {problem}; give each a name of its own")
    if problem := affinity_problem(spec):
        raise one.error(f"{field}.affinity{problem}")


def _created(one: FileObject, pod: Pod) -> datetime:
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
