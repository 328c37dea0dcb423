"""Where the monitor's settings come from, and what of them the vendors' hooks are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hami.hookspecs import PluginConfig
from hami.monitor.settings.config import MonitorConfig
from hami.settings.node_config import matching
from hami.settings.node_process import NodeProcessSource
from hami.settings.source import Command

MONITOR = Command(
    name="hami monitor",
    model=MonitorConfig,
    prefix="HAMI_MONITOR_",
    only_in_files=frozenset({"devices", "nodeconfig"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSource(NodeProcessSource[MonitorConfig]):
    """Where the monitor's settings come from; ``options`` are all vendors', by variable alone."""

    command = MONITOR


def plugin_config(config: MonitorConfig, *, labels: Mapping[str, str]) -> PluginConfig:
    """What the hooks that the monitor asks are given, in the words of the agent's."""
    node = {"name": config.node_name, "labels": dict(labels)}
    entries = matching(config.nodeconfig, config.node_name, labels)
    return MappingProxyType({**config.devices, "node": node, "nodeconfig": entries})
