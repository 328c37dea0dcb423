"""Wheels in a folder are enough to install hami from, as docs/install.md says, while no index has it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PURE = (".", "plugins/mock", "plugins/hygon")
"""What needs no compiler; the wheel of hami-nvidia has a test of its own."""


def documented(program: str) -> list[str]:
    """The words of the page's line that begins so."""
    page = (ROOT / "docs" / "install.md").read_text()
    [line] = re.findall(rf"^    ({program} .*)$", page, re.MULTILINE)
    return shlex.split(line)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Path:
    """An environment with nothing but pip."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.EnvBuilder(with_pip=True, symlinks=True).create(folder)
    return folder


def run(fresh: Path, words: list[str], **env: str) -> str:
    command = [str(fresh / "bin" / words[0]), *words[1:]]
    done = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(fresh, tmp_path_factory) -> dict[str, Distribution]:
    """By name, what the documented commands install, offline: without dependencies."""
    wheels = tmp_path_factory.mktemp("wheels")
    build, install = documented("pip wheel"), documented("pip install --find-links")
    assert build[:5] == ["pip", "wheel", "--no-deps", "-w", "wheels"]
    assert install == ["pip", "install", "--find-links", "wheels", "hami[nvidia]"]
    pure = [path for path in build[5:] if path in PURE]
    assert pure, build
    offline = ["--no-build-isolation", *build[2:4], str(wheels), *pure]
    run(fresh, ["pip", "wheel", *offline], PYTHONPATH=sysconfig.get_path("purelib"))
    offline = ["--no-index", "--no-deps", "--find-links", str(wheels)]
    run(fresh, ["pip", "install", *offline, "hami", "hami-mock", "hami-hygon"])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = fresh / "lib" / version / "site-packages"
    return {found.name: found for found in distributions(path=[str(site)])}


def test_hami_brings_neither_the_laboratory_nor_tests(installed):
    folders = {file.parts[0] for file in installed["hami"].files or ()}
    about = {folder for folder in folders if folder.endswith(".dist-info")}
    assert folders - about == {"hami", ".."}  # the command
    parts = {part for file in installed["hami"].files or () for part in file.parts}
    assert parts & {"tests", "sim", "hami_lab", "hami_simgpu"} == set()


def test_what_was_installed_is_whole(installed, fresh):
    """The files of the package, the command, and the plugins that it finds."""
    assert {"hami", "hami-mock", "hami-hygon"} <= installed.keys()
    said = run(fresh, ["python", "-P", "-c", FOUND], PYTHONPATH=sysconfig.get_path("purelib"))
    where, *vendors = said.split()
    assert Path(where).is_relative_to(fresh)
    assert vendors == ["DCU", "HCU", "MOCK"]
    assert (fresh / "bin/hami").exists()


FOUND = """
import hami, hami_mock, hami_hygon
from hami.vendors.registry import Vendors
from importlib.metadata import distribution
plugins = {}
for name in ("hami-mock", "hami-hygon"):
    [entry] = distribution(name).entry_points.select(group="hami.plugins")
    plugins[entry.name] = entry.load()
print(hami.__file__, *sorted(Vendors.of({k: v() if isinstance(v, type) else v for k, v in plugins.items()})))
"""


@pytest.mark.parametrize("extra", ["mock", "hygon", "nvidia", "lab"])
def test_an_extra_names_a_version_that_the_clone_makes(installed, extra):
    wanted = [Requirement(text) for text in installed["hami"].requires or ()]
    [plugin] = [r for r in wanted if r.marker and r.marker.evaluate({"extra": extra})]
    assert plugin.name == f"hami-{extra}"
    assert plugin.specifier.contains(installed["hami"].version)
    if plugin.name in installed:
        assert plugin.specifier.contains(installed[plugin.name].version)
