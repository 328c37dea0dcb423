"""``hami monitor``: what runs on this node, measured and fed back, until it is told to stop."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog
import typer

from hami.cli.flags.go_flags import GoFlags
from hami.cli.flags.setting_options import (
    ConfigFile,
    PrintConfig,
    declared,
    given_settings,
    ignored_parameters,
    setting_parameters,
)
from hami.cli.foreground import run_until_signal
from hami.cli.node_process import begin_logs, imported_lean
from hami.cli.terminal.messages import answering
from hami.monitor.settings.source import MONITOR, MonitorSource
from hami.settings.klog import KLOG, KLOG_SWITCHES
from hami.settings.source import as_yaml
from hami.vendors.registry import load_vendors


def declare(function: Callable[..., None]) -> Callable[..., None]:
    """Give the command, which takes ``**options``, a parameter for every setting."""
    klog = ignored_parameters(KLOG, KLOG_SWITCHES)
    declared(function, [*setting_parameters(MONITOR), *klog])
    return function


app = typer.Typer(add_completion=False)


@app.command("monitor", cls=GoFlags)
@declare
def monitor_command(
    *,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    **options: Any,
) -> None:
    """Measure what containers use of this node's devices, and tell them: the node monitor.

    Each setting is a flag, a variable (HAMI_MONITOR_ and the flag in capitals, with _) and a key of
    the --config file, in this order of precedence. The vendors' own options are taken from their
    variables and the device configuration. Ends with 0 on SIGTERM or Ctrl-C, with 2 when a setting
    must be changed.
    """
    with answering():
        run_monitor(config, options, print_config=print_config)


def run_monitor(
    config_file: Path | None, options: Mapping[str, Any], *, print_config: bool
) -> None:
    """Run the command with parsed options.

    Raises:
        HamiError: a setting, a file or a plugin must be changed.
    """
    vendors = load_vendors(on_broken=lambda _: None)  # reported when they are loaded for good
    source = MonitorSource(
        file=config_file,
        flags=given_settings(MONITOR, options),
        environment=dict(os.environ),
        options=[option for vendor in vendors.values() for option in vendor.node_options()],
    )
    config = source.load()
    if print_config:
        typer.echo(as_yaml(config), nl=False)
        return
    begin_logs(config, options)
    # Imported late: other commands need none of it.
    monitor, pages = imported_lean("hami.monitor.monitor")

    def ready() -> None:
        pages.release()
        structlog.get_logger().info("ready")

    run_until_signal(lambda: monitor.serve(config, source=source, ready=ready))
