"""Label and field selectors, as query parameters and as LabelSelector objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hami.sim.api.refusals import bad_request

Labels = Mapping[str, str]

_SET = re.compile(r"\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL = re.compile(r"\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*")
_PRESENT = re.compile(r"\s*(!?)\s*([^\s!=,()]+)\s*")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition; ``operator`` as a LabelSelector calls it."""

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
    """Whether every requirement does."""
    return all(requirement.holds(labels) for requirement in selector)


def label_selector(text: str) -> Selector:
    """A ``labelSelector`` parameter.

    Raises:
        Refusal: 400, the text is no selector.
    """
    found = []
    position = 0
    while text[position:].strip():
        for pattern, read in _FORMS:
            if (match := pattern.match(text, position)) and _ends(text, match.end()):
                found.append(read(match))
                position = match.end() + 1
                break
        else:
            raise bad_request(
                f"unable to parse requirement: found {text[position:]!r}, expected: identifier"
            )
    return tuple(found)


def _ends(text: str, position: int) -> bool:
    return position == len(text) or text[position] == ","


def _set(match: re.Match[str]) -> Requirement:
    key, operator, values = match.groups()
    chosen = frozenset(value.strip() for value in values.split(","))
    return Requirement(key, "In" if operator == "in" else "NotIn", chosen)


def _equal(match: re.Match[str]) -> Requirement:
    key, operator, value = match.groups()
    return Requirement(key, "NotIn" if operator == "!=" else "In", frozenset({value}))


def _present(match: re.Match[str]) -> Requirement:
    return Requirement(match[2], "DoesNotExist" if match[1] else "Exists")


_Read = Callable[[re.Match[str]], Requirement]
_FORMS: tuple[tuple[re.Pattern[str], _Read], ...] = (
    (_SET, _set),
    (_EQUAL, _equal),
    (_PRESENT, _present),
)


def field_selector(text: str, supported: Collection[str]) -> Selector:
    """A ``fieldSelector`` parameter over ``supported`` fields.

    Raises:
        Refusal: 400, the text is no selector or names a field that cannot be selected by.
    """
    found = []
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        operator = "NotIn" if key.endswith("!") else "In"
        key, value = key.removesuffix("!").strip(), value.removeprefix("=").strip()
        if key not in supported:
            raise bad_request(f"field label not supported: {key}")
        found.append(Requirement(key, operator, frozenset({value})))
    return tuple(found)


def object_selector(selector: Any) -> Selector:
    """A LabelSelector object; ``None`` and ``{}`` select everything."""
    if not selector:
        return ()
    equal = [
        Requirement(key, "In", frozenset({value}))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    rest = [
        Requirement(each["key"], each["operator"], frozenset(each.get("values") or ()))
        for each in selector.get("matchExpressions") or ()
    ]
    return (*equal, *rest)
