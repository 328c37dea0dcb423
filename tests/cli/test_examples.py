"""Each folder of examples/ ends as examples/README.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hami.cli.app import app

EXAMPLES = Path(__file__).parents[2] / "examples"
TABLE = dict(
    re.findall(r"^\| ([\w-]+) \|.*\| (\d) \|$", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
)


def test_the_table_names_every_folder():
    assert sorted(TABLE) == sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


@pytest.mark.parametrize(("folder", "code"), sorted(TABLE.items()))
def test_an_example_ends_with_its_exit_code(folder, code):
    files = [str(EXAMPLES / folder / name) for name in ("cluster.yaml", "workload.yaml")]
    result = CliRunner().invoke(app, ["simulate", *files])
    assert (result.exit_code, result.stderr) == (int(code), "")
