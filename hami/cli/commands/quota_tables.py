"""Elastic quotas and a pod's standing as tables and sentences, readable at 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hami.cli.terminal.escaping import visible
from hami.cli.terminal.tables import fitting, table
from hami.domain.units import with_unit
from hami.scheduler.readonly.models import (
    ElasticAmount,
    ElasticPod,
    ElasticQuotaPage,
    ElasticQuotaView,
    ElasticWhy,
    WhyView,
)

_BINARY = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def amount(number: int | None, unit: str) -> str:
    """An amount for people: ``40 GB``, ``1.5`` cores, ``4 GiB``; a dash for no limit."""
    if number is None:
        return "-"
    if unit == "milli":
        return f"{number / 1000:.15g}"
    if unit != "bytes":
        return with_unit(number, unit)
    power = 0
    while power < len(_BINARY) - 1 and abs(number) >= 1024 ** (power + 1):
        power += 1
    return f"{round(number / 1024**power, 1):.15g} {_BINARY[power]}"


# Quotas.


def show_quotas(console: Console, page: ElasticQuotaPage, namespace: str = "") -> None:
    """A table for each resource, with who borrows from whom and what is left; then the pods.

    ``namespace`` is the one that was asked about; empty for all.
    """
    if not page.items:
        of = f"no elastic quota counts the pods of namespace {namespace}"
        _print(console, Text(visible(of) if namespace else "there are no elastic quotas"))
        return
    for resource in sorted({r for quota in page.items for r in quota.resources}):
        held = [(q, q.resources[resource]) for q in page.items if resource in q.resources]
        _print(console, Text(visible(resource), style="bold"))
        _print(console, fitting(console, _quotas(held)))
        for line in (*_lending(held), *_pool(page, resource)):
            _print(console, Text(visible(line)))
        console.print()
    for line in _composites(page):
        _print(console, Text(visible(line)))
    pods = [(quota, pod) for quota in page.items for pod in quota.pods or ()]
    if pods:
        _print(console, fitting(console, _pods(pods)))


Held = Sequence[tuple[ElasticQuotaView, ElasticAmount]]


def _quotas(held: Held) -> Table:
    made = table("Quota")
    for heading in ("Min", "Max", "Held", "Borrowed", "Lent", "Left"):
        made.add_column(heading, justify="right")
    for quota, level in held:
        numbers = (level.min, level.max, level.reserved, level.borrowed, level.lent, level.left)
        written = [amount(number, level.unit) for number in numbers]
        for column, number in ((3, level.borrowed), (4, level.lent)):
            written[column] = written[column] if number else ""
        cells = map(Text, map(visible, (_title(quota), *written)))
        made.add_row(*cells, style="yellow" if level.borrowed else "")
    return made


def _title(quota: ElasticQuotaView) -> str:
    """The quota's name with the group that it is in."""
    return f"{_name(quota)} in {quota.parent}" if quota.parent else _name(quota)


def _lending(held: Held) -> Iterator[str]:
    """Who holds more than its guarantee, and whose unused guarantee that is."""
    borrowers = [(quota, level.borrowed, level.unit) for quota, level in held if level.borrowed]
    lenders = [(quota, level.lent, level.unit) for quota, level in held if level.lent]
    said = [f"{_name(quota)} borrows {amount(number, unit)}" for quota, number, unit in borrowers]
    said += [f"{_name(quota)} lends {amount(number, unit)}" for quota, number, unit in lenders]
    if borrowers:
        yield ", ".join(said)


def _name(quota: ElasticQuotaView) -> str:
    return f"{quota.namespace}/{quota.name}"


def _pool(page: ElasticQuotaPage, resource: str) -> Iterator[str]:
    """What all quotas hold together; no line for a resource that no quota guarantees."""
    if (pool := page.pool.get(resource)) is not None:
        used, free = amount(pool.used, pool.unit), amount(abs(pool.free), pool.unit)
        rest = f"{free} left" if pool.free >= 0 else f"{free} more than they may"
        yield f"all quotas together hold {used}, {rest}"


def _composites(page: ElasticQuotaPage) -> Iterator[str]:
    """Which namespaces composite quotas count; the tables would fold the names."""
    for quota in page.items:
        if quota.kind == "CompositeElasticQuota":
            yield f"{_name(quota)} counts the namespaces {', '.join(quota.namespaces)}"


def _pods(held: Sequence[tuple[ElasticQuotaView, ElasticPod]]) -> Table:
    made = table("Pod", "Node", "Quota", "Holds")
    for quota, pod in held:
        units = {resource: level.unit for resource, level in quota.resources.items()}
        holds = ", ".join(
            f"{resource} {amount(number, units[resource])}"
            for resource, number in pod.holds.items()
            if resource in units
        )
        cells = (f"{pod.namespace}/{pod.name}", pod.node, _capacity(pod), holds)
        style = "yellow" if pod.capacity == "over-quota" else ""
        made.add_row(*(Text(visible(cell)) for cell in cells), style=style)
    return made


def _capacity(pod: ElasticPod) -> str:
    """In or over quota, and whatever else decides who is evicted."""
    words = ["over" if pod.capacity == "over-quota" else "in"]
    words += [f"priority {pod.priority}"] if pod.priority else []
    words += [] if pod.preemptible else ["not preemptible"]
    if pod.victim_of:
        words.append(f"{'kept' if pod.gone else 'evicted'} for {pod.victim_of}")
    return ", ".join(words)


# One pod.


def show_pod(console: Console, why: WhyView) -> None:
    """Where the pod stands, what it asks, who is evicted for it or why no pod is."""
    style = "bold yellow" if why.phase == "waiting" else "bold"
    title = f"{why.namespace}/{why.name}: {why.phase}: {why.message}"
    _print(console, Text(visible(title), style=style))
    if why.phase == "waiting" and why.at:
        woken = "; it has been woken since, to be tried again" if why.woken else ""
        _print(console, Text(visible(f"so it was refused at {why.at}{woken}"), style="dim"))
    elastic = why.elastic
    if elastic is None:
        _print(console, Text("no elastic quota counts it"))
        return
    _print(console, Text(visible(_of_quota(elastic))))
    if elastic.asks:
        _print(console, fitting(console, _asked(elastic)))
    for line in _sentences(why.phase, elastic):
        _print(console, line)


def _of_quota(elastic: ElasticWhy) -> str:
    if not elastic.quota:
        return "no elastic quota counts it"
    said = f"{elastic.quota} counts it"
    if elastic.capacity:
        over = elastic.capacity == "over-quota"
        said += ": over quota, its place may be taken back" if over else ": in quota"
    return f"{said}; evicted for pod {elastic.victim_of}" if elastic.victim_of else said


def _asked(elastic: ElasticWhy) -> Table:
    made = table("Resource")
    made.add_column("Asks", justify="right")
    made.add_column("May have now", justify="right")
    for resource, ask in elastic.asks.items():
        cells = (resource, amount(ask.asked, ask.unit), amount(ask.left, ask.unit))
        short = ask.left is not None and ask.left < ask.asked
        made.add_row(*(Text(visible(cell)) for cell in cells), style="yellow" if short else "")
    return made


def _sentences(phase: str, elastic: ElasticWhy) -> Iterator[RenderableType]:
    if elastic.refusals:
        yield Text("quota refuses it now:")
        yield from _listed(elastic.refusals)
    elif phase == "waiting" and elastic.quota:
        yield Text("quota refuses nothing of this now")
    if elastic.victims:
        yield Text("it waits for pods that are evicted for it:")
        yield from _listed(
            f"{v.namespace}/{v.name} on {v.node}: {'gone' if v.gone else 'still there'}"
            for v in elastic.victims
        )
    elif elastic.not_evicted:
        yield Text("nobody is evicted for it:")
        yield from _listed(f"{kind}: {text}" for kind, text in elastic.not_evicted.items())
        if elastic.again:
            yield Text(visible(f"a pod's protected time ends at {elastic.again}"))
    elif phase == "waiting":
        yield Text("whom to evict for it was not looked for yet; the leading replica does that")


def _listed(lines: Sequence[str] | Iterator[str]) -> Iterator[RenderableType]:
    return (Padding(Text(visible(line)), (0, 0, 0, 2), expand=False) for line in lines)


def _print(console: Console, part: RenderableType) -> None:
    console.print(part, markup=False, highlight=False)
