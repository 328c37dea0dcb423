"""Where the scheduler's settings come from besides every command's sources: HAMi's own flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from hami.scheduler.settings.config import SchedulerConfig
from hami.scheduler.settings.hami_flags import WITHOUT_EFFECT, with_resource_names
from hami.settings.source import Command, SettingsSource, read_file

SCHEDULER = Command(
    name="hami scheduler",
    model=SchedulerConfig,
    prefix="HAMI_SCHEDULER_",
    only_in_files=frozenset({"devices"}),
)
FLAG_FIELDS = SCHEDULER.flag_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSource(SettingsSource[SchedulerConfig]):
    """The scheduler's sources; ``foreign`` are HAMi's flags that are no settings of ours."""

    command = SCHEDULER

    foreign: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def load(self) -> SchedulerConfig:
        config = self.settings()
        devices = dict(config.devices)
        if config.device_config_file is not None:
            devices |= read_file(config.device_config_file)
        names = {k: v for k, v in self.foreign.items() if k not in WITHOUT_EFFECT}
        devices = with_resource_names(devices, names)
        return config.model_copy(update={"devices": devices}) if devices else config

    def files(self, config: SchedulerConfig) -> list[Path]:
        return [p for p in (self.config_file, config.device_config_file) if p is not None]

    @property
    def warnings(self) -> list[str]:
        """A warning for each flag of HAMi that was given and changes nothing."""
        return [
            f"--{flag} has no effect here; leave it out"
            for flag in self.foreign
            if flag in WITHOUT_EFFECT
        ]
