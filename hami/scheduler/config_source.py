"""Where settings come from: flags, then the environment, then the file, then the defaults.

Every source is kept, so that a changed file can be read again under the same flags, and so that
an error can say where the wrong value stands.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hami.domain.errors import ConfigError, shortened
from hami.scheduler.config import SchedulerConfig, setting_of
from hami.scheduler.hami_flags import WITHOUT_EFFECT, with_resource_names
from hami.wire.hami_config import read_mapping

PREFIX = "HAMI_SCHEDULER_"
_CONFIG_VARIABLE = f"{PREFIX}CONFIG"
_ONLY_IN_FILES = frozenset({"devices"})
_NONE: Mapping[str, Any] = MappingProxyType({})


def key_of(field: str) -> str:
    """A setting's name in the file, and after ``--``."""
    return field.replace("_", "-")


def variable_of(field: str) -> str:
    """A setting's variable. Others that begin alike are Kubernetes' own and are left alone.

    Kubernetes gives every pod ``HAMI_SCHEDULER_SERVICE_HOST`` and ``HAMI_SCHEDULER_PORT_...``
    where a Service has the name ``hami-scheduler``.
    """
    return PREFIX + field.upper()


FLAG_FIELDS = tuple(name for name in SchedulerConfig.model_fields if name not in _ONLY_IN_FILES)


@dataclass(frozen=True, slots=True)
class _Written:
    """A value and where it stands, for messages."""

    value: Any
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSource:
    """``flags`` by field name, as they were written; ``foreign`` are HAMi's, by flag name."""

    file: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    foreign: Mapping[str, str] = field(default_factory=lambda: _NONE)
    environment: Mapping[str, str] = field(default_factory=lambda: _NONE)

    @property
    def config_file(self) -> Path | None:
        """The service's own file: the flag's, else the environment's."""
        named = self.environment.get(_CONFIG_VARIABLE)
        return self.file or (Path(named) if named else None)

    def load(self) -> SchedulerConfig:
        """Read everything anew.

        Raises:
            ConfigError: names every wrong value, where it stands, and what to write instead.
        """
        written = self._from_file() | self._from_environment() | self._from_flags()
        config = _validated(written)
        devices = dict(config.devices)
        if config.device_config_file is not None:
            devices |= read_file(config.device_config_file)
        names = {k: v for k, v in self.foreign.items() if k not in WITHOUT_EFFECT}
        devices = with_resource_names(devices, names)
        return config.model_copy(update={"devices": devices}) if devices else config

    def files(self, config: SchedulerConfig) -> list[Path]:
        """What :meth:`load` reads."""
        return [p for p in (self.config_file, config.device_config_file) if p is not None]

    @property
    def warnings(self) -> list[str]:
        """Flags of HAMi that were given and change nothing."""
        return [
            f"--{flag} has no effect here; leave it out"
            for flag in self.foreign
            if flag in WITHOUT_EFFECT
        ]

    def _from_file(self) -> dict[str, _Written]:
        path = self.config_file
        if path is None:
            return {}
        known = {key_of(name): name for name in SchedulerConfig.model_fields}
        written: dict[str, _Written] = {}
        for key, value in read_file(path).items():
            name = known.get(key.replace("_", "-"))
            if name is None:
                raise ConfigError(
                    f"{path}: {shortened(key)!r} is no setting; {_nearest(key, known)}"
                )
            if name in written:
                raise ConfigError(f"{path}: {key_of(name)} is there in two spellings; keep one")
            if value is not None:
                written[name] = _Written(value, f"{path}: {key}")
        return written

    def _from_environment(self) -> dict[str, _Written]:
        written: dict[str, _Written] = {}
        for name in FLAG_FIELDS:
            for variable in (variable_of(name), *setting_of(name).environment):
                # An empty variable is how a manifest says that there is nothing.
                if text := self.environment.get(variable):
                    written[name] = _Written(text, variable)
                    break
        return written

    def _from_flags(self) -> dict[str, _Written]:
        return {name: _Written(value, f"--{key_of(name)}") for name, value in self.flags.items()}


def read_file(path: Path) -> Mapping[str, Any]:
    """One YAML mapping.

    Raises:
        ConfigError: the file cannot be read, or is no such mapping.
    """
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from error
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path}: {cause}; name a readable file") from error
    return read_mapping(str(path), text)


def _validated(written: Mapping[str, _Written]) -> SchedulerConfig:
    try:
        return SchedulerConfig.model_validate({n: w.value for n, w in written.items()})
    except ValidationError as error:
        problems = dict.fromkeys(_problem(detail, written) for detail in error.errors())
        raise ConfigError("; ".join(problems)) from error


def _problem(detail: ErrorDetails, written: Mapping[str, _Written]) -> str:
    remedy = _remedy(detail)
    if not detail["loc"]:
        return remedy
    found = written.get(str(detail["loc"][0]))
    place = found.place if found else key_of(str(detail["loc"][0]))
    value = found.value if found else detail["input"]
    return f"{place} {shortened(repr(value))}: {remedy}"


def _remedy(detail: ErrorDetails) -> str:
    match detail["type"].split("_"):
        case ["literal", *_]:
            return f"write {detail['ctx']['expected']}"
        case ["bool", *_]:
            return "write true or false"
        case ["int", *_] | ["float", *_]:
            return "write a number"
        case ["string", *_]:
            return "write a text, in quotes where YAML reads something else"
        case ["path", *_]:
            return "write a path"
        case ["greater", "than", "equal"]:
            return f"write {detail['ctx']['ge']:g} or more"
        case ["greater", "than"]:
            return f"write more than {detail['ctx']['gt']:g}"
        case _:
            return detail["msg"].removeprefix("Value error, ")


def _nearest(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"did you mean {close[0]}?" if close else "hami scheduler --help lists them"
