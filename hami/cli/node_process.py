"""How a process begins of which every node runs one: its logs, and no more memory than it needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import structlog

from hami.cli.flags.setting_options import given_ignored
from hami.cli.imports import import_aiohttp_alone, imported_for_good
from hami.cli.memory_use import LibraryPages, keep_one_arena
from hami.cli.terminal.interrupts import ending_at_interrupt
from hami.logs import configure_logs
from hami.settings.klog import KLOG
from hami.settings.node_process import NodeProcessSettings


def begin_logs(config: NodeProcessSettings, options: Mapping[str, Any]) -> None:
    """Log as the settings say, first of all which flags of HAMi's do nothing here."""
    configure_logs(config.log_level, config.log_format)
    for flag in given_ignored(KLOG, options):
        structlog.get_logger().warning(f"--{flag} has no effect here; leave it out")


def imported_lean(module: str) -> tuple[ModuleType, LibraryPages]:
    """The module that the process is, imported while there are no threads.

    What its libraries have mapped is let go of once. Release it again when the process is ready.
    """
    with ending_at_interrupt():
        import_aiohttp_alone()
        imported = imported_for_good(module)
    keep_one_arena()
    pages = LibraryPages.loaded()
    pages.release()
    return imported, pages
