"""``hami demo`` and ``hami up`` as the command line declares them: options, output, exit codes.

Exit codes: 0 all is well, 1 a step does not hold or a pod is not placed, 2 the input, a flag or a
plugin must be changed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from hami.cli.flags.shared import DeviceConfig, Json, Profiles, print_json
from hami.cli.terminal.interrupts import INTERRUPTED, ending_at_interrupt
from hami.cli.terminal.messages import answering, warn
from hami.cli.vendor_loading import installed_vendors

T = TypeVar("T")

NOT_HELD = 1

DemoFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--manifests",
        metavar="FILE",
        help="Instead of the steps: apply this file (may be given several times) and show who "
        "gets what; without a Node in it, on the demo's nodes.",
    ),
]
UpNodes = Annotated[
    str | None,
    typer.Option(
        "--nodes",
        metavar="MODELxDEVICES:NODES,...",
        help="Nodes with simulated devices, for example t4x4:3. Default: a100-40gx2:1,t4x4:1.",
    ),
]
UpCluster = Annotated[
    Path | None,
    typer.Option("--cluster", metavar="FILE", help="Manifests to begin with, nodes among them."),
]
UpAgents = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VENDOR [FLAG ...]",
        help="A node with a real node agent: the vendor and the agent's flags in one text. May be "
        "given several times.",
    ),
]
Kubeconfig = Annotated[Path, typer.Option(metavar="FILE", help="Where the kubeconfig is written.")]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="The API server's port; 0: any free one.")
]

demo_app = typer.Typer(add_completion=False)
up_app = typer.Typer(add_completion=False)


@demo_app.command("demo")
def demo_command(
    *, as_json: Json = False, manifests: DemoFiles = None, device_config: DeviceConfig = None
) -> None:
    """Show the main job on an embedded cluster, step by step, each verified; needs no GPU.

    Exits with 1 when a step does not hold (with --manifests: when a pod waits or is denied), with
    2 when the input is wrong.
    """
    with ending_at_interrupt():
        # Imported late: the help of hami needs no cluster.
        from hami.cli.commands import simulation_tables as render  # noqa: PLC0415
        from hami.cli.flags import files  # noqa: PLC0415 -- as above
        from hami.cli.terminal import width  # noqa: PLC0415 -- as above
        from hami_lab.cli import demo  # noqa: PLC0415

    with answering():
        config = files.read_device_config(device_config) if device_config else {}
        vendors = installed_vendors(config)
        console = width.output_console()
        if manifests:
            found = _completed(demo.run_manifests(vendors, config, manifests))
            warn(*found.warnings)
            held, as_object = found.everything_placed, found.as_json()
            show = partial(render.print_simulation, console, found)
        else:
            result = _completed(demo.run_demo(vendors, config, console, as_json=as_json))
            held, as_object = result.held, result.as_json()
            show = partial(demo.print_demo, console, result)
        if as_json:
            print_json(as_object)
        else:
            show()
        if not held:
            raise typer.Exit(NOT_HELD)


@up_app.command("up")
def up_command(
    *,
    nodes: UpNodes = None,
    cluster: UpCluster = None,
    kubeconfig: Kubeconfig = Path("hami.kubeconfig"),
    port: Port = 0,
    device_config: DeviceConfig = None,
    profiles: Profiles = None,
    agent: UpAgents = None,
) -> None:
    """Keep an embedded cluster running until Ctrl-C, for kubectl; needs no GPU."""
    with ending_at_interrupt():
        from hami.cli.flags import files  # noqa: PLC0415 -- as above
        from hami.cli.terminal import width  # noqa: PLC0415 -- as above
        from hami_lab.cli import up  # noqa: PLC0415 -- as above

    with answering():
        config = files.read_device_config(device_config) if device_config else {}
        vendors = installed_vendors(config, profiles=profiles)
        agents = up.agents_of(agent or [], vendors)
        documents = up.begin_with(vendors, config, nodes, cluster, alone=not agents)
        settings = up.settings_of(config, port=port, profiles=profiles)
        up.run_up(
            vendors, settings, documents, agents, width.output_console(), kubeconfig=kubeconfig
        )


def _completed(found: T | None) -> T:
    """What came of it; a run that was interrupted ends here."""
    if found is None:
        raise typer.Exit(INTERRUPTED)
    return found
