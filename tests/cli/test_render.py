"""Tables for people: 80 columns, no colour needed, long lists kept short."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from hami.cli.commands.simulation_tables import print_simulation
from hami.cli.terminal.escaping import visible
from hami.cli.terminal.progress import progress_bar
from hami.cli.terminal.tables import fitting, table
from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant, Usage
from hami.domain.extra import NO_EXTRA, Extra, ExtraKey
from hami.domain.kubernetes.objects import Metadata, Pod
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, VendorKey
from hami.simulate.result import DeniedPod, NodeDevice, PlacedPod, Simulation, UnplacedPod

UUID = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"


def a_pod(name: str = "a") -> Pod:
    return Pod(metadata=Metadata(name=name))


def a_placement(
    name: str = "a", *, device: str = "d0", kind=ContainerKind.APP, extra=NO_EXTRA
) -> PlacedPod:
    grant = Grant(
        device_id=DeviceId(device),
        vendor=VendorKey("ACME"),
        memory_mib=MemoryMiB(300),
        cores=CorePercent(20),
        extra=extra,
    )
    container = ContainerAllocation(name="main", kind=kind, grants=(grant,))
    return PlacedPod(pod=a_pod(name), allocation=PodAllocation(node="n1", containers=(container,)))


def a_device(
    id: str = "d0", *, node: str = "n1", used: int = 0, memory: int = 1000, model: str = "One"
) -> NodeDevice:
    device = Device(
        id=DeviceId(id),
        vendor=VendorKey("ACME"),
        model=model,
        slots=4,
        memory_mib=MemoryMiB(memory),
    )
    usage = Usage(1 if used else 0, MemoryMiB(used), CorePercent(0))
    return NodeDevice(node=node, state=DeviceState(device, usage))


def a_pending(name: str, reasons: dict[str, str], message: str = "waits.") -> UnplacedPod:
    return UnplacedPod(pod=a_pod(name), reasons=reasons, message=message)


def shown(*, placed=(), pending=(), denied=(), devices=(), colour=False, width=80, **more) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, color_system="standard" if colour else None
    )
    simulation = Simulation(
        placed=tuple(placed),
        pending=tuple(pending),
        denied=tuple(denied),
        devices=tuple(devices),
        **more,
    )
    print_simulation(console, simulation)
    return out.getvalue()


def test_a_placement_is_one_row():
    text = shown(placed=[a_placement("web-1")])
    (row,) = (line.split() for line in text.splitlines() if "web-1" in line)
    assert row == ["default/web-1", "n1", "main", "d0", "300", "20", "%"]


def test_an_init_container_is_marked():
    assert "main (init)" in shown(placed=[a_placement(kind=ContainerKind.INIT)])


@pytest.mark.parametrize(
    ("used", "bar"),
    [
        pytest.param(0, "░░░░░░░░░░ 0/1000 MiB", id="unused"),
        pytest.param(1, "█░░░░░░░░░ 1/1000 MiB", id="the least use shows"),
        pytest.param(500, "█████░░░░░ 500/1000 MiB", id="half"),
        pytest.param(999, "█████████░ 999/1000 MiB", id="full is only what is full"),
        pytest.param(1000, "██████████ 1000/1000 MiB", id="full"),
        pytest.param(1200, "██████████ 1200/1000 MiB", id="above, as MIG's cores can be"),
    ],
)
def test_a_bar_says_how_full_a_device_is(used, bar):
    assert bar in shown(devices=[a_device(used=used)])


@pytest.mark.parametrize(
    ("used", "colour"),
    [
        pytest.param(500, "32", id="in use: green"),
        pytest.param(1000, "32", id="full: green too, for that is what devices are for"),
        pytest.param(1001, "31", id="more than there is: red"),
    ],
)
def test_a_bar_is_red_only_above_what_there_is(used, colour):
    assert f"\x1b[{colour}m█" in shown(devices=[a_device(used=used)], colour=True)


@pytest.mark.parametrize(
    ("cores", "slots", "said"),
    [
        pytest.param(101, 3, "100/100 %", id="43 + 29 + 29: each instance is rounded up"),
        pytest.param(100, 3, "100/100 %", id="full"),
        pytest.param(103, 3, "103/100 %", id="more than rounding can add"),
        pytest.param(101, 1, "101/100 %", id="one slice is not rounded beyond the whole"),
    ],
)
def test_rounding_takes_no_more_than_the_whole(cores, slots, said):
    device = a_device()
    usage = Usage(slots, MemoryMiB(0), CorePercent(cores))
    over = NodeDevice(node="n1", state=DeviceState(device.state.device, usage))
    assert f" {said} " in shown(devices=[over])


def test_a_table_that_a_terminal_would_break_becomes_sentences():
    made = table("Quota", "Min", "Max")
    made.add_row("team-a/quota-with-a-long-name", "40960 MiB", "")
    out = io.StringIO()
    console = Console(file=out, width=30)
    console.print(fitting(console, made))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "team-a/quota-with-a-long-name", "  min 40960 MiB"
    ]  # fmt: skip
    assert fitting(Console(file=out, width=80), made) is made


def test_a_device_without_memory_has_an_empty_bar():
    assert "░░░░░░░░░░ 0/0 MiB" in shown(devices=[a_device(memory=0)])


def test_devices_stand_under_their_node_and_model():
    devices = [a_device("d0"), a_device("d1"), a_device("d2", model="Two"), a_device(node="n2")]
    headings = [line for line in shown(devices=devices).splitlines() if " x " in line]
    assert headings == ["n1: 2 x One", "n1: 1 x Two", "n2: 1 x One"]


def test_everything_fits_into_80_columns():
    text = shown(
        placed=[a_placement("inference-service-of-a-long-name-1", device=UUID)],
        devices=[a_device(UUID, used=143_771, memory=143_771)],
        pending=[a_pending("p", {f"node-{n}": "8/8 CardInsufficientMemory" for n in range(9)})],
    )
    assert max(map(len, text.splitlines())) <= 80


def test_a_real_device_fits_a_terminal_with_its_whole_id():
    text = shown(devices=[a_device(UUID, used=81559, memory=81559), a_device("d1")])
    assert f"\n  {UUID}\n    ██████████ 81559/81559 MiB  ░░░░░ 0/100 %  █" in text
    assert f"  {UUID}  ██████████ 81559" in shown(devices=[a_device(UUID, used=81559)], width=120)


def test_placements_too_wide_for_a_table_stand_under_their_pods():
    text = shown(placed=[a_placement("inference-service-1", device=UUID)])
    assert f"default/inference-service-1 on n1\n  {UUID}  300 MiB   20 %  main\n" in text
    assert f"main        {UUID}" in shown(placed=[a_placement(device=UUID)], width=120)


class _Instance(msgspec.Struct):
    profile: str
    placement: dict[str, int]


def a_mig_placement(device: str = "d0") -> PlacedPod:
    key = ExtraKey("acme.mig", _Instance)
    extra = Extra().with_(key, _Instance("1g.10gb", {"start": 4, "size": 1}))
    return a_placement(device=device, extra=extra)


def test_a_grants_extra_is_shown_where_there_is_one():
    text = shown(placed=[a_placement("a"), a_mig_placement()], width=100)
    assert "20 %   profile=1g.10gb start=4 size=1" in text
    assert "Extra" in text
    assert "Extra" not in shown(placed=[a_placement()])
    stacked = shown(placed=[a_mig_placement(UUID)])
    assert f"  {UUID}  300 MiB   20 %  main\n    profile=1g.10gb start=4 size=1\n" in stacked


def test_ascii_bars_where_the_encoding_has_no_others():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    devices = (a_device(used=500), *(a_device(f"x{n}") for n in range(200)))
    print_simulation(
        Console(file=out, width=80),
        Simulation(placed=(a_placement(),), pending=(), denied=(), devices=devices),
    )
    out.flush()
    text = out.buffer.getvalue().decode("ascii")
    assert "#####..... 500/1000 MiB" in text
    assert "... and 1 more devices" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a b é 漢 😀", "a b é 漢 😀", id="letters stay"),
        pytest.param("\x1b[31m", r"\x1b[31m", id="an escape sequence"),
        pytest.param("\x00\t\r\n\x7f", r"\x00\t\r\n\x7f", id="C0 and DEL"),
        pytest.param("\x9b\x85", r"\x9b\x85", id="C1"),
        pytest.param("\u2028\u2029", r"\u2028\u2029", id="line separators"),
        pytest.param("\u202e", r"\u202e", id="writing backwards"),
        pytest.param("\udc80", r"\udc80", id="half a character"),
        pytest.param(r"\x1b", r"\x1b", id="what is written out stays"),
    ],
)
def test_a_text_is_made_visible(text, expected):
    assert visible(text) == expected


def test_nothing_is_coloured_without_a_terminal():
    parts = {"placed": [a_placement()], "devices": [a_device()], "pending": [a_pending("p", {})]}
    assert "\x1b" not in shown(**parts)
    assert "\x1b[" in shown(**parts, colour=True)


def test_texts_from_outside_are_not_taken_for_markup():
    text = shown(
        denied=[DeniedPod(pod=a_pod(), message="key [red]x[/red] is bad")],
        devices=[a_device(model="[bold]One")],
    )
    assert "key [red]x[/red] is bad" in text
    assert "1 x [bold]One" in text


def test_nodes_with_one_reason_are_one_line():
    reasons = {"n1": "full", "n2": "tainted", "n3": "full", "n4": "full", "n5": "full"}
    text = shown(pending=[a_pending("p", reasons)])
    assert "  n1, n3, n4 and 1 more: full\n  n2: tainted" in text


def test_pods_that_wait_for_the_same_reasons_are_one_paragraph():
    same = [a_pending(f"p{n}", {"n1": "full"}) for n in range(5)]
    text = shown(pending=[*same, a_pending("q", {"n1": "cordoned"})])
    assert "default/p0, default/p1, default/p2 and 2 more: waits." in text
    assert text.count("n1: full") == 1
    assert "default/q: waits." in text


def test_long_tables_say_what_they_leave_out():
    text = shown(
        placed=[a_placement(f"p{n}") for n in range(250)],
        devices=[a_device(f"d{n}") for n in range(1000)],
    )
    assert "… and 50 more placements; --json lists all" in text
    assert "… and 800 more devices; --json lists all" in text
    assert "default/p199 " in text
    assert "default/p200 " not in text


@pytest.mark.parametrize(
    ("parts", "summary"),
    [
        pytest.param({}, "0 placed, 0 pending, 0 denied.\n0 devices: unused.", id="nothing"),
        pytest.param(
            {"placed": [a_placement()], "devices": [a_device(used=250)]},
            "1 placed, 0 pending, 0 denied.\n1 devices: memory 25 %, cores 0 %, slots 25 %.",
            id="shares of what the cluster has",
        ),
        pytest.param(
            {"running": (a_placement(),), "without_devices": 3},
            "0 placed, 0 pending, 0 denied, 1 already running, 3 without devices.",
            id="what was not placed",
        ),
    ],
)
def test_the_last_lines_sum_up(parts, summary):
    assert summary in shown(**parts)


# The progress bar.


def progress(seconds: list[float], *, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    times = iter([0.0, *seconds])
    with progress_bar(console, lambda: next(times)) as report:
        for step, _ in enumerate(seconds, start=1):
            report(step, len(seconds))
    return out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "terminal", "drawn"),
    [
        pytest.param([0.2, 0.9], True, False, id="a short run shows none"),
        pytest.param([0.2, 1.5], True, True, id="a long run shows one"),
        pytest.param([0.2, 1.5], False, False, id="never into a file"),
    ],
)
def test_a_progress_bar_is_drawn(seconds, terminal, drawn):
    assert ("placing pods" in progress(seconds, terminal=terminal)) == drawn
