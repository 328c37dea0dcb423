"""The ``nvidia:`` section of the device configuration, with the names and defaults of HAMi's chart.

Only the keys that scheduling and admission read are fields; every other key is ignored, as HAMi
ignores it. ``migProfileAllowlist`` is for the nodes, but a wrong one is refused here, early.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from hami.domain.errors import ConfigError, shortened
from hami.domain.units import MAX_DEVICE_MEMORY
from hami.hookspecs import PluginConfig

SECTION = "nvidia"

_NAME = r"(?:[a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_Required = Annotated[str, Field(pattern=rf"^{_NAME}$")]
_Optional = Annotated[str, Field(pattern=rf"^({_NAME})?$")]
_INT32 = 2**31 - 1


class MigAllowlistEntry(BaseModel):
    """Which MIG profiles the nodes may offer on the models that are named."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    models: list[str] = []
    profiles: list[str] = []

    @model_validator(mode="after")
    def _both(self) -> Self:
        if not self.models or not self.profiles:
            raise ValueError("MIG profile allowlist must define models and profiles")
        return self

    @field_validator("profiles")
    @classmethod
    def _are_profiles(cls, profiles: list[str]) -> list[str]:
        for profile in profiles:
            size, dot, _ = profile.partition(".")
            if not dot or len(size) < 2 or not size.endswith("g"):
                raise ValueError(f'invalid MIG profile "{profile}"')
        return profiles


class NvidiaConfig(BaseModel):
    """A missing or ``null`` key means its default. Memory in MiB, cores in percent of a device.

    ``default_memory`` counts MiB, whatever ``memory_factor`` says.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    count_name: _Required = Field("nvidia.com/gpu", alias="resourceCountName")
    memory_name: _Optional = Field("nvidia.com/gpumem", alias="resourceMemoryName")
    cores_name: _Optional = Field("nvidia.com/gpucores", alias="resourceCoreName")
    percentage_name: _Optional = Field(
        "nvidia.com/gpumem-percentage", alias="resourceMemoryPercentageName"
    )
    priority_name: _Optional = Field("nvidia.com/priority", alias="resourcePriorityName")
    overwrite_env: bool = Field(default=False, alias="overwriteEnv")
    default_memory: int = Field(0, alias="defaultMemory", ge=0, le=MAX_DEVICE_MEMORY)
    default_cores: int = Field(0, alias="defaultCores", ge=0, le=100)
    default_count: int = Field(1, alias="defaultGPUNum", ge=0, le=1024)
    memory_factor: int = Field(1, alias="memoryFactor", ge=0, le=_INT32)
    core_policy: Literal["", "default", "force", "disable"] = Field("", alias="gpuCorePolicy")
    runtime_class: str = Field("", alias="runtimeClassName")
    mig_allowlist: list[MigAllowlistEntry] = Field([], alias="migProfileAllowlist")

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [
            self.count_name,
            self.memory_name,
            self.cores_name,
            self.percentage_name,
            self.priority_name,
        ]
        twice = sorted({name for name in names if name and names.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]} names two resources")
        return self


def read_config(config: PluginConfig) -> NvidiaConfig:
    """The plugin's section, or the defaults where there is none.

    Raises:
        ConfigError: a value cannot be used; names every such key with its value.
    """
    section = config.get(SECTION)
    if section is None:
        section = {}
    if not isinstance(section, Mapping):
        raise ConfigError(
            f"device configuration: {SECTION}: {shortened(repr(section))} is not a section; "
            f"write keys and values below it or remove it"
        )
    try:
        return NvidiaConfig.model_validate({k: v for k, v in section.items() if v is not None})
    except ValidationError as error:
        problems = "; ".join(_problem(detail) for detail in error.errors())
        raise ConfigError(
            f"device configuration: {problems}; correct it, or remove the key for its default"
        ) from error


def _problem(detail: ErrorDetails) -> str:
    key = ".".join([SECTION, *map(str, detail["loc"])])
    message = detail["msg"].removeprefix("Value error, ")
    if not detail["loc"]:
        return f"{key}: {message}"
    return f"{key}: {shortened(repr(detail['input']))}: {message}"
