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
HAMIS = frozenset(
    family.name
    for family in (
        *compat.HOST_FAMILIES, *compat.CONTROLLER.families, *compat.USED_FAMILIES,
        compat.last_kernel(0), *compat.MIG.families,
    )
)  # fmt: skip


def tables() -> dict[str, str]:
    """Each generated table, by the name of its place in the page."""
    groups: Iterable[FamilyGroup[Any]] = (
        *device_groups(legacy=False), *container_groups(0, legacy=False), *SLICE_GROUPS,
        *VENDOR_GROUPS,
    )  # fmt: skip
    rows = [(family, group.labels) for group in groups for family in group.families]
    return {
        "hami": _table(
            ("metric", "labels", "what it says", "before 2.9"),
            [(*_metric(*row), _code(row[0].legacy)) for row in rows if row[0].name in HAMIS],
        ),
        "ours": _table(
            ("metric", "labels", "what it says"),
            [_metric(*row) for row in rows if row[0].name not in HAMIS],
        ),
        "process": _table(("metric", "labels", "what it says"), _process()),
        "shapes": "\n".join(map(_shape, SHAPES)),
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
    return f"{inspect.getdoc(shape)}\n\n{_table(('field', 'type', 'what it says'), rows)}"


def _kind(field: dict[str, Any]) -> str:
    """In a reader's words: ``number or null``, ``list of processes``."""
    if "anyOf" in field:
        return " or ".join(map(_kind, field["anyOf"]))
    if "$ref" in field:
        return "object"
    if "enum" in field:
        return " or ".join(map(str, field["enum"]))
    if field["type"] == "array":
        return f"list of {_kind(field['items'])}s"
    return str(field["type"])


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return (
        "".join(f"| {' | '.join(line)} |\n" for line in lines)
        .replace("| --- ", "|---")
        .replace("|--- |", "|---|")
    )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()), encoding="utf-8")
