"""What several commands take, and how all of them print JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
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
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Who you are; by default as kubectl finds it.", show_default=False
    ),
]
Context = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A context of the kubeconfig.", show_default=False),
]


def print_json(value: dict[str, Any]) -> None:
    # Bytes: JSON is UTF-8, whatever the locale says.
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
