"""Kubernetes' types, as its OpenAPI definitions describe them: fields, their types, merge keys.

``kubernetes.json`` holds them; ``make openapi`` writes it. A type is a short text there: ``text``,
``int32``, ``core.v1.PodSpec``; ``{}text`` is a map of texts and ``[]text`` a list, which a patch
replaces. A patch merges the entries of ``[name]core.v1.Container`` by their ``name``, and adds to
``[*]text`` what is not in it yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from hami_lab.api.objects.kinds import Kind


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value without parts: ``text``, ``int32``, ``quantity``, or ``any`` for free JSON."""

    name: str


@dataclass(frozen=True, slots=True)
class Entries:
    """A map from texts to ``value``."""

    value: Type


@dataclass(frozen=True, slots=True)
class Items:
    """A list; ``merge`` is the key by which a patch finds an entry, ``*`` the entry itself.

    Without ``merge`` a patch replaces the whole list.
    """

    item: Type
    merge: str


@dataclass(frozen=True, slots=True)
class Record:
    """An object; ``fields`` by JSON name. ``name`` is as in ``core.v1.Pod``."""

    name: str
    fields: Mapping[str, Type]


Type = Leaf | Entries | Items | Record

ANY = Leaf("any")


def _read() -> tuple[Mapping[str, Record], Mapping[str, Record]]:
    """Every record by its name; every kind by its apiVersion and kind."""
    written = json.loads((Path(__file__).parent / "kubernetes.json").read_bytes())
    # Types refer to each other in circles: their fields follow when every record is there.
    fields: dict[str, dict[str, Type]] = {name: {} for name in written["types"]}
    records = {name: Record(name, MappingProxyType(fields[name])) for name in fields}
    known: dict[str, Type] = dict(records)
    for name, texts in written["types"].items():
        for field, text in texts.items():
            fields[name][field] = _type(text, known)
    kinds = {kind: records[name] for kind, name in written["kinds"].items()}
    return MappingProxyType(records), MappingProxyType(kinds)


def _type(text: str, known: dict[str, Type]) -> Type:
    """Each text once: most fields have one of a few hundred types."""
    if text not in known:
        if text.startswith("{}"):
            known[text] = Entries(_type(text[2:], known))
        elif text.startswith("["):
            merge, _, item = text[1:].partition("]")
            known[text] = Items(_type(item, known), merge)
        else:
            known[text] = Leaf(text)
    return known[text]


RECORDS, KINDS = _read()

CUSTOM = Record("", MappingProxyType({"metadata": RECORDS["meta.v1.ObjectMeta"]}))
"""What is known of an object of a custom resource; its CRD's schema says the rest."""


def type_of(kind: Kind) -> Record:
    """The type of a kind's objects as they are stored: of every Event, the core group's."""
    if kind.storage == ("", "events"):
        return KINDS["v1 Event"]
    return KINDS.get(f"{kind.group_version} {kind.kind}", CUSTOM)
