"""Recommendations as a table and as JSON, and what to write into templates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from hami.cli.recommending.workloads import Advice
from hami.cli.terminal.escaping import visible
from hami.cli.terminal.tables import fitting, table
from hami.domain.profile import VendorProfile
from hami.policy.recommendation import NoRecommendation, Recommendation

Profiles = Mapping[str, VendorProfile]
"""By the vendor's key."""

_HEADINGS = ("Workload", "Container", "Pods", "Memory", "Compute", "Minutes", "Saves")


def show(console: Console, advices: Sequence[Advice]) -> None:
    """One line for each container of a workload, those that stay as they are below; the sum."""
    if not advices:
        console.print("no container with a part of a device runs here")
        return
    made = table(*_HEADINGS)
    stays: list[str] = []
    for advice in advices:
        if isinstance(advice.answer, Recommendation):
            cells = _cells(advice, advice.answer)
            made.add_row(*(Text(visible(cell)) for cell in cells))
        else:
            stays.append(f"{_named(advice)} stays as it is: {advice.answer.value}")
        for pod, why in advice.left_out:
            about = f"pod {advice.workload.namespace}/{pod}, container {advice.container}"
            stays.append(f"{about} is left out: {why.value}")
    if made.row_count:
        console.print(fitting(console, made), markup=False, highlight=False)
    for line in (*stays, f"saves {_amounts(*_sum(advices))} in all"):
        console.print(Text(visible(line)), markup=False, highlight=False)


def _named(advice: Advice) -> str:
    return f"{advice.workload.namespace} {advice.workload}, container {advice.container}"


def _cells(advice: Advice, answer: Recommendation) -> tuple[str, ...]:
    uses = list(advice.uses)
    memory = _range([use.memory_limit_mib for use in uses])
    cores = _range([use.guarantee for use in uses])
    return (
        f"{advice.workload.namespace} {advice.workload}",
        advice.container,
        str(len(advice.replicas)),
        f"{_change(memory, answer.memory_mib)} MiB",
        f"{_change(cores, answer.cores)} %",
        str(advice.minutes),
        _amounts(*advice.saves),
    )


def _range(amounts: Sequence[int]) -> str:
    """What is asked; replicas may differ. ``-`` is without a limit."""
    low, high = min(amounts, default=0), max(amounts, default=0)
    text = str(high) if low == high else f"{low}..{high}"
    return text if high else "-"


def _change(asked: str, wanted: int | None) -> str:
    return asked if wanted is None else f"{asked} -> {wanted}"


def _sum(advices: Iterable[Advice]) -> tuple[int, int]:
    saved = [advice.saves for advice in advices]
    return sum(memory for memory, _ in saved), sum(cores for _, cores in saved)


def _amounts(memory: int, cores: int) -> str:
    return f"{memory} MiB, {cores} %"


def templates(advices: Iterable[Advice], profiles: Profiles) -> Iterator[str]:
    """What a template must say so that new pods ask for it, a line for each container."""
    for advice in advices:
        written = template(advice, profiles)
        if written and advice.workload.has_template:
            limits = ", ".join(f"{name}: {amount}" for name, amount in written.items())
            yield f"{_named(advice)}: {limits}"


def template(advice: Advice, profiles: Profiles) -> dict[str, int]:
    """Limits by resource name; empty where nothing changes or the vendor is not installed."""
    profile = profiles.get(advice.vendor)
    if isinstance(advice.answer, NoRecommendation) or profile is None:
        return {}
    names, memory = profile.resources, advice.answer.memory_mib
    written: dict[str, int] = {}
    if memory is not None and names.memory:
        written[names.memory] = -(-memory // profile.memory_factor)
    if advice.answer.cores is not None and names.cores:
        written[names.cores] = advice.answer.cores
    return written


def as_json(advices: Sequence[Advice], profiles: Profiles) -> dict[str, Any]:
    memory, cores = _sum(advices)
    return {
        "workloads": [_one_as_json(advice, profiles) for advice in advices],
        "saves": {"memoryMiB": memory, "cores": cores},
    }


def _one_as_json(advice: Advice, profiles: Profiles) -> dict[str, Any]:
    answer, uses = advice.answer, list(advice.uses)
    could, reason = None, None
    if isinstance(answer, Recommendation):
        could = {"memoryMiB": answer.memory_mib, "cores": answer.cores}
    else:
        reason = {"reason": answer.name, "message": answer.value}
    memory, cores = advice.saves
    return {
        "namespace": advice.workload.namespace,
        "kind": advice.workload.kind,
        "name": advice.workload.name,
        "container": advice.container,
        "vendor": advice.vendor,
        "pods": [replica.pod for replica in advice.replicas],
        "asks": {
            "memoryMiB": sorted({use.memory_limit_mib for use in uses}),
            "cores": sorted({use.guarantee for use in uses}),
        },
        "couldAsk": could,
        "why": reason,
        "minutes": advice.minutes,
        "saves": {"memoryMiB": memory, "cores": cores},
        "template": template(advice, profiles),
        "leftOut": [{"pod": pod, "reason": why.name} for pod, why in advice.left_out],
    }
