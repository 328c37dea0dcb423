"""Placements and devices as lines: side by side where they fit, else one under the other.

Device ids are never cut or folded, because people copy them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from hami.cli.terminal.escaping import visible
from hami.cli.terminal.width import Glyphs, glyphs_for
from hami.domain.allocations import ContainerKind
from hami.domain.devices import Grant, Usage
from hami.simulate.result import NodeDevice, PlacedPod

_NO_LIMIT = 1_000_000
_MOST_ROWS = 200
"""The most rows that help on a terminal; ``--json`` has everything."""


def table(*headings: str) -> Table:
    """An empty table whose columns fold."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    for heading in headings:
        made.add_column(heading, overflow="fold")
    return made


def fitting(console: Console, made: Table) -> RenderableType:
    """The table, or its rows as sentences where the terminal would break the table's cells."""
    unlimited = console.options.update_width(_NO_LIMIT)
    if console.measure(made, options=unlimited).maximum <= console.width:
        return made
    columns = [[str(cell) for cell in column.cells] for column in made.columns]
    headings = [str(column.header).lower() for column in made.columns]
    lines: list[RenderableType] = []
    for row, (first, *rest) in zip(made.rows, zip(*columns, strict=True), strict=True):
        said = (f"{what} {cell}" for what, cell in zip(headings[1:], rest, strict=True) if cell)
        style = row.style or ""
        lines.append(Text(first, style=Style.combine((Style(bold=True), Style.parse(str(style))))))
        lines.append(Padding(Text(", ".join(said), style=style), (0, 0, 0, 2), expand=False))
    return Group(*lines)


def placements(console: Console, placed: Sequence[PlacedPod]) -> RenderableType:
    """One line per device that a container got."""
    rows = _rows(placed)
    wide = _wide(rows)
    unlimited = console.options.update_width(_NO_LIMIT)
    fits = console.measure(wide, options=unlimited).maximum <= console.width
    left_out = sum(len(pod.allocation.grants) for pod in placed) - len(rows)
    return Group(wide if fits else Group(*_stacked(rows)), *_more(console, left_out, "placements"))


def _rows(placed: Sequence[PlacedPod]) -> list[tuple[PlacedPod, str, Grant]]:
    rows = (
        (pod, f"{container.name}{_INIT if container.kind is not ContainerKind.APP else ''}", grant)
        for pod in placed
        for container in pod.allocation.containers
        for grant in container.grants
    )
    return [row for row, _ in zip(rows, range(_MOST_ROWS), strict=False)]


_INIT = " (init)"


def _wide(rows: Sequence[tuple[PlacedPod, str, Grant]]) -> Table:
    made = table("Pod", "Node", "Container", "Device")
    made.add_column("MiB", justify="right")
    made.add_column("Cores", justify="right")
    with_extra = any(grant.extra for _, _, grant in rows)
    if with_extra:
        made.add_column("Extra")
    former = None
    for pod, container, grant in rows:
        first = ("", "") if pod is former else (pod.pod.full_name, pod.allocation.node)
        former = pod
        cells = [*first, container, grant.device_id, str(grant.memory_mib), _cores(grant)]
        cells += [_extra(grant)] if with_extra else []
        made.add_row(*(Text(visible(cell)) for cell in cells))
    return made


def _stacked(rows: Sequence[tuple[PlacedPod, str, Grant]]) -> Iterator[Text]:
    """The pod and its node, then a line per device; what may wrap comes last."""
    ids = max(len(visible(grant.device_id)) for _, _, grant in rows)
    memory = max(len(str(grant.memory_mib)) for _, _, grant in rows)
    former = None
    for pod, container, grant in rows:
        if pod is not former:
            yield Text(visible(f"{pod.pod.full_name} on {pod.allocation.node}"), style="bold")
        former = pod
        line = (
            f"  {visible(grant.device_id):{ids}}  {grant.memory_mib:{memory}} MiB  "
            f"{_cores(grant):>5}  {visible(container)}"
        )
        yield Text(line)
        if grant.extra:
            yield Text(f"    {visible(_extra(grant))}")


def _cores(grant: Grant) -> str:
    return f"{grant.cores} %" if grant.cores else "-"


def _extra(grant: Grant) -> str:
    """A vendor's own data as ``name=value``, such as the MIG profile and its placement."""
    return " ".join(
        f"{name}={value}"
        for key, data in grant.extra.encode().items()
        for name, value in _leaves(key, data)
    )


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, child in value.items():
                yield from _leaves(str(key), child)
        case list() | tuple():
            yield name, ",".join(map(str, value))
        case _:
            yield name, str(value)


def device_lines(console: Console, devices: Sequence[NodeDevice]) -> RenderableType:
    """A heading per node and model, then each device with its bars."""
    shown = devices[:_MOST_ROWS]
    glyphs = glyphs_for(console)
    cells = [_cells(one, glyphs) for one in shown]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    stacked = sum(widths) + 2 * len(widths) > console.width
    lines: list[Text] = []
    for (node, model), group in groupby(
        zip(shown, cells, strict=True), lambda item: (item[0].node, item[0].state.device.model)
    ):
        held = [row for _, row in group]
        heading = visible(f"{node}: {len(held)} x {model or 'device'}")
        lines.append(Text(heading, style="bold"))
        for row in held:
            if stacked:
                lines += [_line("  ", row[:1], widths[:1]), _line("    ", row[1:], widths[1:])]
            else:
                lines.append(_line("  ", row, widths))
    return Group(*lines, *_more(console, len(devices) - len(shown), "devices"))


def _line(indent: str, row: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text(indent)
    for cell, width in zip(row, widths, strict=True):
        cell.pad_right(width - len(cell) + 2)
        line.append_text(cell)
    line.rstrip()
    return line


def _cells(one: NodeDevice, glyphs: Glyphs) -> tuple[Text, Text, Text, Text]:
    used, whole = one.state.usage, one.capacity
    return (
        Text(visible(one.state.device.id)),
        _bar(glyphs, used.memory_mib, whole.memory_mib, " MiB", 10),
        _bar(glyphs, _cores_used(used, whole.cores), whole.cores, " %", 5),
        _bar(glyphs, used.slots, whole.slots, " slots", 5),
    )


def _cores_used(used: Usage, whole: int) -> int:
    """Percent used, corrected for MIG instances, whose shares are each rounded up to a percent."""
    rounded = 0 < used.cores - whole < used.slots
    return whole if rounded else used.cores


def _bar(glyphs: Glyphs, used: int, whole: int, unit: str, width: int) -> Text:
    """``███░░ 300/500 MiB``: no block means unused, all blocks mean full."""
    filled = min(width, -(-used * width // whole)) if whole else 0
    if used < whole:
        filled = min(filled, width - 1)
    style = "red" if used > whole else "green"  # full is what devices are for
    return Text.assemble(
        (glyphs.full * filled, style),
        (glyphs.empty * (width - filled), "dim"),
        f" {used}/{whole}{unit}",
    )


def _more(console: Console, count: int, what: str) -> list[Text]:
    dots = glyphs_for(console).more
    return [Text(f"{dots} and {count} more {what}; --json lists all")] if count > 0 else []
