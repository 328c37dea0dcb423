"""The section ``hygon:`` of the device configuration.

Its keys are HAMi's. Its names replace those of one profile: ``HCU`` when one of them contains
``hcu``, else ``DCU``; the other profile keeps its defaults. ``memoryFactor`` holds for both.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from hami.domain.errors import ConfigError, shortened
from hami.domain.profile import ResourceNames
from hami.hookspecs import PluginConfig

Generation = Literal["dcu", "hcu"]


class HygonSettings(BaseModel):
    """The section as written; unknown keys are ignored, as HAMi does it.

    A name that is not written is the profile's default; an empty one removes that resource.
    ``memoryFactor`` is the MiB per unit of the memory resource; HAMi's 0 means 1.
    """

    model_config = ConfigDict(frozen=True)

    count_name: Annotated[StrictStr, Field(min_length=1)] | None = Field(
        default=None, alias="resourceCountName"
    )
    memory_name: StrictStr | None = Field(default=None, alias="resourceMemoryName")
    core_name: StrictStr | None = Field(default=None, alias="resourceCoreName")
    memory_factor: StrictInt = Field(default=1, ge=0, alias="memoryFactor")

    @property
    def factor(self) -> int:
        return max(self.memory_factor, 1)

    @property
    def generation(self) -> Generation:
        """Which of the two profiles has these names."""
        written = (self.count_name, self.memory_name, self.core_name)
        return "hcu" if any("hcu" in name for name in written if name) else "dcu"

    def names_of(self, word: Generation) -> ResourceNames:
        """The resource names of one profile, by default ``hygon.com/dcunum`` and its siblings."""
        mine = word == self.generation

        def name(written: str | None, suffix: str) -> str:
            default = f"hygon.com/{word}{suffix}"
            return default if written is None or not mine else written

        return ResourceNames(
            count=name(self.count_name, "num"),
            memory=name(self.memory_name, "mem"),
            cores=name(self.core_name, "cores"),
        )


def read_settings(config: PluginConfig) -> HygonSettings:
    """The section, or the defaults without one.

    Raises:
        ConfigError: names the key, the value and what is wrong with it.
    """
    section = config.get("hygon")
    if section is None:
        return HygonSettings()
    try:
        settings = HygonSettings.model_validate(section)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(["hygon", *(str(part) for part in first["loc"])])
        raise ConfigError(
            f"{key} is {shortened(repr(first['input']))}: {first['msg']}; correct it in the "
            f"device configuration"
        ) from error
    names = settings.names_of(settings.generation).all_names
    if len(set(names)) < len(names):
        raise ConfigError(
            f"hygon names one resource for two purposes: {', '.join(names)}; give each its own"
        )
    return settings
