"""docs/migrate-from-hami.md says what is so."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from hami.cli.commands import chart, migrate
from hami.migration.steps import plan

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "migrate-from-hami.md").read_text()


def tables():
    spec = importlib.util.spec_from_file_location("migration_tables", DOCS / "migration_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLES = tables()
STEPS = plan(TABLES.usual())


def test_what_is_generated_is_of_now():
    assert TABLES.written(PAGE) == PAGE, "run python docs/migration_tables.py"


def section(number):
    heading = f"## {number}. {STEPS[number].title}\n"
    assert heading in PAGE
    return PAGE.partition(heading)[2].partition("\n## ")[0]


def commands(text):
    return tuple(re.findall(r"^    ((?:kubectl|helm|hami) .*)$", text, re.MULTILINE))


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_a_step_has_the_commands_that_check_prints(number):
    there, _, back = section(number).partition("\nBack")
    assert commands(there) == STEPS[number].commands
    assert commands(back) == STEPS[number].back


OURS = [line for line in commands(PAGE) if line.startswith("hami ")]


@pytest.mark.parametrize("line", OURS)
def test_a_command_of_ours_is_understood(line):
    _, group, name, *words = shlex.split(line)
    app = {"chart": chart.app, "migrate": migrate.app}[group]
    get_command(app).commands[name].make_context(name, words)


def test_every_right_that_check_needs_is_named():
    from hami.cli.migrating import cluster

    prose = " ".join(PAGE.split())
    for resource in (cluster.DEPLOYMENTS, cluster.DAEMON_SETS, cluster.NODES, cluster.PODS, cluster.NAMESPACES, cluster.HOOKS, cluster.SECRETS):  # fmt: skip
        assert resource.plural in prose
