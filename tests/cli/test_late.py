"""The commands that are made when they are asked for."""

from __future__ import annotations

from importlib import metadata

import pytest
from typer.testing import CliRunner

from hami.cli.app import app
from hami.cli.lazy_commands import ENTRY_POINTS, LABORATORY, LATE


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    return result.output


def test_the_help_lists_them_among_the_others():
    words = [line.split()[1] for line in said("--help").splitlines() if line.startswith("│ ")]
    commands = [word for word in words if not word.startswith("-")]
    assert commands == [
        "simulate", "scheduler", "device-plugin", "monitor", "recommend", "chart", "migrate", "demo", "up", "quota", "resize",
        "plugins", "plugin",
    ]  # fmt: skip


@pytest.mark.parametrize("name", [*LATE, *LABORATORY])
def test_each_has_its_own_help(name):
    assert f"{name} [OPTIONS]" in said(name, "--help")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("schedular", "scheduler"), ("device-plugins", "device-plugin"), ("simulat", "simulate")],
)
def test_a_misspelt_command_is_answered_with_the_one_that_was_meant(written, meant):
    assert f"'{meant}'" in said(written)


@pytest.fixture
def without_the_laboratory(monkeypatch):
    """hami as a node has it."""
    real = metadata.entry_points
    monkeypatch.setattr(
        metadata,
        "entry_points",
        lambda *, group: () if group == ENTRY_POINTS else real(group=group),
    )


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--nodes", "t4x4:3")])
@pytest.mark.parametrize("name", LABORATORY)
def test_without_the_laboratory_one_line_names_the_extra(without_the_laboratory, name, arguments):
    result = CliRunner().invoke(app, [name, *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr == f"hami: error: hami {name} is not installed; run pip install 'hami[lab]'\n"
    )


def test_the_help_says_what_is_not_installed(without_the_laboratory):
    assert said("--help").count("Not installed: it comes with the extra lab") == 2
