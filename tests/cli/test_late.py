"""The commands that are made when they are asked for."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from hami.cli.app import app
from hami.cli.late import LATE


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    return result.output


def test_the_help_lists_them_among_the_others():
    words = [line.split()[1] for line in said("--help").splitlines() if line.startswith("│ ")]
    commands = [word for word in words if not word.startswith("-")]
    assert commands == [
        "simulate", "scheduler", "device-plugin", "demo", "up", "quota", "plugins", "plugin"
    ]  # fmt: skip


@pytest.mark.parametrize("name", LATE)
def test_each_has_its_own_help(name):
    assert f"{name} [OPTIONS]" in said(name, "--help")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("schedular", "scheduler"), ("device-plugins", "device-plugin"), ("simulat", "simulate")],
)
def test_a_misspelt_command_is_answered_with_the_one_that_was_meant(written, meant):
    assert f"'{meant}'" in said(written)
