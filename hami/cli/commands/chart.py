"""``hami chart``: for whoever installs hami with its Helm chart."""

from __future__ import annotations

from typing import Annotated

import typer

from hami.cli.flags.shared import DeviceConfig, Profiles
from hami.cli.terminal.interrupts import ending_at_interrupt
from hami.cli.terminal.messages import answering

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
