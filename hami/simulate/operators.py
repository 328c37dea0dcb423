"""Kinds of the common training and serving operators: the pods that each would run now.

Names are those that the operator gives; where it draws random names, pods are numbered from 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hami.domain.kubernetes.objects import Lean
from hami.simulate.parts import Part, Path, Template, Workload, count
from hami.simulate.workloads import JobTemplate, ReplicaSpec

VOLCANO = "batch.volcano.sh/"
"""The API group whose ``Job`` is another kind than Kubernetes' own."""


# Kubeflow's training operator.


class RunPolicy(Lean, frozen=True):
    suspend: bool | None = None


class RoleSpecs(Lean, frozen=True):
    """A ``spec`` with the replica specs of several operators; only the job's own field is set."""

    run_policy: RunPolicy = RunPolicy()
    pytorch_replica_specs: dict[str, ReplicaSpec] | None = None
    tf_replica_specs: dict[str, ReplicaSpec] | None = None
    mpi_replica_specs: dict[str, ReplicaSpec] | None = None
    xgb_replica_specs: dict[str, ReplicaSpec] | None = None
    paddle_replica_specs: dict[str, ReplicaSpec] | None = None
    jax_replica_specs: dict[str, ReplicaSpec] | None = None


class TrainingJob(Workload, frozen=True):
    """Pods ``<name>-<role>-<number>`` from 0."""

    spec: RoleSpecs = RoleSpecs()

    def parts(self) -> Iterator[Part]:
        if self.spec.run_policy.suspend:
            return
        for field in msgspec.structs.fields(self.spec):
            roles = getattr(self.spec, field.name) if field.name != "run_policy" else None
            for role, replicas in (roles or {}).items():
                stem = f"{self.metadata.name}-{role.lower()}"
                yield replicas.part(stem, ("spec", field.encode_name, role), first=0)


# KubeRay.


class HeadGroup(Lean, frozen=True):
    template: Template = Template()


class WorkerGroup(Lean, frozen=True):
    group_name: str = ""
    replicas: int | None = None
    min_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None
    template: Template = Template()


class RayClusterSpec(Lean, frozen=True):
    """The cluster of a RayCluster, a RayJob or a RayService."""

    head_group_spec: HeadGroup = HeadGroup()
    worker_group_specs: tuple[WorkerGroup, ...] = ()
    suspend: bool | None = None

    def parts(self, stem: str, path: Path) -> Iterator[Part]:
        """The head, and for each group the workers with which it begins."""
        if self.suspend:
            return
        head = self.head_group_spec.template
        yield Part(stem=f"{stem}-head", path=(*path, "headGroupSpec", "template"), template=head)
        for index, group in enumerate(self.worker_group_specs):
            at: Path = (*path, "workerGroupSpecs", index)
            minimum = count(group.min_replicas, (*at, "minReplicas"), 0)
            workers = max(minimum, count(group.replicas, (*at, "replicas"), minimum))
            hosts = count(group.num_of_hosts, (*at, "numOfHosts"))
            yield Part(
                stem=f"{stem}-{group.group_name}-worker",
                path=(*at, "template"),
                template=group.template,
                count=0 if group.suspend else workers * hosts,
            )


class RayCluster(Workload, frozen=True):
    """A head and groups of workers."""

    spec: RayClusterSpec = RayClusterSpec()

    def parts(self) -> Iterator[Part]:
        return self.spec.parts(self.metadata.name, ("spec",))


class RayJobSpec(Lean, frozen=True):
    ray_cluster_spec: RayClusterSpec | None = None
    suspend: bool | None = None


class RayJob(Workload, frozen=True):
    """The cluster that the job makes, unless it uses an existing one. Its submitter is left out."""

    spec: RayJobSpec = RayJobSpec()

    def parts(self) -> Iterator[Part]:
        if self.spec.ray_cluster_spec and not self.spec.suspend:
            yield from self.spec.ray_cluster_spec.parts(
                self.metadata.name, ("spec", "rayClusterSpec")
            )


class RayServiceSpec(Lean, frozen=True):
    ray_cluster_config: RayClusterSpec = RayClusterSpec()


class RayService(Workload, frozen=True):
    """The cluster that the service makes."""

    spec: RayServiceSpec = RayServiceSpec()

    def parts(self) -> Iterator[Part]:
        return self.spec.ray_cluster_config.parts(self.metadata.name, ("spec", "rayClusterConfig"))


# Kubernetes' special interest groups: LeaderWorkerSet and JobSet.


class LeaderWorkerTemplate(Lean, frozen=True):
    size: int | None = None
    leader_template: Template | None = None
    worker_template: Template = Template()


class LeaderWorkerSetSpec(Lean, frozen=True):
    replicas: int | None = None
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSet(Workload, frozen=True):
    """Groups of ``size`` pods: leaders ``<name>-<group>``, workers ``<name>-<group>-<number>``."""

    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()

    def parts(self) -> Iterator[Part]:
        name, group = self.metadata.name, self.spec.leader_worker_template
        at: Path = ("spec", "leaderWorkerTemplate")
        leaders = count(self.spec.replicas, ("spec", "replicas"))
        workers = count(group.size, (*at, "size")) - 1
        yield Part(
            stem=name,
            path=(*at, "leaderTemplate" if group.leader_template else "workerTemplate"),
            template=group.leader_template or group.worker_template,
            count=leaders,
            first=0,
        )
        for leader in range(leaders if workers > 0 else 0):
            yield Part(
                stem=f"{name}-{leader}",
                path=(*at, "workerTemplate"),
                template=group.worker_template,
                count=workers,
            )


class ReplicatedJob(Lean, frozen=True):
    name: str = ""
    replicas: int | None = None
    template: JobTemplate = JobTemplate()


class JobSetSpec(Lean, frozen=True):
    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    suspend: bool | None = None


class JobSet(Workload, frozen=True):
    """Jobs ``<name>-<job>-<number>`` from 0."""

    spec: JobSetSpec = JobSetSpec()

    def parts(self) -> Iterator[Part]:
        if self.spec.suspend:
            return
        for index, job in enumerate(self.spec.replicated_jobs):
            at: Path = ("spec", "replicatedJobs", index)
            for number in range(count(job.replicas, (*at, "replicas"))):
                stem = f"{self.metadata.name}-{job.name}-{number}"
                yield from job.template.spec.parts(stem, (*at, "template", "spec"))


# Volcano.


class Task(ReplicaSpec, frozen=True):
    name: str = ""


class VolcanoJobSpec(Lean, frozen=True):
    tasks: tuple[Task, ...] = ()


class VolcanoJob(Workload, frozen=True):
    """Pods ``<name>-<task>-<number>`` from 0."""

    spec: VolcanoJobSpec = VolcanoJobSpec()

    def parts(self) -> Iterator[Part]:
        for index, task in enumerate(self.spec.tasks):
            stem = f"{self.metadata.name}-{task.name or f'default{index}'}"
            yield task.part(stem, ("spec", "tasks", index), first=0)
