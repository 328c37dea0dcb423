"""``hami recommend``: what each workload could ask for, by what it used in the last hour."""

from __future__ import annotations

from typing import Annotated

import typer

from hami.cli.commands.api_client import DEFAULT, Api
from hami.cli.flags.shared import Context, Json, Kubeconfig, print_json
from hami.cli.terminal.interrupts import ending_at_interrupt
from hami.cli.terminal.messages import answering

REFUSED = 1

Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Of pods; by default the kubeconfig's, and with --monitor all.",
        show_default=False,
    ),
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]
Apply = Annotated[bool, typer.Option("--apply", help="Resize the pods that run, within quota.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Resize without being asked.")]
Monitors = Annotated[
    list[str] | None,
    typer.Option(
        "--monitor",
        metavar="URL",
        help="Ask this monitor, and no API server; may be repeated.",
        show_default=False,
    ),
]
MonitorNamespace = Annotated[
    str, typer.Option(metavar="NAME", help="Where the monitors' pods are.")
]
MonitorSelector = Annotated[
    str, typer.Option(metavar="LABELS", help="Which pods there are monitors.")
]
MonitorPort = Annotated[int, typer.Option(min=1, max=65535, help="Where they answer.")]
Server = Annotated[
    str,
    typer.Option(
        envvar="HAMI_SERVER", metavar="URL", help="For --apply: the scheduler's metrics address."
    ),
]

app = typer.Typer(add_completion=False)


@app.command("recommend")
def recommend_command(
    *,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    apply: Apply = False,
    yes: Yes = False,
    monitor: Monitors = None,
    monitor_namespace: MonitorNamespace = "hami",
    monitor_selector: MonitorSelector = (
        "app.kubernetes.io/name=hami,app.kubernetes.io/component=monitor"
    ),
    monitor_port: MonitorPort = 9394,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
    server: Server = DEFAULT,
) -> None:
    """Say what each workload could ask for, by what its containers used in the last hour.

    Asks the nodes' monitors through the API server. Nothing changes without --apply, which resizes
    as hami resize does. Exits with 1 when a pod is not resized, with 2 when nobody answers or the
    input is wrong.
    """
    with ending_at_interrupt():
        # Imported late, so that the help of hami need not wait for it.
        from hami.cli.commands import resize  # noqa: PLC0415
        from hami.cli.recommending import applying, monitors, work  # noqa: PLC0415

    with answering():
        api = Api(server)
        question = work.Question(
            namespace=namespace,
            all_namespaces=all_namespaces,
            urls=tuple(monitor or ()),
            monitors=monitors.MonitorPods(
                namespace=monitor_namespace, selector=monitor_selector, port=monitor_port
            ),
            kubeconfig=kubeconfig,
            context=context,
        )
        caller = resize.find_caller(kubeconfig, context) if apply else None
        found = work.look(question)
        work.warn_of_silent(found.heard)
        shown = work.as_json(found)
        if not as_json:
            work.show(found)
        refused = False
        if caller is not None:
            wanted = applying.resizes(found.advices)
            refused = True
            if work.agreed(wanted, yes=yes, asking=not as_json):
                shown["resized"], refused = work.carry_out(
                    found, wanted, api, caller, quiet=as_json
                )
        if as_json:
            print_json(shown)
        if refused:
            raise typer.Exit(REFUSED)
