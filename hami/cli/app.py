"""The ``hami`` command.

Exit codes: 0 all is well, 1 something stays pending or is denied, 2 the input, a flag or a plugin
must be changed; ``hami.cli.main`` adds those for failures outside the command's own work.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from hami import __version__
from hami.cli.answering import answering, warn
from hami.cli.interrupts import INTERRUPTED, ending_at_interrupt
from hami.cli.late import Commands
from hami.cli.loading import installed_vendors
from hami.cli.visible import visible
from hami.domain.errors import PluginRejected
from hami.vendors.registry import Vendors

T = TypeVar("T")

NOT_PLACED = 1

app = typer.Typer(
    name="hami",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

plugin_app = typer.Typer(no_args_is_help=True, help="Start a plugin of your own.")
app.add_typer(plugin_app, name="plugin")

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="CLUSTER.yaml WORKLOAD.yaml...",
        help="Kubernetes manifests, in YAML or JSON; - is standard input.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Policy = Annotated[
    str | None,
    typer.Option(
        metavar="NODE/DEVICE",
        help="How nodes (binpack or spread) and devices (binpack, spread, numa, mutex, "
        "topology-aware, or several with commas) are chosen for pods that do not say. "
        "Default: binpack/spread.",
    ),
]
DeviceConfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The device configuration: a section per vendor, in YAML."),
]

Profiles = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar="HAMI_PROFILES",
        help="A folder with vendors that are only data: a YAML profile each.",
    ),
]

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

QuotaPod = Annotated[
    str | None,
    typer.Argument(
        metavar="NAMESPACE/POD",
        help="What this pod needs, why it waits, who is evicted for it.",
        show_default=False,
    ),
]
QuotaNamespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="The quota of this namespace alone."),
]
Server = Annotated[
    str,
    typer.Option(
        envvar="HAMI_SERVER", metavar="URL", help="The scheduler's metrics address, with its API."
    ),
]
Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Look again every 2 seconds until Ctrl-C.")
]
WithPods = Annotated[bool, typer.Option("--pods", help="The pods of each quota as well.")]


def _print_version(asked: bool) -> None:  # noqa: FBT001 -- typer passes the option's value
    if asked:
        typer.echo(f"hami {__version__}")
        raise typer.Exit


@app.callback()
def hami(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Share accelerators between Kubernetes pods, with every vendor as a plugin."""


@app.command("simulate")
def simulate_command(
    files: Files,
    *,
    as_json: Json = False,
    policy: Policy = None,
    device_config: DeviceConfig = None,
    profiles: Profiles = None,
) -> None:
    """Place pods on paper: who runs where, on which device, and why not.

    Reads nodes, pods, quotas and workloads, those of the common training
    operators among them. Exits with 1 when a pod stays pending or is denied,
    with 2 when the input is wrong.
    """
    with ending_at_interrupt():
        # Imported late, like what other commands need: the node agent must stay small.
        from hami.cli import simulating  # noqa: PLC0415

    with answering():
        result = simulating.simulated(files, policy, device_config, profiles)
        if as_json:
            _print_json(result.as_json())
        else:
            simulating.show(result)
        if not result.everything_placed:
            raise typer.Exit(NOT_PLACED)


@app.command("demo")
def demo_command(
    *, as_json: Json = False, manifests: DemoFiles = None, device_config: DeviceConfig = None
) -> None:
    """Show the main job on an embedded cluster, step by step, each verified; needs no GPU.

    Exits with 1 when a step does not hold (with --manifests: when a pod waits or is denied), with
    2 when the input is wrong.
    """
    with ending_at_interrupt():
        from hami.cli import demo, files, render, terminal  # noqa: PLC0415 -- as above

    with answering():
        config = files.read_device_config(device_config) if device_config else {}
        vendors = installed_vendors(config)
        console = terminal.output_console()
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
            _print_json(as_object)
        else:
            show()
        if not held:
            raise typer.Exit(NOT_PLACED)


@app.command("up")
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
        from hami.cli import files, terminal, up  # noqa: PLC0415 -- as above

    with answering():
        config = files.read_device_config(device_config) if device_config else {}
        vendors = installed_vendors(config, profiles=profiles)
        agents = up.agents_of(agent or [], vendors)
        documents = up.begin_with(vendors, config, nodes, cluster, alone=not agents)
        settings = up.settings_of(config, port=port, profiles=profiles)
        up.run_up(
            vendors, settings, documents, agents, terminal.output_console(), kubeconfig=kubeconfig
        )


@app.command("quota")
def quota_command(
    pod: QuotaPod = None,
    *,
    namespace: QuotaNamespace = None,
    pods: WithPods = False,
    watch: Watch = False,
    as_json: Json = False,
    server: Server = "http://127.0.0.1:9395",
) -> None:
    """Show elastic quotas: who holds what, who borrows from whom, what is left; or one pod.

    Asks the scheduler's read-only API. Exits with 1 when the pod waits, with 2 when nobody answers.
    """
    with ending_at_interrupt():
        from hami.cli import api_client, quota, terminal  # noqa: PLC0415 -- as above

    with answering():
        question = quota.read_question(pod, namespace, pods=pods)
        look = partial(quota.ask, api_client.Api(server), question)
        if watch:
            console = None if as_json else terminal.output_console()
            quota.watch(look, console, namespace=question.namespace)
            return
        answer = look()
        if as_json:
            _print_json(quota.as_json(answer))
        else:
            quota.show(terminal.output_console(), answer, question.namespace)
        if quota.waits(answer):
            raise typer.Exit(NOT_PLACED)


@app.command("plugins")
def plugins_command(*, as_json: Json = False, profiles: Profiles = None) -> None:
    """List the vendors of the installed plugins.

    Exits with 2 when a plugin cannot be used.
    """
    with ending_at_interrupt():
        from hami.cli import render, terminal  # noqa: PLC0415 -- as above

    broken: list[PluginRejected] = []
    with answering():
        vendors = installed_vendors({}, profiles=profiles, on_broken=broken.append)
        if as_json:
            _print_json(_plugins_as_json(vendors))
        else:
            render.print_plugins(terminal.output_console(), vendors)
        # The first one is said in the end.
        warn(*map(str, broken[1:]))
        if broken:
            raise broken[0]


@plugin_app.command("new")
def new_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The vendor, for example acme.")],
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where it goes; here by default.")
    ] = Path(),
    *,
    profile: Annotated[
        bool, typer.Option("--profile", help="One YAML file instead: a vendor that is only data.")
    ] = False,
) -> None:
    """Write a plugin package for a vendor, which passes the conformance kit as it is."""
    with ending_at_interrupt():
        from hami.cli import plugin_new  # noqa: PLC0415 -- as above

    with answering():
        new = plugin_new.new_plugin
        written = [plugin_new.new_profile(name, directory)] if profile else new(name, directory)
        for path in written:
            typer.echo(visible(str(path)))


def _print_json(value: dict[str, Any]) -> None:
    # Bytes: JSON is UTF-8, whatever the locale says.
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def _completed(found: T | None) -> T:
    """Return the outcome; a run that was interrupted ends the process here."""
    if found is None:
        raise typer.Exit(INTERRUPTED)
    return found


def _plugins_as_json(vendors: Vendors) -> dict[str, Any]:
    return {
        "vendors": [
            {
                "key": key,
                "distribution": vendor.distribution,
                "version": vendor.version,
                "resources": list(vendor.profile.resources.all_names),
                "hooks": sorted(vendor.hooks),
            }
            for key, vendor in vendors.items()
        ]
    }
