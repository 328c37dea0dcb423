"""Kubernetes' own workloads: the pods that each would run now."""

from __future__ import annotations

from collections.abc import Iterator

from hami.domain.kubernetes.objects import Lean
from hami.simulate.parts import Part, Path, Template, Workload, count


class ReplicaSpec(Lean, frozen=True):
    """A template and a number of pods; ``part`` reads both from their place in the object."""

    template: Template = Template()
    replicas: int | None = None

    def part(self, stem: str, path: Path = ("spec",), *, first: int) -> Part:
        """The pods, numbered from ``first``: 1 where the controller draws names instead."""
        pods = count(self.replicas, (*path, "replicas"))
        at = (*path, "template")
        return Part(stem=stem, path=at, template=self.template, count=pods, first=first)


class Replicated(Workload, frozen=True):
    """A Deployment or a ReplicaSet."""

    spec: ReplicaSpec = ReplicaSpec()

    def parts(self) -> Iterator[Part]:
        yield self.spec.part(self.metadata.name, first=1)


class StatefulSet(Replicated, frozen=True):
    """A StatefulSet; its pods are numbered from 0."""

    def parts(self) -> Iterator[Part]:
        yield self.spec.part(self.metadata.name, first=0)


class DaemonSet(Replicated, frozen=True):
    """A DaemonSet: one pod on each node that takes it."""

    def parts(self) -> Iterator[Part]:
        yield Part(
            stem=self.metadata.name,
            path=("spec", "template"),
            template=self.spec.template,
            on_each_node=True,
        )


class JobSpec(Lean, frozen=True):
    """What a Job runs; other kinds contain one too."""

    template: Template = Template()
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None

    def parts(self, stem: str, path: Path) -> Iterator[Part]:
        """As many pods as the Job runs at once."""
        if self.suspend:
            return
        parallel = count(self.parallelism, (*path, "parallelism"))
        pods = min(parallel, count(self.completions, (*path, "completions"), parallel))
        yield Part(stem=stem, path=(*path, "template"), template=self.template, count=pods)


class JobTemplate(Lean, frozen=True):
    """A Job that another kind makes."""

    spec: JobSpec = JobSpec()


class Job(Workload, frozen=True):
    """A Job: as many pods as it runs at once."""

    spec: JobSpec = JobSpec()

    def parts(self) -> Iterator[Part]:
        return self.spec.parts(self.metadata.name, ("spec",))


class CronJobSpec(Lean, frozen=True):
    """The Job that each run makes."""

    job_template: JobTemplate = JobTemplate()
    suspend: bool | None = None


class CronJob(Workload, frozen=True):
    """A CronJob: the pods of one run."""

    spec: CronJobSpec = CronJobSpec()

    def parts(self) -> Iterator[Part]:
        if not self.spec.suspend:
            job = self.spec.job_template.spec
            yield from job.parts(self.metadata.name, ("spec", "jobTemplate", "spec"))
