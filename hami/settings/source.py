"""Where settings come from: flags, then the environment, then the file, then the defaults.

Every source is kept, so that a changed file can be read again under the same flags, and so that
an error can say where the wrong value stands.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hami.domain.errors import ConfigError, shortened
from hami.durations import go_duration
from hami.settings.model import (
    ServiceSettings,
    Setting,
    fields_of,
    is_duration,
    key_of,
    setting_of,
)
from hami.wire.yaml_mapping import read_mapping

C = TypeVar("C", bound=ServiceSettings)

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[C]):
    """A command and the names of its settings.

    ``name`` is what people type (``hami scheduler``). ``prefix`` begins its variables. The settings
    ``only_in_files`` are too large for a flag.
    """

    name: str
    model: type[C]
    prefix: str
    only_in_files: frozenset[str] = frozenset()

    @property
    def fields(self) -> tuple[str, ...]:
        return fields_of(self.model)

    @property
    def flag_fields(self) -> tuple[str, ...]:
        return tuple(name for name in self.fields if name not in self.only_in_files)

    @property
    def config_variable(self) -> str:
        """The variable that names the settings file where no flag does."""
        return f"{self.prefix}CONFIG"

    def setting_of(self, field: str) -> Setting:
        return setting_of(self.model, field)

    def variable_of(self, field: str) -> str:
        """The variable of a setting.

        Other variables with the same prefix are Kubernetes' own and are left alone: every pod gets
        ``HAMI_SCHEDULER_SERVICE_HOST`` and ``HAMI_SCHEDULER_PORT_...`` where a Service has the name
        ``hami-scheduler``.
        https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
        """
        return self.prefix + field.upper()


@dataclass(frozen=True, slots=True)
class Written:
    """A value and where it was written, for messages."""

    value: Any
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSource(Generic[C]):
    """Finds the settings' values in all sources.

    ``flags`` has their texts by field name. A command adds the further files that it reads.
    """

    command: ClassVar[Command[Any]]

    file: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    environment: Mapping[str, str] = field(default_factory=lambda: _NONE)

    @property
    def config_file(self) -> Path | None:
        """The command's own file: from the flag, else from the environment."""
        named = self.environment.get(self.command.config_variable)
        return self.file or (Path(named) if named else None)

    def load(self) -> C:
        """Read everything anew.

        Raises:
            ConfigError: names every wrong value, where it stands, and what to write instead.
        """
        return self.settings()

    def files(self, config: C) -> list[Path]:  # noqa: ARG002 -- commands that read more need it
        """The files that :meth:`load` reads."""
        return [self.config_file] if self.config_file is not None else []

    def settings(self) -> C:
        """The settings, without the content of other files; raises as :meth:`load` does."""
        return self._validated(self.written())

    def written(self) -> dict[str, Written]:
        """Every value that somebody gave, unchecked.

        Raises:
            ConfigError: the file cannot be read, or a key in it is no setting.
        """
        return self._from_file() | self._from_environment() | self._from_flags()

    def _from_file(self) -> dict[str, Written]:
        path = self.config_file
        if path is None:
            return {}
        known = {key_of(name): name for name in self.command.fields}
        written: dict[str, Written] = {}
        for key, value in read_file(path).items():
            name = known.get(key.replace("_", "-"))
            if name is None:
                raise ConfigError(
                    f"{path}: {shortened(key)!r} is no setting; {self._nearest(key, known)}"
                )
            if name in written:
                raise ConfigError(f"{path}: {key_of(name)} is there in two spellings; keep one")
            if value is not None:
                written[name] = Written(value, f"{path}: {key}")
        return written

    def _from_environment(self) -> dict[str, Written]:
        written: dict[str, Written] = {}
        for name in self.command.flag_fields:
            others = self.command.setting_of(name).environment
            for variable in (self.command.variable_of(name), *others):
                # A manifest says with an empty variable that there is no value.
                if text := self.environment.get(variable):
                    written[name] = Written(text, variable)
                    break
        return written

    def _from_flags(self) -> dict[str, Written]:
        return {name: Written(value, f"--{key_of(name)}") for name, value in self.flags.items()}

    def _validated(self, written: Mapping[str, Written]) -> C:
        model = self.command.model
        try:
            valid: C = model.model_validate({n: w.value for n, w in written.items()})
        except ValidationError as error:
            problems = dict.fromkeys(_problem(detail, written, model) for detail in error.errors())
            raise ConfigError("; ".join(problems)) from error
        return valid

    def _nearest(self, key: str, known: Iterable[str]) -> str:
        close = difflib.get_close_matches(key, list(known), n=1)
        return f"did you mean {close[0]}?" if close else f"{self.command.name} --help lists them"


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


def as_yaml(config: ServiceSettings) -> str:
    """A file that ``--config`` reads back to the same settings."""
    values = config.model_dump(mode="json")
    ordered = {key_of(name): values[name] for name in fields_of(type(config))}
    return yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True)


def _problem(
    detail: ErrorDetails, written: Mapping[str, Written], model: type[ServiceSettings]
) -> str:
    name = str(detail["loc"][0]) if detail["loc"] else ""
    remedy = _remedy(detail, go_duration if is_duration(model, name) else "{:g}".format)
    if not name:
        return remedy
    found = written.get(name)
    place = found.place if found else key_of(name)
    value = found.value if found else detail["input"]
    return f"{place} {shortened(repr(value))}: {remedy}"


def _remedy(detail: ErrorDetails, spelt: Callable[[float], str]) -> str:
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
            return f"write {spelt(detail['ctx']['ge'])} or more"
        case ["greater", "than"]:
            return f"write more than {spelt(detail['ctx']['gt'])}"
        case ["less", "than", "equal"]:
            return f"write {spelt(detail['ctx']['le'])} or less"
        case _:
            return detail["msg"].removeprefix("Value error, ")
