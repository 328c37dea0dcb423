"""Pods of workloads: what a kind of workload says about each of its templates."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from hami.domain.kubernetes.objects import Lean, Metadata, OwnerReference, Pod, PodSpec
from hami.domain.units import PodUid

MOST_PODS = 1_000_000
"""A workload with more pods is a slip of the finger, and would fill the memory."""

Path = tuple[str | int, ...]
"""The way from an object to one of its fields."""


class Unrunnable(Exception):
    """A workload that no controller could run; the text names field, value and remedy."""


class Template(Lean, frozen=True):
    """A pod template."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class Workload(Lean, frozen=True):
    """An object that makes pods."""

    metadata: Metadata = Metadata()

    def parts(self) -> Iterator[Part]:
        """What the workload runs now; nothing while it is suspended.

        Raises:
            Unrunnable: a number makes no sense.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Pods that a workload makes from one template: ``<stem>-<first>`` and so on.

    ``path`` leads from the object to the template. ``on_each_node``: one pod for each node that
    the template may run on, instead of ``count``.
    """

    stem: str
    path: Path
    template: Template
    count: int = 1
    first: int = 1
    on_each_node: bool = False

    def pods(self, own: Metadata, kind: str) -> list[Pod]:
        """The pods of the workload ``own``, with names that do not change from run to run."""
        copied = self.template.metadata
        owner = OwnerReference(kind=kind, name=own.name, controller=True)
        pods = []
        for number in range(self.first, self.first + self.count):
            metadata = Metadata(
                name=f"{self.stem}-{number}",
                namespace=own.namespace or "default",
                creation_timestamp=own.creation_timestamp,
                labels=copied.labels,
                annotations=copied.annotations,
                owner_references=[owner],
            )
            pods.append(identified(Pod(metadata=metadata, spec=self.template.spec)))
        return pods


def dotted(path: Path) -> str:
    """The path as messages write it: ``spec.tasks[0].template``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def count(number: int | None, path: Path, default: int = 1) -> int:
    """The number of pods written at ``path``, or the controller's default.

    Raises:
        Unrunnable: the number is negative, or a slip of the finger.
    """
    if number is None:
        return default
    if not 0 <= number <= MOST_PODS:
        raise Unrunnable(f"{dotted(path)} is {number}; write a number from 0 to {MOST_PODS}")
    return number


def identified(pod: Pod) -> Pod:
    """The pod with a namespace and a uid; a missing uid is derived from the name."""
    metadata = pod.metadata
    if metadata.uid and metadata.namespace:
        return pod
    uid = metadata.uid or PodUid(str(uuid.uuid5(uuid.NAMESPACE_URL, f"pod/{pod.full_name}")))
    named = msgspec.structs.replace(metadata, uid=uid, namespace=pod.namespace)
    return msgspec.structs.replace(pod, metadata=named)
