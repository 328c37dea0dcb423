"""Shares of compute as a picture: against what is due, and the error by kernel length."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

WIDTH, HEIGHT = 920, 400
LEFT, TOP, SIDE = 60, 40, 300
GAP = 150
"""Pixels between the two panels."""
COLOURS = {1: "#4477aa", 2: "#228833", 3: "#ccbb44", 4: "#aa3377"}
"""The colour for each number of tenants."""
POINTS = 3.0
SPAN = 6.0
"""The right panel's range, points up and down."""
SHORTEST, DECADES = 4, 5
"""The right panel's left end, as a power of ten of nanoseconds, and its number of decades."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One tenant. ``even``: it always has work."""

    due: float
    share: float
    launch_ns: int
    tenants: int
    even: bool


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def _text(x: float, y: float, text: str, *, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{text}</text>'


def _mark(x: float, y: float, point: Point) -> str:
    colour = COLOURS[point.tenants]
    fill = colour if point.even else "none"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}" stroke="{colour}" '
        'fill-opacity="0.6"/>'
    )


def _frame(left: float, title: str, below: str) -> Iterable[str]:
    yield (f'<rect x="{left}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#888"/>')
    yield _text(left + SIDE / 2, TOP - 14, title, more=' font-weight="bold"')
    yield _text(left + SIDE / 2, TOP + SIDE + 36, below)


def _shares(points: Sequence[Point]) -> Iterable[str]:
    def x(percent: float) -> float:
        return LEFT + SIDE * percent / 100

    def y(percent: float) -> float:
        return TOP + SIDE * (1 - percent / 100)

    yield from _frame(LEFT, "Share of the card, %", "due, %")
    corners = ((0, POINTS), (100 - POINTS, 100), (100, 100), (100, 100 - POINTS), (POINTS, 0),
               (0, 0))  # fmt: skip
    band = " ".join(f"{x(across):.1f},{y(up):.1f}" for across, up in corners)
    yield f'<polygon points="{band}" fill="#ddd"/>'
    yield _line(x(0), y(0), x(100), y(100), 'stroke="#888"')
    for tick in range(0, 101, 20):
        yield _text(x(tick), y(0) + 16, str(tick))
        yield _text(LEFT - 6, y(tick) + 4, str(tick), anchor="end")
    for point in points:
        yield _mark(x(point.due), y(point.share), point)


def _errors(points: Sequence[Point], window: float) -> Iterable[str]:
    left = LEFT + SIDE + GAP

    def x(ns: float) -> float:
        return left + SIDE * (math.log10(ns) - SHORTEST) / DECADES

    def y(error: float) -> float:
        return TOP + SIDE / 2 - SIDE / 2 * max(-SPAN, min(SPAN, error)) / SPAN

    yield from _frame(left, "Share minus due, points", "length of a launch")
    longest = 10.0 ** (SHORTEST + DECADES)
    kink = POINTS / 200 * window * 1e9
    edge = [(10.0**SHORTEST, POINTS), (kink, POINTS), (longest, 200 * longest / 1e9 / window)]
    outline = [*edge, *((ns, -error) for ns, error in reversed(edge))]
    band = " ".join(f"{x(ns):.1f},{y(error):.1f}" for ns, error in outline)
    yield f'<polygon points="{band}" fill="#ddd"/>'
    yield _line(left, y(0), left + SIDE, y(0), 'stroke="#888"')
    names = ("10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s")
    for power, name in zip(count(SHORTEST), names, strict=False):
        yield _text(x(10.0**power), TOP + SIDE + 16, name)
    for tick in (-6, -3, 0, 3, 6):
        yield _text(left - 6, y(tick) + 4, f"{tick:+d}" if tick else "0", anchor="end")
    for point in points:
        if point.even:
            yield _mark(x(point.launch_ns), y(point.share - point.due), point)


def _legend() -> Iterable[str]:
    for place, (tenants, colour) in enumerate(COLOURS.items()):
        at = LEFT + place * 90
        yield f'<circle cx="{at}" cy="{HEIGHT - 8}" r="3.5" fill="{colour}"/>'
        name = "1 tenant" if tenants == 1 else f"{tenants} tenants"
        yield _text(at + 8, HEIGHT - 4, name, anchor="start")
    more = "grey: what is allowed; hollow: it pauses and may have less"
    yield _text(LEFT + 4 * 90, HEIGHT - 4, more, anchor="start")


def drawn(points: Sequence[Point], *, window: float) -> str:
    """The picture as SVG; ``window`` is the number of seconds over which shares were taken."""
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect {size} fill="white"/>',
        *_shares(points),
        *_errors(points, window),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
