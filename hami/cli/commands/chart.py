"""``hami chart``: for whoever installs hami with its Helm chart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hami.cli.flags.shared import DeviceConfig, Profiles
from hami.cli.terminal.interrupts import ending_at_interrupt
from hami.cli.terminal.messages import answering

NOT_HONOURED = 1

Values = Annotated[
    Path,
    typer.Argument(
        metavar="VALUES.yaml", help="Values of HAMi's chart, all or some; - is standard input."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write hami's values there.", show_default=False
    ),
]
Defaults = Annotated[bool, typer.Option("--all", help="Report keys with HAMi's default as well.")]

app = typer.Typer(name="chart", add_completion=False, no_args_is_help=True)


@app.callback()
def chart() -> None:
    """Write values for the Helm chart."""


@app.command("vendor")
def vendor_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The vendor's key, as hami plugins lists it.")
    ],
    *,
    device_config: DeviceConfig = None,
    profiles: Profiles = None,
) -> None:
    """Print a vendor's entry: its resources, and its annotations by who writes them.

    Exits with 2 when no plugin has this vendor.
    """
    with ending_at_interrupt():
        # Imported late, so that the help of hami need not wait for it.
        from hami.cli.commands import chart_vendor  # noqa: PLC0415

    with answering():
        found = chart_vendor.find_vendor(name, device_config, profiles)
        typer.echo(chart_vendor.printed(found), nl=False)


@app.command("convert")
def convert_command(values: Values, *, output: Output = None, defaults: Defaults = False) -> None:
    """Translate values of HAMi's chart into values of hami's.

    Reports key by key, on standard error, what became of it. A value that is HAMi's default counts
    as not chosen. Exits with 1 when something cannot be honoured or is no key of HAMi's, with 2
    when a file cannot be used.
    """
    with ending_at_interrupt():
        # Imported late, so that the help of hami need not wait for it.
        from hami.cli.migrating import converting, showing  # noqa: PLC0415

    with answering():
        conversion = converting.read(values)
        converting.write(conversion, output)
        showing.show(showing.report_console(), conversion, defaults=defaults)
        if conversion.open:
            raise typer.Exit(NOT_HONOURED)
