"""Label and field selectors, as query parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from hami.domain.kubernetes.selectors import Requirement, Selector
from hami_lab.api.objects.refusals import bad_request

_SET = re.compile(r"\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL = re.compile(r"\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*")
_PRESENT = re.compile(r"\s*(!?)\s*([^\s!=,()]+)\s*")


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
