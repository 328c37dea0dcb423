"""The per-node configuration: which of its entries are about this node.

HAMi's form is ``{"nodeconfig": [{"name": NODE, KEY: VALUE, ...}, ...]}``. Ours adds ``selector``,
labels that a node must have, so that a pool of nodes needs one entry. What the other keys mean is
the vendor's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hami.domain.errors import ConfigError, shortened
from hami.settings.source import read_file

Entry = Mapping[str, Any]

_LIST = "nodeconfig"


def read_entries(path: Path) -> list[Entry]:
    """The entries of a file, in its order; JSON is YAML too.

    Raises:
        ConfigError: the file cannot be read, or an entry is none.
    """
    content = read_file(path)
    for key in content:
        if key.lower() != _LIST:
            raise ConfigError(
                f"{path}: {shortened(key)!r} is not known; write a list named {_LIST}"
            )
    lists = list(content.values())
    if len(lists) > 1:
        raise ConfigError(f"{path}: {_LIST} is there in two spellings; keep one")
    return checked_entries(lists[0] if lists else None, str(path))


def checked_entries(value: Any, where: str) -> list[Entry]:
    """The entries of a list that was read; None is an empty one.

    Raises:
        ConfigError: it is no list, or an entry does not say which node it is about.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(
            f"{where}: {_LIST} is {shortened(repr(value))}; write a list of entries, each with a "
            f"name or a selector"
        )
    for number, entry in enumerate(value, start=1):
        if problem := next(_problems(entry), None):
            raise ConfigError(f"{where}: entry {number} of {_LIST} {problem}")
    return value


def _problems(entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict) or not all(isinstance(key, str) for key in entry):
        yield f"is {shortened(repr(entry))}; write keys and values"
        return
    known: set[str] = set()
    for key in entry:
        if key.lower() in known:
            yield f"has the key {shortened(key)!r} twice, but for its case; keep one"
        known.add(key.lower())
    name, selector = _part(entry, "name"), _part(entry, "selector")
    if not isinstance(name, str | None):
        yield f"has the name {shortened(repr(name))}; write a node's name, in quotes"
    if selector is not None and not _are_labels(selector):
        yield (
            f"has the selector {shortened(repr(selector))}; write labels and their values, in "
            f"quotes where YAML reads something else"
        )
    if not name and not selector:
        yield "is about no node; give it a name, or a selector with labels"


def _are_labels(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(text, str) for text in (*value, *value.values())
    )


def _part(entry: Entry, name: str) -> Any:
    """The value of a key in any case: HAMi reads keys so."""
    return next((value for key, value in entry.items() if key.lower() == name), None)


def matching(entries: Sequence[Entry], name: str, labels: Mapping[str, str]) -> list[Entry]:
    """Those about the node of this name with these labels, in their order."""
    return [entry for entry in entries if _matches(entry, name, labels)]


def _matches(entry: Entry, name: str, labels: Mapping[str, str]) -> bool:
    """An entry with both a name and a selector needs both."""
    wanted, selector = _part(entry, "name"), _part(entry, "selector")
    if wanted and wanted != name:
        return False
    return all(labels.get(key) == value for key, value in (selector or {}).items())
