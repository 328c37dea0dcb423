"""Which nodes a pod may not go to because of taints, by the rules of kube-scheduler's plugins.

https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from __future__ import annotations

from collections.abc import Sequence

from hami.domain.kubernetes.objects import Node, PodSpec, Taint, Toleration

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint that ``spec.unschedulable`` stands for, whether or not a controller has added it."""

_KEEPING_OUT = ("NoSchedule", "NoExecute")


def keeping_out(node: Node) -> Sequence[Taint]:
    """The node's taints that keep pods out; the cordon's comes first."""
    if node.spec is None:
        return ()
    taints = [t for t in node.spec.taints or () if t.effect in _KEEPING_OUT]
    return [CORDON, *taints] if node.spec.unschedulable else taints


def untolerated(spec: PodSpec, node: Node) -> Taint | None:
    """The first taint that keeps this pod out, or None."""
    tolerations = spec.tolerations or ()
    return next(
        (t for t in keeping_out(node) if not any(_tolerates(one, t) for one in tolerations)), None
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value
