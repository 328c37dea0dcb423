"""The tables of ``docs/monitor.md``: what the monitor exports, and what its API answers.

``make monitor-tables`` writes them into the page; a test compares them with the code of now.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from hami.domain.units import VendorKey
from hami.monitor.exposition.compat import host_families as compat
from hami.monitor.exposition.families import SLICE_GROUPS, VENDOR_GROUPS, FamilyGroup, NodeFamily
from hami.monitor.exposition.node_text import container_groups, device_groups
from hami.monitor.metrics import MonitorMetrics
from hami.monitor.node_api import SHAPES

PAGE = Path(__file__).with_name("monitor.md")
_FAMILIES: tuple[NodeFamily[Any], ...] = (
    *compat.HOST_FAMILIES, *compat.CONTROLLER.families, *compat.USED_FAMILIES,
    compat.last_kernel(0), *compat.MIG.families,
)  # fmt: skip
HAMIS = frozenset(family.name for family in _FAMILIES)


def tables() -> dict[str, str]:
    """Each generated table, by the name of its place in the page."""
    groups: Iterable[FamilyGroup[Any]] = (
        *device_groups(legacy=False), *container_groups(0, legacy=False), compat.MIG, *SLICE_GROUPS,
        *VENDOR_GROUPS,
    )  # fmt: skip
    rows = [(family, group.labels) for group in groups for family in group.families]
    heads = ("metric", "labels", "what it says")
    hamis = [(*_metric(*row), _code(row[0].legacy)) for row in rows if row[0].name in HAMIS]
    return {
        "hami": _table((*heads, "before 2.9"), hamis),
        "ours": _table(heads, [_metric(*row) for row in rows if row[0].name not in HAMIS]),
        "process": _table(heads, _process()),
        "shapes": "\n".join([_shape(shape) for shape in SHAPES]),
    }


def page(text: str) -> str:
    """``text`` with the tables of now."""
    for name, table in tables().items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


def _metric(family: NodeFamily[Any], labels: Iterable[str]) -> tuple[str, str, str]:
    return _code(family.name), ", ".join(map(_code, labels)), family.help


def _process() -> list[tuple[str, str, str]]:
    text = MonitorMetrics([VendorKey("NVIDIA")]).text()
    helps = re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE)
    return [(_code(name), ", ".join(map(_code, _labels(name, text))), says) for name, says in helps]


def _labels(name: str, text: str) -> list[str]:
    lines = re.findall(rf"^{name}(?:_bucket)?{{(.*)}} ", text, re.MULTILINE)
    found = chain.from_iterable(re.findall(r'(\w+)="', line) for line in lines)
    return [label for label in dict.fromkeys(found) if label != "le"]


def _shape(shape: type[msgspec.Struct]) -> str:
    fields = msgspec.json.schema(shape)["$defs"][shape.__name__]["properties"]
    rows = [(_code(name), _kind(field), field["description"]) for name, field in fields.items()]
    heads = (f"{_named(shape.__name__)}'s field", "type", "what it says")
    return f"{inspect.getdoc(shape)}\n\n{_table(heads, rows)}"


def _named(shape: str) -> str:
    """``SliceDeviceShape`` is a slice device."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", shape.removesuffix("Shape")).lower()


def _kind(field: dict[str, Any]) -> str:
    """In a reader's words: ``number or null``, ``list of process``."""
    if "anyOf" in field:
        return " or ".join(map(_kind, field["anyOf"]))
    if "$ref" in field:
        return _named(field["$ref"].rpartition("/")[2])
    if "enum" in field:
        return " or ".join(map(str, field["enum"]))
    if field["type"] == "array":
        return f"list of {_kind(field['items'])}"
    return str(field["type"])


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Cells that are as in the row above say so, where there are labels."""
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    before = ""
    for name, labels, *more in rows:
        again = bool(labels) and "labels" in heads and labels == before
        lines.append(f"| {' | '.join([name, 'the same' if again else labels, *more])} |")
        before = labels
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()), encoding="utf-8")
