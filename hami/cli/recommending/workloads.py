"""What the monitors say, by workload: a Deployment's pods ask for the same, so they are one line.

Pure: values in, values out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hami.cli.recommending.monitors import Heard
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import MIB, CorePercent, MemoryMiB, mib_down
from hami.monitor.node_api import NodeShape, SliceDeviceShape, SliceShape
from hami.policy.recommendation import (
    DeviceUse,
    NoRecommendation,
    Recommendation,
    recommend,
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class WorkloadName:
    """Whose template a pod is made of; a pod of nobody stands for itself."""

    namespace: str
    kind: str
    name: str

    @property
    def has_template(self) -> bool:
        return self.kind != "Pod"

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One container of one pod; ``nothing``: why it gets nothing, whatever it uses."""

    pod: str
    pod_uid: str
    generation: int
    vendor: str
    uses: tuple[DeviceUse, ...]
    nothing: NoRecommendation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a container of a workload could ask for, or why it is told nothing.

    ``replicas`` are those that the answer is about; ``left_out`` are names of other pods, and why.
    """

    workload: WorkloadName
    container: str
    vendor: str
    answer: Recommendation | NoRecommendation
    replicas: tuple[Replica, ...]
    left_out: tuple[tuple[str, NoRecommendation], ...] = ()

    @property
    def uses(self) -> Iterator[DeviceUse]:
        return (use for replica in self.replicas for use in replica.uses)

    @property
    def minutes(self) -> int:
        """Of the replica that least is known of."""
        return min((use.minutes for use in self.uses), default=0)

    @property
    def saves(self) -> tuple[int, int]:
        """MiB and percent, of all replicas and devices; negative where they get more."""
        if isinstance(self.answer, NoRecommendation):
            return 0, 0
        memory, cores = self.answer.memory_mib, self.answer.cores
        return (
            0 if memory is None else sum(use.memory_limit_mib - memory for use in self.uses),
            0 if cores is None else sum(use.guarantee - cores for use in self.uses),
        )


def advise(heard: Heard, namespace: str) -> tuple[Advice, ...]:
    """One for each container of each workload; ``namespace`` "" means all."""
    found: dict[tuple[WorkloadName, str], list[Replica]] = defaultdict(list)
    for (workload, uid, container), parts in _newest(heard, namespace).items():
        _, first = parts[0]
        replica = Replica(
            pod=first.pod if heard.pods is None else heard.pods[uid].name,
            pod_uid=uid,
            generation=max(part.generation for _, part in parts),
            vendor=first.vendor,
            uses=tuple(_uses(parts)),
            nothing=_nothing(parts),
        )
        found[workload, container].append(replica)
    return tuple(
        _together(workload, container, found[workload, container])
        for workload, container in sorted(found)
    )


_Part = tuple[NodeShape, SliceShape]


def _newest(heard: Heard, namespace: str) -> dict[tuple[WorkloadName, str, str], list[_Part]]:
    """The newest slice of each vendor, as the newest answer has it, by pod UID and container."""
    found: dict[tuple[WorkloadName, str, str], dict[str, _Part]] = defaultdict(dict)
    for node in sorted(heard.nodes, key=lambda node: node.taken_at):
        for one in node.slices:
            if namespace not in ("", one.namespace):
                continue
            workload = _workload(heard, node, one)
            if workload is None:
                continue
            held = found[workload, one.pod_uid, one.container]
            before = held.get(one.vendor)
            if before is None or one.created_at >= before[1].created_at:
                held[one.vendor] = (node, one)
    return {key: list(held.values()) for key, held in found.items()}


def _workload(heard: Heard, node: NodeShape, one: SliceShape) -> WorkloadName | None:
    """None for a pod that does not run on this node, or not for long."""
    if heard.pods is None:
        return WorkloadName(namespace=one.namespace, kind="Pod", name=one.pod)
    pod = heard.pods.get(one.pod_uid)
    if pod is None or pod.spec.node_name != node.node:
        return None
    if pod.finished or pod.metadata.deletion_timestamp:
        return None
    return workload_of(pod)


def workload_of(pod: Pod) -> WorkloadName:
    """The pod's controller; for a ReplicaSet of a Deployment, the Deployment."""
    owners = pod.metadata.owner_references or ()
    owner = next((owner for owner in owners if owner.controller), None)
    if owner is None:
        return WorkloadName(namespace=pod.namespace, kind="Pod", name=pod.name)
    # https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#pod-template-hash-label
    suffix = f"-{pod.labels.get('pod-template-hash', '')}"
    if owner.kind == "ReplicaSet" and len(suffix) > 1 and owner.name.endswith(suffix):
        name = owner.name.removesuffix(suffix)
        return WorkloadName(namespace=pod.namespace, kind="Deployment", name=name)
    return WorkloadName(namespace=pod.namespace, kind=owner.kind, name=owner.name)


def _nothing(parts: Sequence[_Part]) -> NoRecommendation | None:
    """What the amounts do not tell; there is one part for each vendor."""
    if len(parts) > 1:
        return NoRecommendation.SEVERAL_VENDORS
    _, one = parts[0]
    if one.source != "hami":
        return NoRecommendation.FOREIGN_LIBRARY
    if one.mig:
        return NoRecommendation.MIG
    return NoRecommendation.NO_FIGURES if one.problem else None


def _uses(parts: Sequence[_Part]) -> Iterator[DeviceUse]:
    for node, one in parts:
        totals = {(d.vendor, d.id): d.memory_total_bytes for d in node.devices}
        for device in one.devices:
            total = totals.get((one.vendor, device.device_id), 0)
            yield _use(device, total, (node.taken_at - one.created_at) / 60)


def _use(device: SliceDeviceShape, total: int, age_minutes: float) -> DeviceUse:
    hour = device.last_hour
    # A device that the node does not show now: nothing about it can be judged.
    known = hour is not None and total > 0
    return DeviceUse(
        memory_limit_mib=MemoryMiB(device.memory_limit_bytes // MIB),
        device_memory_mib=mib_down(total),
        guarantee=CorePercent(device.guarantee),
        used_bytes=device.used_bytes,
        max_used_bytes=hour.max_used_bytes if hour else 0,
        p95_utilisation=hour.p95_utilisation if hour else None,
        minutes=hour.minutes if hour and known else 0,
        waited_minutes=hour.waited_minutes if hour else 0,
        age_minutes=age_minutes,
    )


def _together(workload: WorkloadName, container: str, found: Sequence[Replica]) -> Advice:
    """The replicas that something is known of decide, and it is about them."""
    known: list[Replica] = []
    left_out: list[tuple[str, NoRecommendation]] = []
    for replica in sorted(found, key=lambda one: one.pod):
        own = replica.nothing or recommend(replica.uses)
        if isinstance(own, Recommendation) or own is NoRecommendation.FITS:
            known.append(replica)
        else:
            left_out.append((replica.pod, own))
    answer = recommend([use for one in known for use in one.uses]) if known else left_out[0][1]
    return Advice(
        workload=workload,
        container=container,
        vendor=found[0].vendor,
        answer=answer,
        replicas=tuple(known or found),
        left_out=tuple(left_out) if known else (),
    )
