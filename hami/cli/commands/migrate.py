"""``hami migrate``: for whoever has HAMi and wants hami in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hami.cli.flags.shared import Context, Json, Kubeconfig, print_json
from hami.cli.terminal.interrupts import ending_at_interrupt
from hami.cli.terminal.messages import answering

TO_DECIDE = 1

Values = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="HAMi's values; by default those of its release in the cluster.",
        show_default=False,
    ),
]
ReleaseName = Annotated[
    str, typer.Option("--release", metavar="NAME", help="What hami's release will be called.")
]
ReleaseNamespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Where it will be installed.")
]

app = typer.Typer(name="migrate", add_completion=False, no_args_is_help=True)


@app.callback()
def migrate() -> None:
    """Move a cluster from HAMi to hami, and back."""


@app.command("check")
def check_command(
    *,
    values: Values = None,
    release: ReleaseName = "gpus",
    namespace: ReleaseNamespace = "hami",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """Say what a move would change, what it cannot keep, who runs on, and the commands.

    Reads the cluster and changes nothing there. Exits with 1 when something is to be decided
    before, with 2 when the cluster cannot be read or has no HAMi.
    """
    with ending_at_interrupt():
        # Imported late, so that the help of hami need not wait for it.
        from hami.cli.migrating import checking  # noqa: PLC0415
        from hami.cli.terminal.width import output_console  # noqa: PLC0415

    with answering():
        answer = checking.check(values, kubeconfig, context, release, namespace)
        if as_json:
            print_json(checking.as_json(answer))
        else:
            checking.show(output_console(), answer)
        if answer.open:
            raise typer.Exit(TO_DECIDE)
