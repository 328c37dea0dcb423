"""``hami plugin new NAME``: a package for a vendor that passes the conformance kit unchanged.

``--profile`` writes one YAML file instead: a vendor that is only data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

from hami import __version__
from hami.domain.errors import ConfigError
from hami.hookspecs import HAMI_API

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 30  # the name becomes a part of resource names of at most 63 characters

_FILES = (
    ("pyproject.toml", "pyproject.toml.tmpl"),
    ("README.md", "README.md.tmpl"),
    ("{package}/__init__.py", "init.py.tmpl"),
    ("{package}/py.typed", ""),
    ("tests/test_conformance.py", "test_conformance.py.tmpl"),
)


def new_plugin(name: str, directory: Path) -> list[Path]:
    """Write the package ``hami-<name>`` below ``directory``; returns its files.

    Raises:
        ConfigError: the name is not allowed, the package exists already, or ``directory`` takes
            no files.
    """
    root = _free(name, directory, f"hami-{name}")
    return [
        _write(root / target.format(package=_words(name)["package"]), source, _words(name))
        for target, source in _FILES
    ]


def new_profile(name: str, directory: Path) -> Path:
    """Write ``<name>.yaml`` into ``directory``; raises as :func:`new_plugin`."""
    return _write(_free(name, directory, f"{name}.yaml"), "profile.yaml.tmpl", _words(name))


def _free(name: str, directory: Path, target: str) -> Path:
    """The path to write to, which must not exist yet."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ConfigError(
            f"{name!r} cannot be a plugin's name; use at most {_LONGEST} lower-case letters and "
            f"digits, with single '-' between them, for example acme"
        )
    if name.startswith("hami-"):
        raise ConfigError(f"{name!r} would give hami-{name}; leave out the first hami-")
    if not directory.is_dir():
        raise ConfigError(f"{directory} is no directory; create it first")
    root = directory / target
    if root.exists() or root.is_symlink():
        raise ConfigError(f"{root} exists; remove it or choose another name or directory")
    return root


def _write(path: Path, source: str, words: Mapping[str, str]) -> Path:
    template = resources.files("hami.cli.commands") / "plugin_template"
    text = (template / source).read_text("utf-8") if source else ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(text).substitute(words), "utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename}: {error.strerror}") from error
    return path


def _words(name: str) -> dict[str, str]:
    """The words that the templates fill in."""
    package = f"hami_{name.replace('-', '_')}"
    return {
        "name": name,
        "distribution": f"hami-{name}",
        "package": package,
        "key": name.upper(),
        "env": name.upper().replace("-", "_"),
        "class": "".join(part.capitalize() for part in name.split("-")),
        "domain": f"{name}.example.com",
        "hami_api": str(HAMI_API),
        "hami_version": __version__,
        "hami_next": str(int(__version__.split(".")[0]) + 1),
    }
