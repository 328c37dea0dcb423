from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest

from hami import __version__
from hami.cli.commands.plugin_new import new_plugin
from hami.domain.errors import ConfigError
from hami.hookspecs import ENTRY_POINT_GROUP, HAMI_API


@pytest.mark.parametrize(
    ("name", "package"),
    [
        pytest.param("acme", "hami_acme", id="one word"),
        pytest.param("acme-x2", "hami_acme_x2", id="two words and a digit"),
    ],
)
def test_a_new_plugin_passes_the_conformance_kit(name, package, tmp_path) -> None:
    new_plugin(name, tmp_path)
    root = tmp_path / f"hami-{name}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for hook in ("hami_choose", "hami_score"):  # the two checks that do not concern it
        assert f"does not implement {hook}" in done.stdout
    assert " 2 skipped" in done.stdout


def test_a_new_plugin_has_these_files(tmp_path) -> None:
    written = [
        str(path.relative_to(tmp_path / "hami-acme")) for path in new_plugin("acme", tmp_path)
    ]
    assert written == [
        "pyproject.toml",
        "README.md",
        "hami_acme/__init__.py",
        "hami_acme/py.typed",
        "tests/test_conformance.py",
    ]


def test_its_entry_point_names_a_plugin_of_this_api(tmp_path) -> None:
    new_plugin("acme", tmp_path)
    root = tmp_path / "hami-acme"
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (entry,) = project["entry-points"][ENTRY_POINT_GROUP].items()
    point = metadata.EntryPoint(*entry, ENTRY_POINT_GROUP)
    assert (point.name, point.module, point.attr) == ("acme", "hami_acme", "plugin")
    spec = importlib.util.spec_from_file_location(point.module, root / "hami_acme/__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert getattr(module, point.attr).HAMI_API == HAMI_API


def test_it_depends_on_this_version_of_hami(tmp_path) -> None:
    new_plugin("acme", tmp_path)
    project = tomllib.loads((tmp_path / "hami-acme/pyproject.toml").read_text())["project"]
    assert project["dependencies"] == [f"hami>={__version__},<2"]


def test_it_imports_nothing_of_hami_but_the_contract(tmp_path) -> None:
    allowed = ("hami.hookspecs", "hami.domain", "hami.wire.codecs", "hami.policy", "hami.testing")
    for path in new_plugin("acme", tmp_path):
        if path.suffix == ".py":
            imported = [
                node.module
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "hami"
            ]
            assert imported
            assert all(module.startswith(allowed) for module in imported)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("", "cannot be a plugin's name", id="no name"),
        pytest.param("Acme", "cannot be a plugin's name", id="a capital letter"),
        pytest.param("2fast", "cannot be a plugin's name", id="a digit first"),
        pytest.param("a_b", "cannot be a plugin's name", id="an underscore"),
        pytest.param("a--b", "cannot be a plugin's name", id="two dashes"),
        pytest.param("../evil", "cannot be a plugin's name", id="a path"),
        pytest.param("acme\n", "cannot be a plugin's name", id="a line break"),
        pytest.param("a" * 31, "at most 30", id="too long"),
        pytest.param("hami-acme", "leave out the first hami-", id="the prefix twice"),
    ],
)
def test_a_bad_name_is_refused_and_nothing_written(name, says, tmp_path) -> None:
    with pytest.raises(ConfigError, match=says):
        new_plugin(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_package_is_never_overwritten(tmp_path) -> None:
    new_plugin("acme", tmp_path)
    mine = tmp_path / "hami-acme/pyproject.toml"
    mine.write_text("mine")
    with pytest.raises(ConfigError, match=r"hami-acme exists; remove it"):
        new_plugin("acme", tmp_path)
    assert mine.read_text() == "mine"


def test_a_missing_directory_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match="is no directory"):
        new_plugin("acme", tmp_path / "nowhere")
