"""YAML and JSON texts to plain values, as ``kubectl`` would read them.

PyYAML's own loader turns timestamps and ``1:30`` into other types than text, silently keeps the
last of two equal keys, and crashes the interpreter on deep nesting. Its event parser has none of
these faults, and building values from its events here is faster than its constructor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from hami.domain.errors import ConfigError, shortened
from hami.simulate.json_text import read_values

_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 100
_HALF = re.compile(r"[\ud800-\udfff]")
"""Half of a character: Python can hold one; UTF-8, and so the API server, cannot."""
_MOST_VALUES = 10_000_000
"""The most values in a document: an alias repeats its anchor's values, and a few nested ones would
fill any memory."""

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
# kubectl's parser speaks YAML 1.1 here: an unquoted ``yes`` is a boolean.
_TRUE = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_BASED = re.compile(r"[-+]?(0b[01]+|0o?[0-7]+|0x[0-9a-fA-F]+)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = frozenset(f"{sign}.{word}" for sign in ("", "+", "-") for word in ("inf", "Inf"))
_TEXT_TAG = "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file; ``line`` is where it starts, for messages."""

    file: str
    line: int
    value: Any

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


def read_documents(file: str, text: str) -> list[Document]:
    """Every document of a text; empty documents are left out.

    Raises:
        ConfigError: the text is neither YAML nor JSON, repeats a key, nests too deeply, or holds
            what no UTF-8 text can hold.
    """
    if half := _half(text):
        raise ConfigError(f"{file}:{text.count(chr(10), 0, half.start()) + 1}: {_no_utf8(half)}")
    if text.lstrip()[:1] == "{":
        documents = _read_json(file, text)
        if documents is not None:
            return documents
    try:
        return [d for d in _read_yaml(file, text) if d.value is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}" if mark else file
        raise ConfigError(f"{where}: this is not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise ConfigError(f"{file}: this is not valid YAML: {problem}") from error


def _read_json(file: str, text: str) -> list[Document] | None:
    """JSON objects one after the other; None for a text that is no JSON, but perhaps YAML."""
    read = read_values(text, deepest=_DEEPEST)
    if isinstance(read, list):
        return [Document(file, line, value) for line, value in read]
    if read.syntax and not file.endswith(".json"):
        return None
    what = "this is not valid JSON: " if read.syntax else ""
    raise ConfigError(f"{file}:{read.line}: {what}{read.problem}")


def _half(text: str) -> re.Match[str] | None:
    return None if text.isascii() else _HALF.search(text)


def _no_utf8(half: re.Match[str]) -> str:
    return f"the text holds \\u{ord(half.group()):04x}, half a character; write the whole one"


def _read_yaml(file: str, text: str) -> Iterator[Document]:
    events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            reader = _Reader(file, events)
            first = next(events)
            line = first.start_mark.line + 1
            yield Document(file, line, reader.value(first, 0))


class _Reader:
    """Builds the value of one document from its events."""

    def __init__(self, file: str, events: Iterator[Any]) -> None:
        self._file = file
        self._events = events
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._values = 0

    def value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if depth > _DEEPEST:
            raise self._error(event, f"this nests more than {_DEEPEST} levels deep")
        before = self._values
        self._values += 1
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                value.append(self.value(item, depth + 1))
        else:
            value = self._mapping(depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._values - before)
        return value

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise self._error(event, f"no anchor &{event.anchor} before this alias")
        value, size = self._anchors[event.anchor]
        self._values += size
        if self._values > _MOST_VALUES:
            raise self._error(event, "aliases repeat too much; write the objects out")
        return value

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[Any] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self.value(event, depth + 1)
            value = self.value(next(self._events), depth + 1)
            if key == "<<" and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                merged += value if isinstance(value, list) else [value]
                continue
            name = self._key(event, key)
            if name in found:
                raise self._error(event, f"the key {shortened(name)!r} is there twice")
            found[name] = value
        for other in merged:
            if not isinstance(other, dict):
                raise self._error(event, "only a mapping can be merged with <<")
            found = other | found
        return found

    def _key(self, event: Any, key: Any) -> str:
        if isinstance(key, str):
            return key
        if isinstance(event, yaml.ScalarEvent):
            return str(event.value)
        raise self._error(event, "a key must be a text")

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if half := _half(text):
            raise self._error(event, _no_utf8(half))
        if event.tag == _TEXT_TAG or not event.implicit[0]:
            if event.tag not in (None, "!", _TEXT_TAG):
                raise self._error(event, f"the tag {event.tag} is not supported; leave it out")
            return text
        if text in _NULL:
            return None
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        return self._number(event, text)

    def _number(self, event: Any, text: str) -> Any:
        if text[0] not in "+-.0123456789":
            return text
        if text in _NOT_FINITE or text == ".nan":
            raise self._error(event, f"{text} is no number that Kubernetes takes")
        try:
            if _DECIMAL.fullmatch(text):
                return int(text)
            if _BASED.fullmatch(text):
                sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
                octal = digits[1:].isdigit()
                return int(sign + digits, 8 if octal else 0)
            return float(text) if _FLOAT.fullmatch(text) else text
        except ValueError as error:
            raise self._error(event, f"{shortened(text)} is too long for a number") from error

    def _error(self, event: Any, problem: str) -> ConfigError:
        return ConfigError(f"{self._file}:{event.start_mark.line + 1}: {problem}")
