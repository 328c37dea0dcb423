"""``hami demo``: the product's main job on an embedded cluster, step by step."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.text import Text

from hami.cli.flags.files import check_one_stdin, file_name, read_text
from hami.cli.foreground import run_until_signal
from hami.cli.terminal.escaping import visible
from hami.cli.terminal.tables import device_lines
from hami.hookspecs import PluginConfig
from hami.simulate.result import Simulation
from hami.vendors.registry import Vendors
from hami_lab.cluster import ClusterSettings, EmbeddedCluster
from hami_lab.demo.books import current_picture
from hami_lab.demo.nodes import NODES
from hami_lab.demo.run import DemoResult, StepResult, run_steps
from hami_lab.demo.steps import Scenario, check_plugins
from hami_lab.demo.workloads import apply_objects, outcome, read_objects, settled

T = TypeVar("T")


def run_demo(
    vendors: Vendors, config: PluginConfig, console: Console, *, as_json: bool
) -> DemoResult | None:
    """The scenario; None when it was interrupted.

    Raises:
        ConfigError: a plugin that it needs is missing.
        HamiError: the cluster could not be started, or broke.
    """
    check_plugins(vendors)
    show = _silent if as_json else teller(console)

    async def work() -> DemoResult:
        async with EmbeddedCluster(ClusterSettings(config=config), vendors=vendors) as cluster:
            steps = await run_steps(Scenario(cluster).steps(), show)
            return DemoResult(steps=steps, picture=await current_picture(cluster))

    if not as_json:
        console.print(
            "starting an API server, a kube-scheduler, kubelets and the scheduler service ..."
        )
    return interruptible(work)


def run_manifests(
    vendors: Vendors, config: PluginConfig, files: Sequence[Path]
) -> Simulation | None:
    """The files on a cluster of their own; None when it was interrupted.

    Raises:
        ConfigError: a file cannot be used.
        HamiError: the cluster could not be started, or broke.
    """
    check_one_stdin(files)
    documents = read_objects([(file_name(path), read_text(path)) for path in files])
    has_nodes = any(document.value["kind"] == "Node" for document in documents)
    if not has_nodes:
        check_plugins(vendors)

    async def work() -> Simulation:
        async with EmbeddedCluster(ClusterSettings(config=config), vendors=vendors) as cluster:
            if not has_nodes:
                for name, devices in NODES:
                    await cluster.add_node(name, devices)
            applied = await apply_objects(cluster, documents)
            await settled(cluster)
            return await outcome(cluster, applied)

    return interruptible(work)


def print_demo(console: Console, result: DemoResult) -> None:
    """The devices at the end, and one line that sums up."""
    console.print()
    if result.picture.devices:
        console.print(device_lines(console, result.picture.devices), markup=False, highlight=False)
        console.print()
    text, style = _summary(result.steps)
    console.print(Text(visible(text), style=style))


def interruptible(work: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
    """Its result, or None when a signal ended it; everything is tidied up either way."""
    results: list[T] = []

    async def kept() -> None:
        results.append(await work())

    run_until_signal(kept)
    return results[0] if results else None


def _silent(_: StepResult) -> None:
    """For ``--json``."""


def teller(console: Console) -> Callable[[StepResult], None]:
    """Shows one step that is done: held, failed or skipped."""
    held, failed, skipped = "✓✗-" if _can_show(console, "✓✗-") else ("ok", "FAILED", "skipped")

    def tell(step: StepResult) -> None:
        if step.problem:
            mark = (failed, "bold red")
        elif step.skipped:
            mark = (skipped, "bold yellow")
        else:
            mark = (held, "bold green")
        title = Text.assemble(mark, " ", (visible(step.title), "bold"))
        console.print(title, Text(f"{step.seconds:.1f} s", style="dim"))
        for line in [*step.lines, *step.problem.splitlines(), *step.skipped.splitlines()]:
            console.print(Text(f"    {visible(line)}"))

    return tell


def _summary(steps: Sequence[StepResult]) -> tuple[str, str]:
    """The last line, and its style."""
    failed = [step.title for step in steps if step.problem]
    skipped = [f"{step.name} ({step.skipped})" for step in steps if step.skipped]
    if failed:
        text, style = f"{len(failed)} of {len(steps)} steps failed: {'; '.join(failed)}", "bold red"
    elif skipped:
        text, style = f"{len(steps) - len(skipped)} of {len(steps)} steps held", "bold yellow"
    else:
        text, style = f"all {len(steps)} steps held", "bold green"
    return f"{text}; {len(skipped)} skipped: {'; '.join(skipped)}" if skipped else text, style


def _can_show(console: Console, characters: str) -> bool:
    try:
        characters.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
