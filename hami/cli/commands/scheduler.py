"""``hami scheduler``: the extender and webhook service, until it is told to stop."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
import typer

from hami.cli.commands.scheduler_options import declare, split
from hami.cli.flags.go_flags import GoFlags
from hami.cli.flags.setting_options import ConfigFile, PrintConfig
from hami.cli.foreground import run_until_signal
from hami.cli.imports import imported_for_good
from hami.cli.terminal.interrupts import ending_at_interrupt
from hami.cli.terminal.messages import answering
from hami.domain.errors import ConfigError
from hami.logs import configure_logs
from hami.scheduler.settings.config import SchedulerConfig
from hami.scheduler.settings.config_source import ConfigSource
from hami.scheduler.settings.hami_flags import unread_sections
from hami.settings.source import as_yaml
from hami.vendors.discovery import installed_plugins, profile_plugins

app = typer.Typer(add_completion=False)


@app.command("scheduler", cls=GoFlags)
@declare
def scheduler_command(
    *, config: ConfigFile = None, print_config: PrintConfig = False, **options: Any
) -> None:
    """Serve kube-scheduler's extender calls and the admission webhook.

    Each setting is a flag, a variable (HAMI_SCHEDULER_ and the flag in capitals, with _) and a key
    of the --config file, in this order of precedence. HAMi's flags work as they are. Ends with 0
    on SIGTERM or Ctrl-C, with 2 when a setting must be changed.
    """
    with answering():
        run_scheduler(config, options, print_config=print_config)


def run_scheduler(
    config_file: Path | None, options: Mapping[str, Any], *, print_config: bool
) -> None:
    """Run the command with parsed options.

    Raises:
        HamiError: a setting, a file or a plugin must be changed.
    """
    flags, foreign = split(options)
    source = ConfigSource(file=config_file, flags=flags, foreign=foreign, environment=os.environ)
    config = source.load()
    if print_config:
        typer.echo(as_yaml(config), nl=False)
        return
    configure_logs(config.log_level, config.log_format)
    log = structlog.get_logger()
    for text in _warnings(config, source):
        log.warning(text)

    def ready(addresses: Mapping[str, str]) -> None:
        log.info("listening", **addresses)
        if config.address_file is not None:
            write_addresses(config.address_file, addresses)

    # Whatever works beside the loop (scrapes, signatures) hands the interpreter back 10 times
    # sooner than by default: a filter waits for that.
    sys.setswitchinterval(0.0005)
    # Imported late: other commands need no server.
    with ending_at_interrupt():
        service = imported_for_good("hami.scheduler.service")
    run_until_signal(lambda: service.serve(config, ready, source=source))


def _warnings(config: SchedulerConfig, source: ConfigSource) -> list[str]:
    """Settings that work, but perhaps not as intended."""
    warnings = [*source.warnings]
    plugins = installed_plugins()
    if config.profiles is not None:
        plugins += profile_plugins(config.profiles)
    sections = [section for plugin in plugins for section in plugin.sections]
    warnings += unread_sections(config.devices, sections)
    if not config.has_certificate:
        warnings.append(
            "the webhook is served without TLS, and the API server calls HTTPS alone; give "
            "cert-file and key-file, or certificate-secret, or put a proxy in front of it"
        )
    return warnings


def write_addresses(path: Path, addresses: Mapping[str, str]) -> None:
    """Write the addresses as a JSON object, atomically: no reader ever sees half of it.

    Raises:
        ConfigError: the file cannot be written.
    """
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(json.dumps(dict(addresses)) + "\n")
        half.replace(path)
    except OSError as error:
        raise ConfigError(
            f"address-file {path}: {error.strerror}; name a file in a writable directory"
        ) from error
