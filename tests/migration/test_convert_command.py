"""``hami chart convert`` as people call it."""

from __future__ import annotations

import pytest
import yaml
from typer.testing import CliRunner

from hami.cli.app import app


def convert(*arguments: str, values: str = "", columns: int = 100):
    return CliRunner().invoke(
        app, ["chart", "convert", *arguments], input=values, env={"COLUMNS": str(columns)}
    )


def test_values_on_standard_output_and_the_report_beside_it():
    result = convert("-", values="devicePlugin: {deviceSplitCount: 4}")
    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout) == {"deviceConfig": {"nvidia": {"deviceSplitCount": 4}}}
    assert "devicePlugin.deviceSplitCount  deviceConfig.nvidia.deviceSplitCount" in result.stderr
    assert "1 key: 1 translated" in result.stderr


def test_values_in_a_file(tmp_path):
    (tmp_path / "theirs.yaml").write_text("schedulerName: a")
    result = convert(str(tmp_path / "theirs.yaml"), "-o", str(tmp_path / "ours.yaml"))
    assert (result.exit_code, result.stdout) == (0, "")
    assert yaml.safe_load((tmp_path / "ours.yaml").read_text()) == {"scheduler": {"name": "a"}}


@pytest.mark.parametrize("values", ["hostNetwork: true", "devicePlugin: {hostNetwork: true}"])
def test_what_is_left_open_is_the_exit_code(values):
    result = convert("-", values=values)
    assert result.exit_code == 1
    assert "hostNetwork" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "values", "saying"),
    [
        (["/nowhere.yaml"], "", "/nowhere.yaml: No such file"),
        (["-"], "- a", "is no mapping"),
        (["-"], "a: [", "not valid YAML"),
        (["-", "-o", "/nowhere/ours.yaml"], "", "name a file that can be written"),
    ],
)
def test_what_cannot_be_used_is_one_line(arguments, values, saying):
    result = convert(*arguments, values=values)
    assert result.exit_code == 2
    assert saying in result.stderr
    assert "Traceback" not in result.output


def test_keys_with_hamis_default_are_counted_and_listed_if_asked_for():
    values = "scheduler: {replicas: 1}"
    assert "scheduler.replicas\n" not in convert("-", values=values).stderr
    assert "1 key: 1 default" in convert("-", values=values).stderr
    assert "scheduler.replicas\n" in convert("-", "--all", values=values).stderr


def test_empty_values_are_a_file_that_helm_reads():
    assert yaml.safe_load(convert("-").stdout) == {}


def test_what_a_stranger_wrote_cannot_command_the_terminal():
    assert "\x1b" not in convert("-", values='"a\\e[31m": 1').output
