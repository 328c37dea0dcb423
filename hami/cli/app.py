"""The ``hami`` command.

Exit codes: 0 all is well, 1 something stays pending or is denied, 2 the input, a flag or a plugin
must be changed; ``hami.cli.main`` adds those for failures outside the command's own work.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hami import __version__
from hami.cli.flags.shared import Context, DeviceConfig, Json, Profiles, print_json
from hami.cli.lazy_commands import Commands
from hami.cli.terminal.escaping import visible
from hami.cli.terminal.interrupts import ending_at_interrupt
from hami.cli.terminal.messages import answering, warn
from hami.cli.vendor_loading import installed_vendors
from hami.domain.errors import PluginRejected
from hami.vendors.registry import Vendors

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
Policy = Annotated[
    str | None,
    typer.Option(
        metavar="NODE/DEVICE",
        help="How nodes (binpack or spread) and devices (binpack, spread, numa, mutex, "
        "topology-aware, or several with commas) are chosen for pods that do not say. "
        "Default: binpack/spread.",
    ),
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
ResizePod = Annotated[
    str, typer.Argument(metavar="POD", help="A pod that runs.", show_default=False)
]
ResizeNamespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="The pod's namespace; by default the kubeconfig's.",
        show_default=False,
    ),
]
ResizeContainer = Annotated[
    str,
    typer.Option(
        "--container",
        "-c",
        metavar="NAME",
        help="Needed where several containers have devices.",
        show_default=False,
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Who you are, and in which namespace; by default as kubectl finds it.",
        show_default=False,
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="QUANTITY",
        help="Memory of each slice, such as 12Gi; a bare number is MiB.",
        show_default=False,
    ),
]
Cores = Annotated[
    int | None,
    typer.Option(
        metavar="PERCENT", help="Compute of each slice, in percent of a device.", show_default=False
    ),
]
CoresLimit = Annotated[
    int | None,
    typer.Option(
        metavar="PERCENT",
        help="Compute that it may have where others leave some idle; 0: its share alone.",
        show_default=False,
    ),
]
RequestId = Annotated[
    str,
    typer.Option(
        metavar="ID",
        help="The same id again asks for nothing new; a fresh one by default.",
        show_default=False,
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
        from hami.cli.commands import simulate as simulating  # noqa: PLC0415

    with answering():
        result = simulating.run_simulation(files, policy, device_config, profiles)
        if as_json:
            print_json(result.as_json())
        else:
            simulating.show(result)
        if not result.everything_placed:
            raise typer.Exit(NOT_PLACED)


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
        from hami.cli.commands import api_client, quota  # noqa: PLC0415 -- as above
        from hami.cli.terminal import width  # noqa: PLC0415 -- as above

    with answering():
        question = quota.read_question(pod, namespace, pods=pods)
        look = partial(quota.ask, api_client.Api(server), question)
        if watch:
            console = None if as_json else width.output_console()
            quota.watch(look, console, namespace=question.namespace)
            return
        answer = look()
        if as_json:
            print_json(quota.as_json(answer))
        else:
            quota.show(width.output_console(), answer, question.namespace)
        if quota.waits(answer):
            raise typer.Exit(NOT_PLACED)


@app.command("resize")
def resize_command(
    pod: ResizePod,
    *,
    namespace: ResizeNamespace = None,
    container: ResizeContainer = "",
    gpumem: Memory = None,
    gpucores: Cores = None,
    gpucores_limit: CoresLimit = None,
    request_id: RequestId = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
    server: Server = "http://127.0.0.1:9395",
) -> None:
    """Give a container that runs more or less of the devices that it has.

    Shows your token of the kubeconfig, or that of HAMI_TOKEN, to the scheduler, which asks the API
    server whether you may update pods/resize of this pod. Exits with 1 when it is refused, with 2
    when nobody answers or the input is wrong.
    """
    with ending_at_interrupt():
        from hami.cli.commands import api_client, resize  # noqa: PLC0415 -- as above

    with answering():
        wanted = resize.read_wanted(container, gpumem, gpucores, gpucores_limit, request_id)
        caller = resize.find_caller(kubeconfig, context)
        about = (namespace or caller.namespace, pod)
        answer = resize.ask(api_client.Api(server), caller, about, wanted)
        if as_json:
            print_json(resize.as_json(answer))
        else:
            resize.show(answer)
        if resize.is_refused(answer):
            raise typer.Exit(NOT_PLACED)


@app.command("plugins")
def plugins_command(*, as_json: Json = False, profiles: Profiles = None) -> None:
    """List the vendors of the installed plugins.

    Exits with 2 when a plugin cannot be used.
    """
    with ending_at_interrupt():
        from hami.cli.commands import simulation_tables as render  # noqa: PLC0415 -- as above
        from hami.cli.terminal import width  # noqa: PLC0415 -- as above

    broken: list[PluginRejected] = []
    with answering():
        vendors = installed_vendors({}, profiles=profiles, on_broken=broken.append)
        if as_json:
            print_json(_plugins_as_json(vendors))
        else:
            render.print_plugins(width.output_console(), vendors)
        # The first failure is reported at the end.
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
        from hami.cli.commands import plugin_new  # noqa: PLC0415 -- as above

    with answering():
        new = plugin_new.new_plugin
        written = [plugin_new.new_profile(name, directory)] if profile else new(name, directory)
        for path in written:
            typer.echo(visible(str(path)))


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
