"""Loads the installed plugins for a command, which prints their failures."""

from __future__ import annotations

from pathlib import Path

from hami.cli.terminal.interrupts import ending_at_interrupt
from hami.cli.terminal.messages import Failures
from hami.hookspecs import PluginConfig
from hami.vendors.discovery import OnBroken, refuse_broken
from hami.vendors.registry import Vendors, load_vendors


def installed_vendors(
    config: PluginConfig,
    *,
    profiles: Path | None = None,
    on_broken: OnBroken = refuse_broken,
) -> Vendors:
    """:func:`load_vendors` with failures printed; imports plugins, which may load libraries."""
    with ending_at_interrupt():
        return load_vendors(config, profiles=profiles, on_failure=Failures(), on_broken=on_broken)
