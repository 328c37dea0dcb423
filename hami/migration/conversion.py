"""HAMi's values read, and ours written: one finding for each key, and nothing dropped silently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from hami.domain.errors import shortened
from hami.migration.keys import ABSENT, Draft, HamiKey, Outcome, Unreadable, Verdict
from hami.migration.table import DIFFERENCES, VERSION, Difference, hami_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFinding:
    """What became of one key that the file has."""

    key: str
    verdict: Verdict
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """``values`` are our chart's; ``differences`` are defaults that change as nobody set them."""

    values: Mapping[str, Any]
    findings: tuple[KeyFinding, ...]
    differences: tuple[Difference, ...]

    @property
    def open(self) -> tuple[KeyFinding, ...]:
        """What wants somebody's attention."""
        wanted = (Verdict.LOST, Verdict.UNKNOWN)
        return tuple(one for one in self.findings if one.verdict in wanted)


def convert(values: Mapping[str, Any]) -> Conversion:
    """Translate a file of values for HAMi's chart; it may have any part of them.

    A value that is HAMi's default counts as not chosen: our default holds.
    """
    table = hami_keys()
    given: dict[str, Any] = {}
    findings: list[KeyFinding] = []
    for name, value in _leaves(values, table):
        if name in table:
            given[name] = value
        else:
            findings.append(_unknown(name, table))
    draft = Draft(given, {name: key.default for name, key in table.items()})
    chosen = set()
    for name, key in table.items():
        if name in given:
            outcome = _outcome(key, draft, given[name])
            findings.append(KeyFinding(key=name, verdict=outcome.verdict, text=outcome.text))
            if outcome.verdict is not Verdict.DEFAULT:
                chosen.add(name)
    return Conversion(
        values=draft.values,
        findings=tuple(findings),
        differences=tuple(one for one in DIFFERENCES if one.key not in chosen),
    )


def _leaves(
    values: Mapping[str, Any], table: Mapping[str, HamiKey], above: str = ""
) -> Iterator[tuple[str, Any]]:
    """The keys of a file, down to where the table has them; an unknown one with all below it."""
    for part, value in values.items():
        name = f"{above}{part}"
        inner = any(key.startswith(f"{name}.") for key in table)
        if name not in table and inner and isinstance(value, Mapping):
            yield from _leaves(value, table, f"{name}.")
        elif name in table or not (inner and value is None):
            yield name, value


def _unknown(name: str, table: Mapping[str, HamiKey]) -> KeyFinding:
    known = list(table)
    if any(key.startswith(f"{name}.") for key in known):
        text = f"it has keys below it in HAMi {VERSION}, and no value"
    else:
        groups = {key.rpartition(".")[0] for key in known} - {""}
        near = get_close_matches(name, [*groups, *known], n=1, cutoff=0.7)
        hint = f"; did you mean {near[0]}?" if near else ""
        text = f"HAMi {VERSION} has no such key{hint}"
    return KeyFinding(key=name, verdict=Verdict.UNKNOWN, text=text)


def _outcome(key: HamiKey, draft: Draft, value: Any) -> Outcome:
    if value is None or _alike(value, key.default):
        return Outcome(verdict=Verdict.DEFAULT, text="HAMi's default, so hami's holds")
    try:
        return key.rule(draft, value)
    except Unreadable as error:
        shown = shortened(str(value), 40)
        return Outcome(verdict=Verdict.LOST, text=f"{error}, and is {shown!r}")


def _alike(value: Any, default: Any) -> bool:
    """HAMi quotes some numbers and booleans, and whoever writes values leaves the quotes out."""
    if default is None or default == ABSENT:
        return value in ("", [], {})
    if isinstance(value, list | Mapping) or isinstance(default, list | Mapping):
        # An empty one is none, whichever it is.
        return bool(value == default or (not value and not default))
    return str(value).lower() == str(default).lower()
