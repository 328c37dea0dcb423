"""Plugins as they are found: by entry point, and as YAML profiles in a folder.

What does not import is one sentence that names the distribution and the line, never a traceback.
Not here: whether a plugin follows the contract (``hami.vendors.registry``).
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from hami.domain.errors import ConfigError, PluginRejected
from hami.hookspecs import ENTRY_POINT_GROUP

OnBroken = Callable[[PluginRejected], None]
"""Is told of a plugin that cannot be used. If it returns, the plugin is left out."""
_PROFILES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin as it was found: its entry point's name, the object, and where it came from.

    ``section`` is what the plugin reads of the device configuration beside the section of its
    name; empty: nothing.
    """

    name: str
    object: object
    distribution: str
    version: str = ""
    section: str = ""

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections of the device configuration that it reads."""
        return (self.name, self.section) if self.section else (self.name,)


def refuse_broken(problem: PluginRejected) -> None:
    """Raise the problem: the scheduler, for one, needs every plugin."""
    raise problem


def installed_plugins(on_broken: OnBroken = refuse_broken) -> list[Plugin]:
    """Import what is registered under ``hami.plugins``, in the order of names.

    Raises:
        PluginRejected: two distributions use one name, or ``on_broken`` raises it.
    """
    plugins: list[Plugin] = []
    points = metadata.entry_points(group=ENTRY_POINT_GROUP)
    names: dict[str, str] = {}
    for point in sorted(points, key=lambda p: (p.name, p.value)):
        distribution = point.dist.name if point.dist else point.value
        if point.name in names:
            raise PluginRejected(
                f"two plugins are named {point.name!r}: {names[point.name]} and {distribution}; "
                f"uninstall one of them"
            )
        names[point.name] = distribution
        try:
            loaded = point.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever a stranger's code does
            problem = PluginRejected(
                f"plugin {point.name!r} of {distribution} ({point.value}) does not import: "
                f"{_failing_line(error)}{said(error)}; repair or uninstall {distribution}"
            )
            problem.__cause__ = error
            on_broken(problem)
            continue
        version = point.dist.version if point.dist else ""
        plugins.append(Plugin(point.name, loaded, distribution, version))
    return plugins


def profile_plugins(folder: Path) -> list[Plugin]:
    """A plugin for each YAML file, in the order of names: a vendor that is only data.

    Hidden files are left out: a mounted ConfigMap has some.

    Raises:
        ConfigError: the folder or a file cannot be read, or a file is no vendor profile.
    """
    # Imported late: it brings pydantic, and most commands are given no such folder.
    from hami.policy.profile.profile_vendor import ProfileVendor  # noqa: PLC0415

    try:
        files = sorted(f for f in folder.iterdir() if f.suffix in _PROFILES and f.name[0] != ".")
        texts = [(file, file.read_text("utf-8")) for file in files]
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(
            f"profiles {folder}: {cause}; name a readable folder with vendor profiles in YAML"
        ) from error
    found = [(file, ProfileVendor(text, str(file))) for file, text in texts]
    return [
        Plugin(f"profile {file.name}", vendor, str(file), section=vendor.config_section)
        for file, vendor in found
    ]


# Words about what went wrong.


def one_line(error: BaseException) -> str:
    """The error's text."""
    return " ".join(str(error).split())


def said(error: BaseException) -> str:
    """The error's class, and its text where it has one."""
    return f"{type(error).__name__}: {one_line(error)}".removesuffix(": ")


def line_of(function: object) -> str:
    """``<file>:<line>: `` where it is defined, or nothing."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}: " if code else ""


def _failing_line(error: BaseException) -> str:
    """``<file>:<line>: `` of the imported code that failed, or nothing."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: " if error.filename else ""
    imported, found = False, ""
    for frame in traceback.extract_tb(error.__traceback__):
        if "importlib" in frame.filename:
            imported = True
        elif imported:
            found = f"{frame.filename}:{frame.lineno}: "
    return found
