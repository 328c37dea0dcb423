"""What every process on a node is told: which node, whose configuration, where its files are.

The node agent and the monitor are started with the same flags and variables for these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field

from hami.domain.errors import ConfigError
from hami.domain.options import NodeOption
from hami.settings.model import LIVE, ServiceSettings, Setting
from hami.settings.node_config import checked_entries, read_entries
from hami.settings.source import SettingsSource, read_file
from hami.settings.vendor_options import Flags, with_options

DEFAULT_NODE_CONFIG = Path("/config/config.json")
"""Where HAMi's chart mounts the per-node configuration."""


def _is_absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("is no absolute path; begin it with /")
    return path


def _are_entries(value: list[Any]) -> list[Any]:
    try:
        checked_entries(value, "nodeconfig")
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return value


AbsolutePath = Annotated[Path, AfterValidator(_is_absolute)]
Directory = Annotated[AbsolutePath, Setting(metavar="DIRECTORY")]


class NodeProcessSettings(ServiceSettings):
    """``devices`` holds the device configuration with the vendors' options in it, ``nodeconfig``
    the entries of the per-node configuration for all nodes.
    """

    node_name: Annotated[str, Setting(environment=("NODE_NAME", "NodeName"))] = Field(
        "", description="The node that this process runs on, as the API server knows it."
    )
    device_config: Annotated[
        Path | None,
        Setting(live=True, flags=("config-file",), environment=("CONFIG_FILE",)),
    ] = Field(None, description="The device configuration: a section per vendor, in HAMi's format.")
    devices: Annotated[dict[str, Any], LIVE] = Field(
        default_factory=dict,
        description="The device configuration itself, in the file; sections of device-config "
        "replace those of the same name.",
    )
    node_config: Annotated[Path | None, LIVE] = Field(
        None,
        description="The per-node configuration, in HAMi's format, JSON or YAML; by default "
        f"{DEFAULT_NODE_CONFIG} where that exists.",
    )
    nodeconfig: Annotated[list[Any], AfterValidator(_are_entries), LIVE] = Field(
        default_factory=list,
        description="The entries of the per-node configuration, in the file; those of "
        "node-config come after them.",
    )
    slices: Directory = Field(
        Path("/var/lib/hami/slices"), description="A directory for each container's limits."
    )
    cgroup_root: Directory = Field(
        Path("/sys/fs/cgroup"), description="The node's cgroups, to see which slices are in use."
    )
    proc_root: Directory = Field(
        Path("/proc"), description="The node's processes, to look for slices in their mounts."
    )


N = TypeVar("N", bound=NodeProcessSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProcessSource(SettingsSource[N]):
    """Reads the device configuration and the per-node configuration too.

    ``options`` are the vendors', ``option_flags`` the texts that were given for them.
    ``default_node_config`` is read when it exists and no other file is named.
    """

    options: Sequence[NodeOption] = ()
    option_flags: Flags = field(default_factory=lambda: MappingProxyType({}))
    default_node_config: Path = DEFAULT_NODE_CONFIG

    def load(self) -> N:
        config = self.settings()
        devices: Mapping[str, Any] = dict(config.devices)
        if config.device_config is not None:
            devices = {**devices, **read_file(config.device_config)}
        devices = with_options(devices, self.options, self.option_flags, self.environment)
        entries = list(config.nodeconfig)
        file = self._node_config(config)
        if file != self.default_node_config or file.exists():
            entries += read_entries(file)
        return config.model_copy(update={"devices": devices, "nodeconfig": entries})

    def files(self, config: N) -> list[Path]:
        named = [self.config_file, config.device_config, self._node_config(config)]
        return [path for path in named if path is not None]

    def _node_config(self, config: N) -> Path:
        return config.node_config or self.default_node_config
