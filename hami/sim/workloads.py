"""Deployments, ReplicaSets, StatefulSets and Jobs into the pods that they would run now."""

from __future__ import annotations

import uuid

import msgspec

from hami.domain.objects import Lean, Metadata, OwnerReference, Pod, PodSpec
from hami.domain.units import PodUid

KINDS = ("Deployment", "ReplicaSet", "StatefulSet", "Job")
MOST_PODS = 1_000_000
"""More pods in one workload are a slip of the finger, and would fill the memory."""


class Template(Lean, frozen=True):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class WorkloadSpec(Lean, frozen=True):
    template: Template = Template()
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None


class Workload(Lean, frozen=True):
    metadata: Metadata = Metadata()
    spec: WorkloadSpec = WorkloadSpec()

    def problem(self) -> str:
        """What makes it impossible to run, or nothing."""
        for field in ("replicas", "parallelism", "completions"):
            number = getattr(self.spec, field)
            if number is not None and not 0 <= number <= MOST_PODS:
                return f"spec.{field} is {number}; write a number from 0 to {MOST_PODS}"
        if not self.spec.template.spec.containers:
            return "spec.template.spec.containers is empty; name at least one container"
        return ""

    def pods(self, kind: str) -> list[Pod]:
        """Its pods, with names that do not change from run to run.

        A StatefulSet counts from 0, as its controller does; the others, whose controllers draw
        random names, from 1.
        """
        own, copied = self.metadata, self.spec.template.metadata
        owner = OwnerReference(kind=kind, name=own.name, controller=True)
        first = 0 if kind == "StatefulSet" else 1
        pods = []
        for number in range(first, first + self._running(kind)):
            metadata = Metadata(
                name=f"{own.name}-{number}",
                namespace=own.namespace or "default",
                creation_timestamp=own.creation_timestamp,
                labels=copied.labels,
                annotations=copied.annotations,
                owner_references=[owner],
            )
            pods.append(identified(Pod(metadata=metadata, spec=self.spec.template.spec)))
        return pods

    def _running(self, kind: str) -> int:
        spec = self.spec
        if kind != "Job":
            return 1 if spec.replicas is None else spec.replicas
        if spec.suspend:
            return 0
        parallelism = 1 if spec.parallelism is None else spec.parallelism
        return parallelism if spec.completions is None else min(parallelism, spec.completions)


def identified(pod: Pod) -> Pod:
    """The pod with a namespace and a uid; a missing uid follows from its name."""
    metadata = pod.metadata
    if metadata.uid and metadata.namespace:
        return pod
    uid = metadata.uid or PodUid(str(uuid.uuid5(uuid.NAMESPACE_URL, f"pod/{pod.full_name}")))
    named = msgspec.structs.replace(metadata, uid=uid, namespace=pod.namespace)
    return msgspec.structs.replace(pod, metadata=named)
