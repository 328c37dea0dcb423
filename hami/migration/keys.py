"""One key of HAMi's values.yaml, and what becomes of a value that somebody has set there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

ABSENT: Final = "(absent)"
"""The default of a key that HAMi's templates read and its values.yaml does not list."""


class Unreadable(ValueError):
    """A value that is not what HAMi's chart expects of its key; the text says what it should be."""


class Verdict(StrEnum):
    """What became of a value. ``LOST`` and ``UNKNOWN`` want somebody's attention."""

    SAME = "same"
    TRANSLATED = "translated"
    NO_EFFECT = "no effect"
    DEFAULT = "default"
    LOST = "not honoured"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``text`` says to what, by which rule, or why not."""

    verdict: Verdict
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiKey:
    """``name`` has dots between its parts. ``text`` says what becomes of the key in general."""

    name: str
    default: Any
    verdict: Verdict
    text: str
    rule: Rule


class Draft:
    """The values of our chart as they grow, beside everything that HAMi's chart would have used."""

    def __init__(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.values: dict[str, Any] = {}
        self._theirs = {**defaults, **{k: v for k, v in given.items() if v is not None}}

    def theirs(self, name: str) -> Any:
        """HAMi's value: the one that was given, else its default."""
        return self._theirs[name]

    def read(self, path: str) -> Any:
        """Our value so far; None where there is none."""
        found: Any = self.values
        for part in path.split("."):
            if not isinstance(found, Mapping) or part not in found:
                return None
            found = found[part]
        return found

    def write(self, path: str, value: Any) -> None:
        """Set our value; ``path`` has dots between its parts."""
        *parents, last = path.split(".")
        place = self.values
        for part in parents:
            place = place.setdefault(part, {})
        place[last] = value

    def add(self, path: str, items: Iterable[Any], first: Iterable[Any] = ()) -> None:
        """Add to a list what it does not have yet; a list that is new begins with ``first``."""
        found = self.read(path)
        held = list(first) if found is None else list(found)
        self.write(path, [*held, *(item for item in items if item not in held)])


Rule = Callable[[Draft, Any], Outcome]
"""Writes what follows from a value that is not HAMi's default. Raises :class:`Unreadable`."""

Reader = Callable[[Any], Any]
"""A value as our chart wants it. Raises :class:`Unreadable`."""


def same(name: str, default: Any, to: str, read: Reader) -> HamiKey:
    """The same meaning under a key of our chart."""

    def rule(draft: Draft, value: Any) -> Outcome:
        draft.write(to, read(value))
        return Outcome(verdict=Verdict.SAME, text=to)

    return HamiKey(name=name, default=default, verdict=Verdict.SAME, text=to, rule=rule)


def translated(name: str, default: Any, text: str, rule: Rule) -> HamiKey:
    """``text`` says to what, and by which rule."""
    return HamiKey(name=name, default=default, verdict=Verdict.TRANSLATED, text=text, rule=rule)


def without_effect(name: str, default: Any, because: str) -> HamiKey:
    """Nothing of what it does for HAMi is missed."""

    def rule(_: Draft, __: Any) -> Outcome:
        return Outcome(verdict=Verdict.NO_EFFECT, text=because)

    return HamiKey(name=name, default=default, verdict=Verdict.NO_EFFECT, text=because, rule=rule)


def not_honoured(name: str, default: Any, because: str) -> HamiKey:
    """A value other than HAMi's default asks for what there is not; ``because`` names a remedy."""

    def rule(_: Draft, __: Any) -> Outcome:
        return Outcome(verdict=Verdict.LOST, text=because)

    return HamiKey(name=name, default=default, verdict=Verdict.NO_EFFECT, text=because, rule=rule)


# Readers.


def text(value: Any) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise Unreadable("must be a text")
    return str(value)


def filled(value: Any) -> str:
    if not (found := text(value).strip()):
        raise Unreadable("must not be empty")
    return found


def path(value: Any) -> str:
    if not (found := filled(value)).startswith("/"):
        raise Unreadable("must be a path that begins with /")
    return found.rstrip("/") or "/"


def flag(value: Any) -> bool:
    """HAMi quotes some of its booleans."""
    word = str(value).lower()
    if word not in ("true", "false"):
        raise Unreadable("must be true or false")
    return word == "true"


def whole(value: Any) -> int:
    try:
        return int(text(value))
    except ValueError as error:
        raise Unreadable("must be a whole number") from error


def at_least(least: int) -> Reader:
    def read(value: Any) -> int:
        if (found := whole(value)) < least:
            raise Unreadable(f"must be {least} or more")
        return found

    return read


def number(value: Any) -> int | float:
    try:
        found = float(text(value))
    except ValueError as error:
        raise Unreadable("must be a number") from error
    if not math.isfinite(found):
        raise Unreadable("must be a number")
    return int(found) if found.is_integer() else found


def texts(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise Unreadable("must be a list of texts")
    return [text(item) for item in value]


def labels(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise Unreadable("must be names and texts")
    return {str(name): text(item) for name, item in value.items()}


def mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Unreadable("must be a mapping")
    return dict(value)


def resources(value: Any) -> dict[str, Any]:
    """Of a container: requests and limits."""
    found = mapping(value)
    if set(found) - {"requests", "limits", "claims"}:
        raise Unreadable("must be requests and limits")
    mappings(found.get("claims", []))
    return {name: one if name == "claims" else mapping(one) for name, one in found.items()}


def mappings(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise Unreadable("must be a list of mappings")
    return [mapping(item) for item in value]


def one_of(*words: str) -> Reader:
    def read(value: Any) -> str:
        if value not in words:
            raise Unreadable(f"must be one of {', '.join(words)}")
        return str(value)

    return read
