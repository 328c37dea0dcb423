"""Commands that are loaded only when somebody calls them: each declares dozens of settings.

So the node agent stays small, and every command starts sooner.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from hami.cli.imports import imported_for_good
from hami.cli.interrupts import ending_at_interrupt

LATE = MappingProxyType(
    {"scheduler": "hami.cli.scheduler", "device-plugin": "hami.cli.device_plugin"}
)
"""The module of each such command; its ``app`` holds only that command."""


class Commands(TyperGroup):
    """``hami``'s own commands, and the late ones."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = [name for name in super().list_commands(ctx) if name not in LATE]
        # After ``simulate``, with which people begin.
        return [*own[:1], *LATE, *own[1:]]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in LATE and cmd_name not in self.commands:
            with ending_at_interrupt():
                self.add_command(get_command(imported_for_good(LATE[cmd_name]).app), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in LATE and args[0] not in self.commands:
            # Perhaps misspelt: the answer names those that are spelt alike.
            for name in LATE:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)
