"""Plugins as they are found: the line that fails, and vendors that are only data."""

from __future__ import annotations

from importlib import metadata

import pytest

from hami.cli.commands.plugin_new import new_profile
from hami.domain.errors import ConfigError, PluginRejected
from hami.vendors.registry import load_vendors

from .installed import Distribution, rejection


@pytest.fixture
def module(tmp_path, monkeypatch, request):
    """Writes ``acme_<test>``, registered as a plugin of hami-acme; gives its file."""

    def write(text: str) -> str:
        name = f"acme_{request.node.name.partition('[')[0]}_{abs(hash(request.node.name))}"
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        point = metadata.EntryPoint("acme", f"{name}:plugin", "hami.plugins")._for(
            Distribution("hami-acme")
        )
        monkeypatch.setattr(metadata, "entry_points", lambda *, group: [point])
        return str(file)

    return write


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        pytest.param("\nimport gone_for_good\n", 2, "ModuleNotFoundError", id="an import"),
        pytest.param("x = 1\n\nx = (\n", 3, "SyntaxError", id="a slip of the pen"),
        pytest.param(
            "def f():\n    raise ValueError('no')\n\n\nf()\n", 2, "ValueError", id="a call"
        ),
    ],
)
def test_a_plugin_that_does_not_import_is_named_with_its_line(module, text, line, problem):
    file = module(text)
    assert f"does not import: {file}:{line}: {problem}" in rejection()


def test_a_misspelt_hook_is_named_with_its_line(module):
    file = module(
        "from hami.hookspecs import hookimpl\n\n\nclass Plugin:\n    HAMI_API = 1\n\n"
        "    @hookimpl\n    def hami_enforcee(self):\n        ...\n\n\nplugin = Plugin()\n"
    )
    assert rejection() == (
        f"plugin 'acme' of hami-acme: {file}:7: hami_enforcee is no hook of API 1 (did you mean "
        f"hami_enforce?); repair or uninstall hami-acme"
    )


# Profiles.


def test_every_profile_of_a_folder_is_a_vendor(install, tmp_path):
    install()
    for name in ("bolt", "acme"):
        new_profile(name, tmp_path)
    (tmp_path / "..data").symlink_to(tmp_path)
    (tmp_path / "notes.txt").write_text("no profile")
    (tmp_path / ".hidden.yaml").write_text("no profile")
    vendors = load_vendors(profiles=tmp_path)
    assert {key: v.distribution for key, v in vendors.items()} == {
        "ACME": str(tmp_path / "acme.yaml"),
        "BOLT": str(tmp_path / "bolt.yaml"),
    }


def test_a_profile_has_its_section_of_the_configuration(install, tmp_path):
    install()
    new_profile("acme", tmp_path)
    vendors = load_vendors({"acme": {"resourceCountName": "acme.io/x"}}, profiles=tmp_path)
    assert vendors["ACME"].profile.resources.count == "acme.io/x"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("profiles: [", "not YAML", id="no YAML"),
        pytest.param("profiles: []", "profiles", id="no profile in it"),
        pytest.param("vendors: {}", "profiles", id="something else"),
    ],
)
def test_a_file_that_is_no_profile_is_named(install, tmp_path, text, problem):
    install()
    (tmp_path / "acme.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"acme\.yaml: .*{problem}"):
        load_vendors(profiles=tmp_path)


def test_a_folder_that_is_not_there_is_named(install, tmp_path):
    install()
    with pytest.raises(ConfigError, match="gone: No such file or directory; name a readable"):
        load_vendors(profiles=tmp_path / "gone")


def test_a_profile_that_a_package_carries_too_is_refused(install, tmp_path):
    new_profile("acme", tmp_path)
    file = tmp_path / "twice.yaml"
    file.write_text((tmp_path / "acme.yaml").read_text())
    install()
    with pytest.raises(PluginRejected, match=r"acme\.yaml and .*twice\.yaml both carry"):
        load_vendors(profiles=tmp_path)
