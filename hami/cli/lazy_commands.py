"""Commands that are loaded only when somebody calls them, so that the node agent stays small.

``scheduler``, ``device-plugin`` and ``monitor`` declare dozens of settings each, ``recommend`` many
options; ``chart`` and ``migrate`` are for whoever installs hami. ``demo`` and ``up`` belong to
another distribution, hami-lab, which registers them under the entry point group ``hami.commands``.
"""

from __future__ import annotations

from importlib import metadata
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from hami.cli.imports import imported_for_good
from hami.cli.terminal.interrupts import ending_at_interrupt
from hami.cli.terminal.messages import answering
from hami.domain.errors import ConfigError

LATE = MappingProxyType(
    {
        "scheduler": "hami.cli.commands.scheduler",
        "device-plugin": "hami.cli.commands.device_plugin",
        "monitor": "hami.cli.commands.monitor",
        "recommend": "hami.cli.commands.recommend",
        "chart": "hami.cli.commands.chart",
        "migrate": "hami.cli.commands.migrate",
    }
)
"""The module of each such command; its ``app`` holds only that command, or a group of that name."""

LABORATORY = ("demo", "up")
"""What hami-lab brings."""

ENTRY_POINTS = "hami.commands"


class Commands(TyperGroup):
    """``hami``'s own commands, and the late ones."""

    def list_commands(self, ctx: Any) -> list[str]:
        others = (*LATE, *LABORATORY)
        own = [name for name in super().list_commands(ctx) if name not in others]
        # After ``simulate``, with which people begin.
        return [*own[:1], *others, *own[1:]]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in (*LATE, *LABORATORY) and cmd_name not in self.commands:
            with ending_at_interrupt():
                self.add_command(get_command(_app_of(cmd_name)), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in LATE and args[0] not in self.commands:
            # Perhaps misspelt: load all commands, so that the error can suggest similar names.
            for name in LATE:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


def _app_of(name: str) -> typer.Typer:
    """The application that holds the command ``name`` alone."""
    if name in LATE:
        found: typer.Typer = imported_for_good(LATE[name]).app
        return found
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        if entry.name == name:
            installed: typer.Typer = entry.load()
            return installed
    return _not_installed(name)


def _not_installed(name: str) -> typer.Typer:
    """Stands in for a command of hami-lab that is not installed; it names the remedy."""
    app = typer.Typer(add_completion=False)

    @app.command(
        name,
        help="Not installed: it comes with the extra lab of hami.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def command() -> None:
        with answering():
            raise ConfigError(f"hami {name} is not installed; run pip install 'hami[lab]'")

    return app
