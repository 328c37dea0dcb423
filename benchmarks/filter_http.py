"""``/filter`` over HTTP on a large cluster, against an echo of the same body.

One keep-alive connection, as kube-scheduler has; bodies of 152 KB with a pod and 5000 node names,
in another order each time. The echo reads the arguments and writes them back. Echo and filter take
turns, so that other work of the machine slows both alike.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.http_calls import Connection, a_post
from benchmarks.population import (
    A_SLICE,
    TOO_MUCH_MEMORY,
    WHOLE_NODE,
    Limits,
    Size,
    a_pod,
    node_name,
)
from benchmarks.rows import Row, ms, p50, p99, ratio
from benchmarks.stage import ServiceProcess, Stage
from hami.kube.informer import PAGE

LARGE, SMALL = Size(), Size(nodes=500, pods=2000)
CALLS, WARM_UP, BODIES = 600, 50, 16
REST = 0.5
"""Seconds without work after which the service counts as idle."""
RELISTS = 4
"""Turns under load, with one relist in each."""

RESIZES, TURNS = 10, 6
"""Resizes a second, and how often filters are measured with them and without."""

PLACED_P50, PLACED_P99, REFUSED_P50, BUSY_P99, TEN_TIMES = 2.5, 5.0, 6.0, 8.0, 12.0
RESIZING_P50 = 1.03


def measure() -> list[Row]:
    with Stage(LARGE) as large, Stage(SMALL) as small, ExitStack() as stack:
        service = large.service()
        _come_to_rest(service)  # It verifies signatures in the background.
        url = large.echo()
        at = _Asked(
            echo=stack.enter_context(Connection(url)),
            unread=stack.enter_context(Connection(url)),
            extender=stack.enter_context(Connection(service.extender)),
        )
        placed = _bodies(large, LARGE, "placed", A_SLICE)
        rows = _placed(at.compared(placed))
        for what, name, limits in (
            ("for one reason", "memory", TOO_MUCH_MEMORY),
            ("for several reasons", "whole", WHOLE_NODE),
        ):
            refused = at.compared(_bodies(large, LARGE, name, limits))
            rows.append(refused.row(f"Filter refuses every node {what}, p50", p50, REFUSED_P50))
        rows.append(_busy(large, service, at, placed))
        rows.append(_resizing(large, service, at, placed))
        lesser = small.service()
        _come_to_rest(lesser)
        less = stack.enter_context(Connection(lesser.extender))
        few = _bodies(small, SMALL, "placed", A_SLICE)
        of_small, of_large = _in_turns([(less, "/filter", few), (at.extender, "/filter", placed)])
        rows.append(_growth(p50(of_small), p50(of_large)))
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """Seconds of each call."""

    echoed: Sequence[float]
    unread: Sequence[float]
    filtered: Sequence[float]

    def row(self, what: str, of: Callable[[Sequence[float]], float], most: float) -> Row:
        echo, mine = p50(self.echoed), of(self.filtered)
        return Row(
            what=what,
            value=ratio(mine, echo),
            unit="x echo",
            most=most,
            seen=f"{ms(mine)}; echo p50 {ms(echo)}, p99 {ms(p99(self.echoed))}; "
            f"bytes sent back unread p50 {ms(p50(self.unread))}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    echo: Connection
    unread: Connection
    extender: Connection

    def compared(
        self, bodies: Sequence[bytes], *, until: float = 0.0, calls: int = CALLS
    ) -> _Compared:
        """Call all three in turns; ``until`` may end it."""
        asked = [
            (self.unread, "/bytes", bodies),
            (self.echo, "/echo", bodies),
            (self.extender, "/filter", bodies),
        ]
        if until:
            unread, echoed, filtered = _in_turns(asked, calls=1 << 30, warm_up=0, until=until)
        else:
            unread, echoed, filtered = _in_turns(asked, calls)
        return _Compared(echoed=echoed, unread=unread, filtered=filtered)


def _bodies(stage: Stage, size: Size, name: str, limits: Limits) -> list[bytes]:
    """Bodies as kube-scheduler sends them, for pods that the service has seen."""
    dice = random.Random(1)
    bodies = []
    for number in range(BODIES):
        pod = stage.api.create(a_pod(f"{name}-{number:02}", limits))
        names = [node_name(node) for node in range(size.nodes)]
        dice.shuffle(names)
        args = {"Pod": pod, "Nodes": None, "NodeNames": names}
        bodies.append(json.dumps(args, separators=(",", ":")).encode())
    return bodies


def _in_turns(
    asked: Sequence[tuple[Connection, str, Sequence[bytes]]],
    calls: int = CALLS,
    warm_up: int = WARM_UP,
    until: float = 0.0,
) -> list[list[float]]:
    """Seconds of each call, for each connection; ``until`` may end it before ``calls``."""
    requests = [(at, [a_post(path, body) for body in bodies]) for at, path, bodies in asked]
    taken: list[list[float]] = [[] for _ in requests]
    gc.collect()
    gc.disable()
    try:
        for number in range(warm_up + calls):
            for (connection, of), seconds in zip(requests, taken, strict=True):
                seconds.append(connection.ask(of[number % len(of)])[0])
            if until and time.monotonic() > until:
                break
    finally:
        gc.enable()
    return [seconds[warm_up:] for seconds in taken]


def _placed(compared: _Compared) -> list[Row]:
    cluster = f"{LARGE.nodes} nodes x 8 devices, {LARGE.pods} slices"
    return [
        compared.row(f"Filter over HTTP, {cluster}, p50", p50, PLACED_P50),
        compared.row("Filter over HTTP, p99", p99, PLACED_P99),
    ]


def _busy(stage: Stage, service: ServiceProcess, at: _Asked, bodies: Sequence[bytes]) -> Row:
    """Measure while metrics are read each second and the service must list changed nodes anew."""
    before = stage.api.told("lists")
    pages = -(-stage.api.told("relist") // PAGE)
    begin = time.monotonic()
    while stage.api.told("lists") < before + pages:
        time.sleep(0.02)
    _come_to_rest(service)
    window = time.monotonic() - begin - REST
    scraper = stage.child("scrape_process", f"{service.metrics}/metrics")
    turns = []
    for _ in range(RELISTS):
        stage.api.told("relist")
        turns.append(at.compared(bodies, until=time.monotonic() + window))
        _come_to_rest(service)
    scraper.close()
    return _Compared(
        echoed=[taken for turn in turns for taken in turn.echoed],
        unread=[taken for turn in turns for taken in turn.unread],
        filtered=[taken for turn in turns for taken in turn.filtered],
    ).row(
        f"Filter p99 during relists of {LARGE.nodes} nodes and a scrape each second",
        p99,
        BUSY_P99,
    )


def _resizing(stage: Stage, service: ServiceProcess, at: _Asked, bodies: Sequence[bytes]) -> Row:
    """Measure with and without resizes in turns; each against the echo of the same turn."""
    _come_to_rest(service)
    quiet, busy = list[_Compared](), list[_Compared]()
    done = 0
    for _ in range(TURNS):
        quiet.append(at.compared(bodies, calls=CALLS // 2))
        resizer = stage.child("resize_process", stage.api.url, service.metrics, str(RESIZES))
        resizer.line()
        busy.append(at.compared(bodies, calls=CALLS // 2))
        done += resizer.told("stop")
        resizer.close()
    (filtered, echoed), (alone, echoed_alone) = map(_medians, (busy, quiet))
    return Row(
        what=f"Filter while {RESIZES} pods a second are resized, against none, p50",
        value=round(filtered / echoed / (alone / echoed_alone), 3),
        unit="x",
        most=RESIZING_P50,
        seen=f"{ms(filtered)}, {ms(alone)}; echo {ms(echoed)}, {ms(echoed_alone)}; {done} resizes",
    )


def _medians(turns: Sequence[_Compared]) -> tuple[float, float]:
    """Of filters, and of echoes."""
    filtered = [seconds for turn in turns for seconds in turn.filtered]
    return p50(filtered), p50([seconds for turn in turns for seconds in turn.echoed])


def _come_to_rest(service: ServiceProcess) -> None:
    """Wait until the service has done nothing for a moment."""
    last, begin = service.cpu_seconds(), time.monotonic()
    while time.monotonic() - begin < REST:
        time.sleep(0.05)
        now = service.cpu_seconds()
        if now - last > 0.01:
            begin = time.monotonic()
        last = now


def _growth(small: float, large: float) -> Row:
    return Row(
        what=f"Filter on {LARGE.nodes} nodes against {SMALL.nodes}, p50",
        value=ratio(large, small),
        unit="x",
        most=TEN_TIMES,
        seen=f"{ms(large)}, {ms(small)}",
    )
