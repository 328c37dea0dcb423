"""``hami plugins``: what is installed, and one line for what cannot be used."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

import hami.cli.app as cli
from hami.cli import vendor_loading as loading
from hami.cli.commands.simulation_tables import print_plugins
from hami.domain.errors import PluginRejected
from hami.vendors.registry import load_vendors

from ..builders import a_plugin


def hami(*arguments: str):
    return CliRunner().invoke(cli.app, list(arguments), env={"COLUMNS": "80"})


def test_every_vendor_is_listed_with_its_plugin():
    lines = [set(line.split()) for line in hami("plugins").stdout.splitlines()]
    for key, vendor in load_vendors().items():
        (row,) = (number for number, words in enumerate(lines) if key in words)
        assert vendor.distribution in lines[row]
        assert vendor.version in lines[row + 1]


def test_the_table_fits_a_terminal():
    out = io.StringIO()
    print_plugins(Console(file=out, width=80), load_vendors())
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_the_json_object_names_resources_and_hooks():
    result = hami("plugins", "--json")
    by_key = {vendor["key"]: vendor for vendor in json.loads(result.stdout)["vendors"]}
    assert list(by_key) == sorted(load_vendors())
    nvidia = by_key["NVIDIA"]
    assert set(nvidia) == {"key", "distribution", "version", "resources", "hooks"}
    assert nvidia["distribution"] == "hami-nvidia"
    assert "nvidia.com/gpu" in nvidia["resources"]
    assert "hami_vendors" in nvidia["hooks"]


def test_a_plugin_that_cannot_be_used_is_one_line_and_2(monkeypatch):
    def rejected(*_, **__):
        raise PluginRejected("plugin 'acme' of hami-acme does not import: uninstall hami-acme")

    monkeypatch.setattr(loading, "load_vendors", rejected)
    result = hami("plugins")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "hami: error: plugin 'acme' of hami-acme does not import: uninstall hami-acme\n"
    )


def test_a_new_plugin_is_written_and_its_files_listed(tmp_path):
    result = hami("plugin", "new", "acme", str(tmp_path))
    assert result.exit_code == 0
    written = {str(path) for path in tmp_path.rglob("*") if path.is_file()}
    assert set(result.stdout.splitlines()) == written


def test_a_plugin_is_not_written_over_another(tmp_path):
    (tmp_path / "hami-acme").mkdir()
    result = hami("plugin", "new", "acme", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr.startswith("hami: error: ")


def test_without_a_command_the_help_is_shown():
    result = hami()
    assert "simulate" in result.output


def test_no_name_is_broken_at_80_columns():
    out = io.StringIO()
    print_plugins(Console(file=out, width=80), load_vendors())
    words = set(out.getvalue().replace(",", " ").split())
    for vendor in load_vendors().values():
        assert words >= set(vendor.profile.resources.all_names)
        assert words >= {name.removeprefix("hami_") for name in vendor.hooks}


def test_a_broken_plugin_hides_no_other(install):
    install(acme=ImportError("gone"), bolt=a_plugin(vendors=("BOLT",)))
    result = hami("plugins")
    assert result.exit_code == 2
    assert "BOLT" in result.stdout
    assert "plugin 'acme' of hami-acme (somewhere:plugin) does not import" in result.stderr


def test_a_simulation_goes_on_without_a_broken_plugin(install, tmp_path):
    install(acme=ImportError("gone"))
    cluster = tmp_path / "c.yaml"
    cluster.write_text("kind: Node\nmetadata: {name: n1}\n")
    result = hami("simulate", str(cluster))
    assert result.exit_code == 0
    assert "hami: warning: plugin 'acme' of hami-acme" in result.stderr


@pytest.mark.parametrize(
    ("vendor", "said"),
    [
        pytest.param("bolt", "vendor BOLT of hami-bolt finds no devices on nodes", id="another's"),
        pytest.param("acme", "plugin 'acme' of hami-acme (somewhere:plugin) does", id="its own"),
    ],
)
def test_an_agent_needs_its_own_plugin_alone(install, vendor, said):
    install(acme=ImportError("gone"), bolt=a_plugin(vendors=("BOLT",)))
    assert said in hami("device-plugin", "--vendor", vendor, "--node-name", "n1").stderr


def test_a_new_profile_is_one_file_that_can_be_used(tmp_path):
    result = hami("plugin", "new", "--profile", "acme", str(tmp_path))
    assert result.stdout.split() == [str(tmp_path / "acme.yaml")]
    assert "acme.example.com/device" in hami("plugins", "--profiles", str(tmp_path)).stdout
    again = hami("plugin", "new", "--profile", "acme", str(tmp_path))
    assert (again.exit_code, "acme.yaml exists" in again.stderr) == (2, True)
