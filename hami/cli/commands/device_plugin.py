"""``hami device-plugin``: the node agent of one vendor, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog
import typer

from hami.cli.flags.setting_options import (
    ConfigFile,
    PrintConfig,
    declared,
    given_settings,
    ignored_parameters,
    setting_parameters,
)
from hami.cli.flags.vendor_flags import DevicePluginCommand, VendorFlags, vendor_flags
from hami.cli.foreground import run_until_signal
from hami.cli.node_process import begin_logs, imported_lean
from hami.cli.terminal.messages import answering
from hami.node.settings.source import DEVICE_PLUGIN, AgentSource
from hami.settings.klog import KLOG, KLOG_SWITCHES
from hami.settings.source import as_yaml

FIRST_CALLS = 10.0
"""Seconds in which kubelet registers the agent and asks for its devices."""


def declare(function: Callable[..., None]) -> Callable[..., None]:
    """Give the command, which takes ``**options``, a parameter for every setting."""
    klog = ignored_parameters(KLOG, KLOG_SWITCHES)
    declared(function, [*setting_parameters(DEVICE_PLUGIN), *klog])
    return function


app = typer.Typer(add_completion=False)


@app.command("device-plugin", cls=DevicePluginCommand)
@declare
def device_plugin_command(
    ctx: typer.Context,
    *,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    **options: Any,
) -> None:
    """Serve one vendor's devices on this node: kubelet's device plugin.

    Each setting is a flag, a variable (HAMI_DEVICE_PLUGIN_ and the flag in capitals, with _) and a
    key of the --config file, in this order of precedence. HAMi's flags and variables work as they
    are. Ends with 0 on SIGTERM or Ctrl-C, with 2 when a setting must be changed.
    """
    with answering():
        run_device_plugin(config, options, vendor_flags(ctx), print_config=print_config)


def run_device_plugin(
    config_file: Path | None,
    options: Mapping[str, Any],
    vendor: VendorFlags,
    *,
    print_config: bool,
) -> None:
    """Run the command with parsed options.

    Raises:
        HamiError: a setting, a file or a plugin must be changed.
    """
    source = AgentSource(
        file=config_file,
        flags=given_settings(DEVICE_PLUGIN, options),
        environment=dict(os.environ),
        options=vendor.options,
        option_flags=vendor.given,
    )
    config = source.load()
    if print_config:
        typer.echo(as_yaml(config), nl=False)
        return
    begin_logs(config, options)
    # Imported late: other commands need no gRPC.
    agent, pages = imported_lean("hami.node.agent")

    def ready() -> None:
        pages.release()
        # gRPC runs much code once, at its first calls, and kubelet makes those about now.
        asyncio.get_running_loop().call_later(FIRST_CALLS, pages.release)
        structlog.get_logger().info("ready")

    run_until_signal(lambda: agent.serve(config, source=source, ready=ready))
