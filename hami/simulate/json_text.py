"""JSON texts to plain values; where JSON is faulty, the line and the reason.

The standard parser is fast, but it keeps the last of two equal keys, accepts ``NaN``, and gives no
line for what a hook refuses. So it does the reading, and a slow scan finds the place only when
something is wrong.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from hami.domain.errors import shortened

_TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")(?P<key>\s*:)?|(?P<open>[{\[])|(?P<close>[}\]])'
    r"|(?P<word>NaN|-?Infinity)|(?P<digits>-?\d{4301,}(?![\d.eE]))",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong and where.

    ``syntax``: the text is no JSON at all, but may be something else.
    """

    line: int
    problem: str
    syntax: bool = False


class _FaultyError(Exception):
    """The fast parser met a fault, whose place the scan will find."""


def read_values(text: str, *, deepest: int) -> list[tuple[int, Any]] | Fault:
    """Every value of a text with the line where it starts, or the first fault.

    ``deepest``: lists and objects may nest this many levels.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_not_finite)
    values: list[tuple[int, Any]] = []
    at, line = _skip(text, 0, 1)
    try:
        while at < len(text):
            value, end = decoder.raw_decode(text, at)
            if not _is_sound(value, deepest, escapes=text.find("\\u", at, end) >= 0):
                return _scan(text, at, deepest)
            values.append((line, value))
            at, line = _skip(text, end, line + text.count("\n", at, end))
    except json.JSONDecodeError as error:
        return Fault(error.lineno, error.msg, syntax=True)
    except (_FaultyError, ValueError, RecursionError):
        return _scan(text, at, deepest)
    return values


def _skip(text: str, at: int, line: int) -> tuple[int, int]:
    """The first place after white space, and its line."""
    end = at
    while end < len(text) and text[end].isspace():
        end += 1
    return end, line + text.count("\n", at, end)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _FaultyError
    return found


def _not_finite(_text: str) -> None:
    raise _FaultyError


def _is_sound(value: Any, deepest: int, *, escapes: bool) -> bool:
    """Whether a value is not too deep and has no half characters, which only escapes can write."""
    level, depth = [value], 0
    while containers := [v for v in level if isinstance(v, (dict, list))]:
        depth += 1
        if depth > deepest:
            return False
        level = [c for v in containers for c in (v.values() if isinstance(v, dict) else v)]
    return not escapes or _is_unicode(json.dumps(value, ensure_ascii=False))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scan(text: str, start: int, deepest: int) -> Fault:
    """The first fault from ``start`` on, token by token."""
    keys: list[set[str]] = []
    for token in _TOKEN.finditer(text, start):
        problem = ""
        match token.lastgroup:
            case "open":
                keys.append(set())
                problem = f"this nests more than {deepest} levels deep"
                problem = problem if len(keys) > deepest else ""
            case "close":
                keys = keys[:-1]
            case "text" | "key":
                problem = _text_problem(token, keys)
            case "word":
                problem = f"{token.group()} is no number that Kubernetes takes"
            case _:
                problem = f"{shortened(token.group())} is too long for a number"
        if problem:
            return Fault(text.count("\n", 0, token.start()) + 1, problem)
    return Fault(text.count("\n", 0, start) + 1, "this JSON cannot be read")


def _text_problem(token: re.Match[str], keys: list[set[str]]) -> str:
    """What is wrong with a text; the text may be a key of the innermost object."""
    text = json.loads(token["text"], strict=False)
    if not _is_unicode(text):
        return f"{shortened(token['text'])} holds half a character; write the whole one"
    if token["key"] and keys:
        if text in keys[-1]:
            return f"the key {shortened(text)!r} is there twice"
        keys[-1].add(text)
    return ""
