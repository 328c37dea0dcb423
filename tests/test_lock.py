"""uv.lock and constraints.txt hold the same versions, of what every pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "uv.lock").read_text()
PACKAGES = tomllib.loads(LOCK)["package"]
REMEDY = "run `uv lock`, or `make constraints` for newer versions"
MEMBERS = {package["name"]: package for package in PACKAGES if "editable" in package["source"]}


def project(name: str) -> dict[str, Any]:
    folder = MEMBERS[name]["source"]["editable"]
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())


def asked(requirements: list[str], extra: str = "") -> set[tuple[str, str, str]]:
    """Name, versions and extra of each; the lock takes its own members from their folders."""
    found = [Requirement(text) for text in requirements]
    named = [(canonicalize_name(one.name), str(one.specifier)) for one in found]
    return {(name, "" if name in MEMBERS else versions, extra) for name, versions in named}


def locked(entries: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    extras = [re.findall("extra == '(.*)'", entry.get("marker", "")) for entry in entries]
    return {
        (
            entry["name"],
            str(Requirement(f"x{entry.get('specifier', '')}").specifier),
            "".join(extra),
        )
        for entry, extra in zip(entries, extras, strict=True)
    }


@pytest.mark.parametrize("name", MEMBERS)
def test_the_lock_is_of_what_the_project_asks_for(name):
    about = project(name)["project"]
    wanted = asked(about.get("dependencies", []))
    for extra, requirements in about.get("optional-dependencies", {}).items():
        wanted |= asked(requirements, extra)
    assert locked(MEMBERS[name].get("metadata", {}).get("requires-dist", [])) == wanted, REMEDY


def test_the_lock_has_the_tools_of_the_project():
    wanted = asked(project("hami")["dependency-groups"]["dev"])
    assert locked(MEMBERS["hami"]["metadata"]["requires-dev"]["dev"]) == wanted, REMEDY


def test_every_plugin_here_is_in_the_lock():
    folders = {path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")}
    names = {"hami", "hami-lab", "hami-simgpu", *(f"hami-{folder}" for folder in folders)}
    assert set(MEMBERS) == names, REMEDY


def test_the_versions_are_those_of_the_constraints():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints = dict(line.split("==") for line in lines if "==" in line)
    versions: dict[str, set[str]] = {}
    for package in PACKAGES:
        if package["name"] not in MEMBERS:
            versions.setdefault(package["name"], set()).add(package["version"])
    both = {canonicalize_name(name): version for name, version in constraints.items()}
    differ = {
        name: (version, versions[name])
        for name, version in both.items()
        if name in versions and version not in versions[name]
    }
    assert len(set(both) & set(versions)) > 60
    assert differ == {}, REMEDY


def test_everything_comes_from_the_public_index():
    hosts = set(re.findall(r"https?://[^/\"]*", LOCK))
    assert hosts == {"https://pypi.org", "https://files.pythonhosted.org"}
