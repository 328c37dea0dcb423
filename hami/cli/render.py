"""A simulation as tables for people: readable at 80 columns, without colour too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hami.domain.allocations import ContainerKind
from hami.domain.devices import UNUSED, Grant, Usage
from hami.plugins import Vendors
from hami.sim.result import NodeDevice, PendingPod, PlacedPod, Simulation

_MOST_ROWS = 200
"""Longer tables help nobody on a terminal; ``--json`` has everything."""
_MOST_NAMES = 3


def print_simulation(console: Console, simulation: Simulation) -> None:
    """Placements, devices, refusals, and one line that sums up."""
    for part in _parts(simulation):
        console.print(part, markup=False, highlight=False)
        console.print()
    console.print(_summary(simulation))


def print_plugins(console: Console, vendors: Vendors) -> None:
    """One row per vendor."""
    table = _table("Vendor", "Plugin", "Version", "Resources", "Hooks")
    for key, vendor in vendors.items():
        table.add_row(
            key,
            vendor.distribution,
            vendor.version,
            "\n".join(vendor.profile.resources.all_names),
            ", ".join(name.removeprefix("hami_") for name in sorted(vendor.hooks)),
        )
    console.print(table, markup=False, highlight=False)


def _parts(simulation: Simulation) -> Iterator[RenderableType]:
    if simulation.placed:
        yield _placements(simulation.placed)
    if simulation.devices:
        yield _devices(simulation.devices)
    if simulation.pending:
        yield _pending(simulation.pending)
    if simulation.denied:
        yield _section(
            "Denied", "red", [f"{p.pod.full_name}: {p.message}" for p in simulation.denied]
        )


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _placements(placed: Sequence[PlacedPod]) -> RenderableType:
    table = _table("Pod", "Node", "Container", "Device")
    table.add_column("MiB", justify="right", no_wrap=True)
    table.add_column("Cores", justify="right", no_wrap=True)
    rows = 0
    for pod in placed:
        first = (pod.pod.full_name, pod.allocation.node)
        for container, grant in _grants(pod):
            if rows == _MOST_ROWS:
                break
            table.add_row(*first, container, *_grant_cells(grant))
            first = ("", "")
            rows += 1
    left_out = sum(len(pod.allocation.grants) for pod in placed) - rows
    return Group(table, *_more(left_out, "placements"))


def _grants(pod: PlacedPod) -> Iterator[tuple[str, Grant]]:
    for container in pod.allocation.containers:
        init = " (init)" if container.kind is not ContainerKind.APP else ""
        for grant in container.grants:
            yield f"{container.name}{init}", grant


def _grant_cells(grant: Grant) -> tuple[str, str, str]:
    return grant.device_id, str(grant.memory_mib), f"{grant.cores} %" if grant.cores else "-"


def _devices(devices: Sequence[NodeDevice]) -> RenderableType:
    """A heading per node and model, then one line of bars per device."""
    shown = devices[:_MOST_ROWS]
    cells = [_device_cells(one) for one in shown]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines: list[Text] = []
    for (node, model), group in groupby(
        zip(shown, cells, strict=True), lambda item: (item[0].node, item[0].state.device.model)
    ):
        held = [row for _, row in group]
        lines.append(Text(f"{node}: {len(held)} x {model or 'device'}", style="bold"))
        for row in held:
            line = Text("  ")
            for cell, width in zip(row, widths, strict=True):
                cell.pad_right(width - len(cell) + 2)
                line.append_text(cell)
            line.rstrip()
            lines.append(line)
    return Group(*lines, *_more(len(devices) - len(shown), "devices"))


def _device_cells(one: NodeDevice) -> tuple[Text, Text, Text, Text]:
    used, whole = one.state.usage, one.capacity
    return (
        Text(_short_id(one.state.device.id)),
        _bar(used.memory_mib, whole.memory_mib, " MiB", 10),
        _bar(used.cores, whole.cores, " %", 5),
        _bar(used.slots, whole.slots, " slots", 5),
    )


def _bar(used: int, whole: int, unit: str, width: int) -> Text:
    """``███░░ 300/500 MiB``: no block means unused, all blocks mean full."""
    filled = min(width, -(-used * width // whole)) if whole else 0
    if used < whole:
        filled = min(filled, width - 1)
    style = "red" if used >= whole else "green"
    return Text.assemble(
        ("█" * filled, style),
        ("░" * (width - filled), "dim"),
        f" {used}/{whole}{unit}",
    )


def _short_id(device_id: str) -> str:
    """Long enough to tell devices apart; whole ids are in the placements."""
    return device_id if len(device_id) <= 24 else f"{device_id[:12]}…{device_id[-11:]}"


def _pending(pending: Sequence[PendingPod]) -> RenderableType:
    lines: list[RenderableType] = [Text("Pending", style="bold yellow")]
    # Replicas that wait for the same reasons are one paragraph.
    for (message, reasons), pods in _grouped(pending).items():
        lines.append(Text(f"{_names(pods)}: {message}"))
        by_text: dict[str, list[str]] = {}
        for node, text in reasons:
            by_text.setdefault(text, []).append(node)
        lines += [
            Padding(Text(f"{_names(nodes)}: {text}"), (0, 0, 0, 2), expand=False)
            for text, nodes in by_text.items()
        ]
    return Group(*lines)


def _grouped(
    pending: Iterable[PendingPod],
) -> Mapping[tuple[str, tuple[tuple[str, str], ...]], list[str]]:
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for one in pending:
        groups.setdefault((one.message, tuple(one.reasons.items())), []).append(one.pod.full_name)
    return groups


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


def _section(title: str, style: str, lines: Iterable[str]) -> RenderableType:
    return Group(Text(title, style=f"bold {style}"), *(Text(line) for line in lines))


def _more(count: int, what: str) -> list[Text]:
    return [Text(f"… and {count} more {what}; --json lists all")] if count > 0 else []


def _summary(simulation: Simulation) -> Text:
    counts = {
        "placed": len(simulation.placed),
        "pending": len(simulation.pending),
        "denied": len(simulation.denied),
        "already running": len(simulation.running),
        "without devices": simulation.without_devices,
    }
    always = ("placed", "pending", "denied")
    said = [f"{count} {what}" for what, count in counts.items() if count or what in always]
    used, whole = _total(simulation.devices)
    shares = [
        f"{what} {100 * part // total} %"
        for what, part, total in (
            ("memory", used.memory_mib, whole.memory_mib),
            ("cores", used.cores, whole.cores),
            ("slots", used.slots, whole.slots),
        )
        if total
    ]
    style = "bold green" if simulation.everything_placed else "bold yellow"
    return Text(
        f"{', '.join(said)}.\n{len(simulation.devices)} devices: {', '.join(shares) or 'unused'}.",
        style=style,
    )


def _total(devices: Iterable[NodeDevice]) -> tuple[Usage, Usage]:
    used = whole = UNUSED
    for one in devices:
        used, whole = used + one.state.usage, whole + one.capacity
    return used, whole
