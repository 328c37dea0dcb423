"""A vendor that is only data: profiles in YAML, and every hook's default.

    plugin = ProfileVendor((Path(__file__).parent / "acme.yaml").read_text())

The YAML holds ``profiles``, a list of :class:`hami.domain.profile.VendorProfile` field by field,
and optionally ``config_section``, the section of the device configuration whose keys
``resourceCountName``, ``resourceMemoryName``, ``resourceCoreName`` and ``memoryFactor`` override
the first profile's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hami.domain.errors import ConfigError, shortened
from hami.domain.profile import VendorProfile
from hami.hookspecs import HAMI_API, PluginConfig, hookimpl


class _ProfileFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    config_section: str = ""
    profiles: tuple[VendorProfile, ...] = Field(min_length=1)


class _Section(BaseModel):
    """HAMi's keys; unknown ones are ignored, as HAMi does it."""

    model_config = ConfigDict(frozen=True)

    count: str | None = Field(None, alias="resourceCountName")
    memory: str | None = Field(None, alias="resourceMemoryName")
    cores: str | None = Field(None, alias="resourceCoreName")
    memory_factor: int | None = Field(None, alias="memoryFactor", ge=1)


class ProfileVendor:
    """A plugin object made of a YAML text.

    Raises:
        ConfigError: the text is no YAML, or a field is missing, unknown or of the wrong kind; the
            message names it.
    """

    HAMI_API = HAMI_API

    def __init__(self, text: str, name: str = "vendor profile") -> None:
        try:
            self._file = _ProfileFile.model_validate(yaml.safe_load(text))
        except yaml.YAMLError as error:
            raise ConfigError(f"{name}: not YAML: {error}") from error
        except ValidationError as error:
            raise ConfigError(f"{name}: {_first(error)}") from error

    @property
    def config_section(self) -> str:
        """The section of the device configuration that it reads; empty: none."""
        return self._file.config_section

    @hookimpl
    def hami_vendors(self, config: PluginConfig) -> Sequence[VendorProfile]:
        section = self._file.config_section
        if not section or section not in config:
            return self._file.profiles
        try:
            wanted = _Section.model_validate(config[section] or {})
        except ValidationError as error:
            raise ConfigError(
                f"device configuration, section {section}: {_first(error)}"
            ) from error
        first, *others = self._file.profiles
        names = wanted.model_dump(exclude={"memory_factor"}, exclude_none=True)
        first = replace(
            first,
            resources=replace(first.resources, **names),
            memory_factor=wanted.memory_factor or first.memory_factor,
        )
        return (first, *others)


def _first(error: ValidationError) -> str:
    found: Any = error.errors()[0]
    where = ".".join(map(str, found["loc"]))
    problem = f"{found['msg']} (got {shortened(repr(found['input']))})"
    return f"{where}: {problem}" if where else problem
