"""The part of kube-scheduler that says which nodes a pod may go to.

Covers node selector, required node affinity, taints and cordoned nodes, with the rules and texts of
kube-scheduler's plugins NodeUnschedulable, TaintToleration and NodeAffinity. Does not look at CPU,
memory and the rest. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hami.domain.kubernetes.objects import Lean, Node, Pod, PodSpec
from hami.domain.kubernetes.taints import CORDON, keeping_out, untolerated

UNSCHEDULABLE = "node(s) were unschedulable"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"


class NodeRequirement(Lean, frozen=True):
    """One line of a node selector term, the API's ``NodeSelectorRequirement``."""

    key: str
    operator: str
    values: list[str] | None = None

    def problem(self) -> str:
        """Why the API server would refuse the requirement; empty when it would not."""
        values = self.values or []
        match self.operator:
            case "In" | "NotIn":
                return "" if values else f"{self.key} {self.operator} needs values"
            case "Exists" | "DoesNotExist":
                return f"{self.key} {self.operator} takes no values" if values else ""
            case "Gt" | "Lt":
                if len(values) == 1 and _integer(values[0]) is not None:
                    return ""
                return f"{self.key} {self.operator} needs one whole number"
            case _:
                return (
                    f"the operator {self.operator!r} of {self.key} is unknown; use In, NotIn, "
                    f"Exists, DoesNotExist, Gt or Lt"
                )

    def holds(self, labels: Mapping[str, str]) -> bool:
        value, values = labels.get(self.key), self.values or []
        match self.operator:
            case "In":
                return value in values
            case "NotIn":
                return value not in values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                number, bound = _integer(value), _integer(values[0])
                if number is None or bound is None:
                    return False
                return number > bound if self.operator == "Gt" else number < bound


class Term(Lean, frozen=True):
    match_expressions: list[NodeRequirement] | None = None
    match_fields: list[NodeRequirement] | None = None

    @property
    def requirements(self) -> list[NodeRequirement]:
        return [*(self.match_expressions or ()), *(self.match_fields or ())]

    def problem(self) -> str:
        fields = [r.key for r in self.match_fields or () if r.key != "metadata.name"]
        if fields:
            return f"matchFields knows metadata.name alone, not {fields[0]!r}"
        return next((p for r in self.requirements if (p := r.problem())), "")

    def holds(self, node: Node) -> bool:
        """Whether the term selects the node; an empty term selects no node."""
        return (
            bool(self.requirements)
            and all(r.holds(_labels(node)) for r in self.match_expressions or ())
            and all(r.holds({"metadata.name": node.name}) for r in self.match_fields or ())
        )


class NodeSelector(Lean, frozen=True):
    node_selector_terms: tuple[Term, ...] = ()


class NodeAffinity(Lean, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(Lean, frozen=True):
    node_affinity: NodeAffinity | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The nodes that a pod may go to, in order, and for each other node the reason."""

    names: Sequence[str]
    refused: Mapping[str, str]


class KubeFilter:
    """Answers for a fixed set of nodes; pods that ask alike share one answer."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._all = Candidates(tuple(node.name for node in nodes), {})
        self._every = frozenset(self._all.names)
        self._open = not any(keeping_out(node) for node in nodes)
        self._known: dict[object, Candidates] = {}

    def candidates(self, pod: Pod) -> Candidates:
        spec = pod.spec
        if self._open and not spec.node_selector and not spec.affinity:
            return self._all
        terms = _terms(spec)
        if (named := _named(terms)) is not None:
            # Each pod of a DaemonSet has its own node: all their answers would fill the memory.
            return self._decide(spec, terms, named)
        key = (
            frozenset((spec.node_selector or {}).items()),
            msgspec.json.encode(spec.affinity),
            tuple(spec.tolerations or ()),
        )
        if key not in self._known:
            self._known[key] = self._decide(spec, terms, self._every)
        return self._known[key]

    def _decide(
        self, spec: PodSpec, terms: Sequence[Term] | None, named: Container[str]
    ) -> Candidates:
        """Answer for one kind of pod.

        ``named``: the only nodes that kube-scheduler looks at.
        """
        refused: dict[str, str] = {}
        names: list[str] = []
        for node in self._nodes:
            reason = _refusal(node, spec, terms) if node.name in named else NOT_SELECTED
            if reason:
                refused[node.name] = reason
            else:
                names.append(node.name)
        return Candidates(tuple(names), refused)


def affinity_problem(spec: PodSpec) -> str:
    """What the API server would refuse in ``spec.affinity``, after the field's path; or nothing."""
    try:
        terms = _terms(spec)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$")
        return f"{field}: {problem.replace('`', '')}"
    if terms is None:
        return ""
    at = ".nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    if not terms:
        return f"{at} is empty; name at least one term"
    return next((f"{at}: {problem}" for term in terms if (problem := term.problem())), "")


def _terms(spec: PodSpec) -> Sequence[Term] | None:
    """The terms of the required node affinity; None when there is none."""
    if not spec.affinity:
        return None
    affinity = msgspec.convert(spec.affinity, Affinity).node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    return required.node_selector_terms if required else None


def _named(terms: Sequence[Term] | None) -> frozenset[str] | None:
    """The nodes that the terms name, if every term names some; None: any node may do."""
    names: set[str] = set()
    for term in terms or ():
        chosen = [r.values or () for r in term.match_fields or () if r.operator == "In"]
        if not chosen:
            return None
        names.update(*chosen)
    return frozenset(names) if terms else None


def _refusal(node: Node, spec: PodSpec, terms: Sequence[Term] | None) -> str:
    """kube-scheduler's first reason against the node, in its default plugins' order; or nothing."""
    taint = untolerated(spec, node)
    if taint is CORDON:
        return UNSCHEDULABLE
    if taint is not None:
        return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    selected = (spec.node_selector or {}).items() <= _labels(node).items()
    if not selected or (terms is not None and not any(term.holds(node) for term in terms)):
        return NOT_SELECTED
    return ""


def _labels(node: Node) -> Mapping[str, str]:
    """The node's labels with ``kubernetes.io/hostname``, which a hand-written manifest may lack."""
    return {"kubernetes.io/hostname": node.name, **node.labels}


def _integer(text: str | None) -> int | None:
    """The integer as Go's ParseInt reads it in base 10; None when it is none."""
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) < 20 else None
