"""Label selectors, as Kubernetes matches them.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition; ``operator`` is spelled as in a LabelSelector."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Labels) -> bool:
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


Selector = tuple[Requirement, ...]


def holds(selector: Selector, labels: Labels) -> bool:
    """Whether every requirement holds for these labels."""
    return all(requirement.holds(labels) for requirement in selector)


def object_selector(selector: Mapping[str, Any] | None) -> Selector:
    """A LabelSelector object that the API server has validated; None and ``{}`` select all."""
    if not selector:
        return ()
    equal = [
        Requirement(key, "In", frozenset({value}))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    rest = [
        Requirement(term["key"], term["operator"], frozenset(term.get("values") or ()))
        for term in selector.get("matchExpressions") or ()
    ]
    return (*equal, *rest)
