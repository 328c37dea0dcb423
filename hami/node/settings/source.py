"""Where the agent's settings come from, and what of them the vendor's hooks are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hami.domain.slices import Identity
from hami.hookspecs import PluginConfig
from hami.node.settings.config import AgentConfig
from hami.settings.node_config import matching
from hami.settings.node_process import NodeProcessSource
from hami.settings.source import Command

DEVICE_PLUGIN = Command(
    name="hami device-plugin",
    model=AgentConfig,
    prefix="HAMI_DEVICE_PLUGIN_",
    only_in_files=frozenset({"devices", "nodeconfig"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSource(NodeProcessSource[AgentConfig]):
    """Where the agent's settings come from; ``options`` are its vendor's."""

    command = DEVICE_PLUGIN


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
