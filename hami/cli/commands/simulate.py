"""``hami simulate``: manifests in, a simulation out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hami.cli.commands.simulation_tables import print_simulation
from hami.cli.flags.files import check_one_stdin, file_name, read_device_config, read_text
from hami.cli.flags.policies import read_policy
from hami.cli.terminal.messages import warn
from hami.cli.terminal.progress import progress_bar
from hami.cli.terminal.width import output_console
from hami.cli.vendor_loading import installed_vendors
from hami.policy.pods.admission import AdmissionSettings
from hami.simulate.manifests import read_manifests
from hami.simulate.result import Simulation
from hami.simulate.simulation import Settings, simulate


def run_simulation(
    files: Sequence[Path], policy: str | None, device_config: Path | None, profiles: Path | None
) -> Simulation:
    """Read the files, simulate, and warn of what was not understood.

    Raises:
        HamiError: a file, the policy or a plugin cannot be used.
    """
    check_one_stdin([*files, device_config])
    config = read_device_config(device_config) if device_config else {}
    settings = Settings(admission=AdmissionSettings(policy=read_policy(policy)), config=config)
    manifests = read_manifests([(file_name(path), read_text(path)) for path in files])
    vendors = installed_vendors(config, profiles=profiles, on_broken=lambda p: warn(str(p)))
    with progress_bar(Console(stderr=True)) as progress:
        result = simulate(vendors, manifests, settings, progress)
    warn(*manifests.warnings, *result.warnings)
    return result


def show(result: Simulation) -> None:
    """Show the result to people."""
    print_simulation(output_console(), result)
