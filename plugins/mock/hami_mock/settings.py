"""The section ``mock:`` of the device configuration, and the vendor profile that carries it.

mock:
  fail: {hami_enforce: raise, hami_measure: slow}   # hooks that fail, and how
  slowSeconds: 60                                   # how long a slow hook takes
  devices: mockx4                                   # what hami_discover finds on the node
  static: {mock.hami.io/whole: mockx2}              # what kubelet hands out itself
  node: worker-1                                    # whose name is in the devices' ids
  unhealthy: [MOCK-worker-1-0]                      # ids
  unhealthyFile: /run/mock/unhealthy                # one id a line; read again and again
  partitions: /run/mock/partitions                  # a directory that stands for hardware
  vendors: {ACME: {register: acme.io/devices, idPrefix: ACME, mode: acme}}
  profiles: {x1: {vendor: ACME, model: Acme X1, memoryMiB: 32768}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictStr, ValidationError, field_validator

from hami.domain.errors import ConfigError, shortened
from hami.domain.profile import VendorProfile
from hami.hookspecs import NodeHooks, PluginConfig, SchedulerHooks, hook_names
from hami_mock.catalog import Catalog

SCHEDULER_HOOKS = frozenset(hook_names(SchedulerHooks))
NODE_HOOKS = frozenset(hook_names(NodeHooks))

Failure = Literal["raise", "slow"]


class MockSettings(Catalog):
    """The section as written; a key that it does not know is an error.

    ``slow_seconds`` is longer than every timeout of the contract by default. ``partitions`` is
    where ``hami_enforce`` pretends to change hardware; without it, it changes none.
    """

    fail: Mapping[StrictStr, Failure] = Field(default_factory=dict)
    slow_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(default=60.0, alias="slowSeconds")
    devices: StrictStr = ""
    static: Mapping[StrictStr, StrictStr] = Field(default_factory=dict)
    node: StrictStr = "node"
    unhealthy: frozenset[StrictStr] = frozenset()
    unhealthy_file: Path | None = Field(default=None, alias="unhealthyFile")
    partitions: Path | None = None

    @field_validator("fail")
    @classmethod
    def _known_hooks(cls, fail: Mapping[str, Failure]) -> Mapping[str, Failure]:
        for hook, how in fail.items():
            if hook not in SCHEDULER_HOOKS | NODE_HOOKS:
                raise ValueError(f"{hook} is no hook of the contract")
            if how == "slow" and hook in SCHEDULER_HOOKS:
                raise ValueError(f"{hook} is pure: it can raise, not be slow")
        return fail

    @field_validator("unhealthy_file", "partitions")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_absolute():
            raise ValueError("the path must be absolute")
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class MockProfile(VendorProfile):
    """The vendor's profile, with the settings it was made from.

    Every hook is given the profile, so each knows the settings without any state.
    """

    settings: MockSettings


def read_settings(config: PluginConfig) -> MockSettings:
    """The section ``mock``, or the defaults without one.

    Raises:
        ConfigError: names the key, the value and what is wrong with it.
    """
    section = config.get("mock")
    if section is None:
        return MockSettings()
    try:
        return MockSettings.model_validate(section)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(["mock", *(str(part) for part in first["loc"])])
        raise ConfigError(
            f"{key} is {shortened(repr(first['input']))}: {first['msg']}; correct it in the "
            f"device configuration"
        ) from error


def settings_of(profile: VendorProfile) -> MockSettings:
    """What ``hami_vendors`` put into the profile."""
    return profile.settings if isinstance(profile, MockProfile) else MockSettings()
