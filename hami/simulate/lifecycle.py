"""Where an object stands in its life, as far as its status says: bound, held back, or over."""

from __future__ import annotations

from typing import Any

from hami.domain.kubernetes.objects import Lean, SchedulingGate
from hami.simulate.decode import decode
from hami.simulate.documents import Document

_ENDS = ("Complete", "Completed", "Succeeded", "Failed")
"""Conditions that mean the end of Jobs, JobSets and the training operators' jobs."""


class PodCondition(Lean, frozen=True):
    type: str = ""
    status: str = ""


class LifeSpec(Lean, frozen=True):
    scheduling_gates: list[SchedulingGate] | None = None


class LifeStatus(Lean, frozen=True):
    phase: str = ""
    conditions: list[PodCondition] | None = None


class Life(Lean, frozen=True):
    """The fields of a Pod, a pod template or a Job that tell how far it has come."""

    spec: LifeSpec = LifeSpec()
    status: LifeStatus = LifeStatus()

    @property
    def seen_by_scheduler(self) -> bool:
        """Whether the status comes from a cluster; a hand-written manifest has none."""
        conditions = self.status.conditions or ()
        return bool(self.status.phase) or any(c.type == "PodScheduled" for c in conditions)

    @property
    def over(self) -> bool:
        """Whether a Job, of whatever kind, has ended, so that it makes no more pods."""
        return any(c.type in _ENDS and c.status == "True" for c in self.status.conditions or ())

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of ``spec.schedulingGates``; no scheduler looks at the pod until all are gone.

        https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/
        """
        return tuple(gate.name for gate in self.spec.scheduling_gates or ())


def read_life(document: Document, owner: str, *path: str | int) -> Life:
    """Read the fields; ``path`` leads from the object to the pod template.

    Raises:
        ConfigError: a field has the wrong type.
    """
    tree: Any = document.value
    for step in path:
        tree = tree[step] if isinstance(step, int) else _mapping(tree).get(step)
    fields = {"spec": ("schedulingGates",), "status": ("phase", "conditions")}
    parts = {part: _mapping(_mapping(tree).get(part)) for part in fields}
    lean = {part: {name: parts[part].get(name) for name in fields[part]} for part in fields}
    return decode(Document(document.file, document.line, lean), owner, Life)


def _mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one: decoding the whole object refuses others."""
    return value if isinstance(value, dict) else {}
