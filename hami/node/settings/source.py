"""Where the agent's settings come from, beyond what every command has.

Beside the settings' own file: the device configuration, the per-node configuration, and the
options of the vendor. All of them are read again when a file changes, and a change that cannot be
used leaves what was there before (:mod:`hami.settings.watch`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from hami.domain.options import NodeOption
from hami.domain.slices import Identity
from hami.hookspecs import PluginConfig
from hami.node.settings.config import DEFAULT_NODE_CONFIG, AgentConfig
from hami.node.settings.node_config import matching, read_entries
from hami.node.settings.vendor_options import Flags, with_options
from hami.settings.source import Command, SettingsSource, read_file

DEVICE_PLUGIN = Command(
    name="hami device-plugin",
    model=AgentConfig,
    prefix="HAMI_DEVICE_PLUGIN_",
    only_in_files=frozenset({"devices", "nodeconfig"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSource(SettingsSource[AgentConfig]):
    """``options`` are the vendor's, ``option_flags`` the texts that were given for them.

    ``default_node_config`` is read when it exists and no other file is named.
    """

    command = DEVICE_PLUGIN

    options: Sequence[NodeOption] = ()
    option_flags: Flags = field(default_factory=lambda: MappingProxyType({}))
    default_node_config: Path = DEFAULT_NODE_CONFIG

    def load(self) -> AgentConfig:
        config = self.settings()
        devices = dict(config.devices)
        if config.device_config is not None:
            devices |= read_file(config.device_config)
        devices = with_options(devices, self.options, self.option_flags, self.environment)
        entries = list(config.nodeconfig)
        file = self._node_config(config)
        if file != self.default_node_config or file.exists():
            entries += read_entries(file)
        return config.model_copy(update={"devices": devices, "nodeconfig": entries})

    def files(self, config: AgentConfig) -> list[Path]:
        named = [self.config_file, config.device_config, self._node_config(config)]
        return [path for path in named if path is not None]

    def _node_config(self, config: AgentConfig) -> Path:
        return config.node_config or self.default_node_config


def plugin_config(
    config: AgentConfig, *, labels: Mapping[str, str], identity: Identity
) -> PluginConfig:
    """What the vendor's hooks are given: the device configuration, and what is about this node.

    ``node`` holds the node's name and labels, the way the agent finds a pod, and the directories
    of CDI specs; ``nodeconfig`` the entries of the per-node configuration that match, later ones
    win.
    """
    node = {
        "name": config.node_name,
        "labels": dict(labels),
        "identity": identity,
        "cdi_dir": str(config.cdi_dir),
        "cdi_read_dirs": [str(directory) for directory in config.cdi_read_dirs],
    }
    entries = matching(config.nodeconfig, config.node_name, labels)
    return MappingProxyType({**config.devices, "node": node, "nodeconfig": entries})
