"""``hami migrate check``: reads, judges, and shows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from hami.cli.flags.files import file_name, read_text
from hami.cli.migrating import cluster
from hami.cli.migrating.showing import pairs
from hami.cli.terminal.escaping import visible
from hami.cli.terminal.messages import warn
from hami.cli.vendor_loading import installed_vendors
from hami.kube.identity.settings import KubeSettings
from hami.migration.conversion import convert
from hami.migration.readiness import Bearing, MoveFinding, hami_nodes, judge, unsigned
from hami.migration.seen import SeenCluster
from hami.migration.steps import Naming, Step, beside_values, naming_of, plan
from hami.wire.yaml_mapping import read_mapping

_MOST_PODS = 5
_HEADINGS = (
    (Bearing.LOST, "Cannot be honoured"),
    (Bearing.UNKNOWN, "Not known"),
    (Bearing.CHANGES, "Will change"),
    (Bearing.KEEPS, "Runs on"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveAnswer:
    """``nodes`` are those that HAMi serves, ``unsigned`` pods that no scheduler of ours signed."""

    seen: SeenCluster
    findings: Sequence[MoveFinding]
    naming: Naming
    steps: Sequence[Step]
    nodes: Sequence[str]
    unsigned: Sequence[str]

    @property
    def open(self) -> bool:
        """Something is to be decided before."""
        return any(one.bearing in (Bearing.LOST, Bearing.UNKNOWN) for one in self.findings)


def check(
    values: Path | None, kubeconfig: Path | None, context: str | None, release: str, namespace: str
) -> MoveAnswer:
    """Look at the cluster and say what a move means.

    Raises:
        HamiError: the cluster cannot be read, has no HAMi, or the file of values cannot be used.
    """
    given = None if values is None else read_mapping(file_name(values), read_text(values))
    settings = KubeSettings(kubeconfig=kubeconfig, context=context)
    seen = asyncio.run(cluster.look(settings, given))
    vendors = installed_vendors({}, on_broken=lambda broken: warn(str(broken)))
    conversion = None if seen.values is None else convert(seen.values)
    naming = naming_of(seen, release=release, namespace=namespace)
    return MoveAnswer(
        seen=seen,
        findings=judge(seen, vendors, conversion),
        naming=naming,
        steps=plan(naming),
        nodes=hami_nodes(seen, seen.plugins[0] if seen.plugins else None),
        unsigned=unsigned(seen, vendors),
    )


def show(console: Console, answer: MoveAnswer) -> None:
    """For people: what there is, what follows, and the commands."""
    pairs(console, "HAMi", _there(answer))
    for bearing, heading in _HEADINGS:
        held = [(one.about, one.text) for one in answer.findings if one.bearing is bearing]
        pairs(console, heading, held)
    for number, step in enumerate(answer.steps):
        _show_step(console, number, step)
        if number == 0:
            _lines(console, [f"beside-hami.yaml:\n{_beside(answer)}"])


def _there(answer: MoveAnswer) -> list[tuple[str, str]]:
    seen, n = answer.seen, answer.naming
    found = next(iter((*seen.schedulers, *seen.plugins)), None)
    first = ", ".join(answer.unsigned[:_MOST_PODS])
    more = len(answer.unsigned) - _MOST_PODS
    pods = f"{first} and {more} more" if more > 0 else first or "none"
    return [
        ("release", f"{n.hami_release} in {n.hami_namespace}"),
        ("version", (found.label("version") if found else "") or "unknown"),
        ("nodes", ", ".join(answer.nodes) or "none that its DaemonSet selects"),
        ("pods without our signature", pods),
    ]


def _beside(answer: MoveAnswer) -> str:
    text: str = yaml.safe_dump(beside_values(answer.naming), sort_keys=False)
    return text


def _show_step(console: Console, number: int, step: Step) -> None:
    console.print(Text(f"{number}. {step.title}", style="bold"))
    console.print(Padding(Text(step.why), (0, 0, 0, 3), expand=False))
    _lines(console, step.commands)
    if step.back:
        console.print(Padding(Text("back:", style="dim"), (0, 0, 0, 3), expand=False))
        _lines(console, step.back)


def _lines(console: Console, texts: Sequence[str]) -> None:
    """Commands are never folded, because people copy them."""
    for text in texts:
        for line in text.rstrip("\n").split("\n"):
            console.print(Text(f"   {visible(line)}"), soft_wrap=True)


def as_json(answer: MoveAnswer) -> dict[str, Any]:
    n = answer.naming
    return {
        "release": {"name": n.hami_release, "namespace": n.hami_namespace},
        "nodes": list(answer.nodes),
        "unsigned": list(answer.unsigned),
        "findings": [
            {"bearing": str(one.bearing), "about": one.about, "text": one.text}
            for one in answer.findings
        ],
        "beside": beside_values(n),
        "steps": [
            {
                "title": step.title,
                "why": step.why,
                "eachNode": step.each_node,
                "commands": list(step.commands),
                "back": list(step.back),
            }
            for step in answer.steps
        ],
    }
