"""A simulation as tables for people: readable at 80 columns, without colour too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hami.cli.terminal.escaping import visible
from hami.cli.terminal.tables import device_lines, placements, table
from hami.domain.devices import UNUSED, Usage
from hami.simulate.result import NodeDevice, Simulation, UnplacedPod
from hami.vendors.registry import Vendors

_MOST_NAMES = 3


def print_simulation(console: Console, simulation: Simulation) -> None:
    """Placements, devices, refusals, and one line that sums up."""
    for part in _parts(console, simulation):
        console.print(part, markup=False, highlight=False)
        console.print()
    console.print(_summary(simulation))


_WIDEST = 70
"""The widest that is easily read, for output whose lines may be of any length."""


def print_plugins(console: Console, vendors: Vendors) -> None:
    """One row per vendor."""
    made = table("Vendor", "Plugin")
    made.add_column("Resources and hooks", max_width=_WIDEST, overflow="fold")
    for key, vendor in vendors.items():
        hooks = ", ".join(name.removeprefix("hami_") for name in vendor.hooks)
        resources = "\n".join(map(visible, vendor.profile.resources.all_names))
        made.add_row(
            Text(visible(key)),
            Text(f"{visible(vendor.distribution)}\n{visible(vendor.version)}"),
            Text.assemble(resources, ("\n", ""), (f"hooks: {hooks}", "dim")),
        )
    console.print(made, markup=False, highlight=False)


def _parts(console: Console, simulation: Simulation) -> Iterator[RenderableType]:
    if simulation.placed:
        yield placements(console, simulation.placed)
    if simulation.devices:
        yield device_lines(console, simulation.devices)
    if simulation.pending:
        yield _pending(simulation.pending)
    if simulation.denied:
        yield _section(
            "Denied", "red", [f"{p.pod.full_name}: {p.message}" for p in simulation.denied]
        )


def _pending(pending: Sequence[UnplacedPod]) -> RenderableType:
    lines: list[RenderableType] = [Text("Pending", style="bold yellow")]
    # Replicas that wait for the same reasons share one paragraph.
    for (message, reasons), pods in _grouped(pending).items():
        lines.append(Text(visible(f"{_names(pods)}: {message}")))
        by_text: dict[str, list[str]] = {}
        for node, text in reasons:
            by_text.setdefault(text, []).append(node)
        lines += [
            Padding(Text(visible(f"{_names(nodes)}: {text}")), (0, 0, 0, 2), expand=False)
            for text, nodes in by_text.items()
        ]
    return Group(*lines)


def _grouped(
    pending: Iterable[UnplacedPod],
) -> Mapping[tuple[str, tuple[tuple[str, str], ...]], list[str]]:
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for one in pending:
        groups.setdefault((one.message, tuple(one.reasons.items())), []).append(one.pod.full_name)
    return groups


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


def _section(title: str, style: str, lines: Iterable[str]) -> RenderableType:
    return Group(Text(title, style=f"bold {style}"), *(Text(visible(line)) for line in lines))


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
