"""Flags of HAMi's scheduler that are no settings of ours; with them HAMi's manifests still work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from hami.settings.klog import KLOG, KLOG_SWITCHES

WITHOUT_EFFECT = frozenset(
    {
        "profiling", "debug", "enable-ascend", "enable-iluvatar", "default-mem", "default-cores",
        "default-gpu", "enflame-vgcu-resource-name", "enflame-vgcu-percentage-resource-name",
    }
    | KLOG
)  # fmt: skip
"""Flags that are accepted and ignored: debugging, switches of vendors (a vendor is a plugin here),
klog."""

SWITCHES = frozenset(
    {
        "profiling", "debug", "enable-ascend", "enable-iluvatar", "sgpu-topology-aware",
    }
    | KLOG_SWITCHES
)  # fmt: skip
"""Flags that need no value: ``--debug`` is ``--debug=true``."""

RESOURCE_NAMES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "cambricon-mlu-name": ("cambricon", "resourceCountName"),
        "cambricon-mlu-memory": ("cambricon", "resourceMemoryName"),
        "cambricon-mlu-cores": ("cambricon", "resourceCoreName"),
        "dcu-name": ("hygon", "resourceCountName"),
        "dcu-memory": ("hygon", "resourceMemoryName"),
        "dcu-cores": ("hygon", "resourceCoreName"),
        "mthreads-name": ("mthreads", "resourceCountName"),
        "mthreads-memory": ("mthreads", "resourceMemoryName"),
        "mthreads-cores": ("mthreads", "resourceCoreName"),
        "metax-name": ("metax", "resourceCountName"),
        "metax-vcount": ("metax", "resourceVCountName"),
        "metax-vcore": ("metax", "resourceVCoreName"),
        "metax-vmemory": ("metax", "resourceVMemoryName"),
        "sgpu-topology-aware": ("metax", "sgpuTopologyAware"),
        "enflame-gcu-resource-name": ("enflame", "resourceNameGCU"),
        "enflame-drs-gcu-resource-name": ("enflame", "resourceNameDRSGCU"),
        "enflame-gcu-memory-resource-name": ("enflame", "resourceNameGCUMemory"),
        "enflame-gcu-core-resource-name": ("enflame", "resourceNameGCUCore"),
        "enflame-vgcu-legacy-resource-name": ("enflame", "resourceNameVGCU"),
        "kunlun-name": ("kunlun", "resourceCountName"),
        "kunlun-vcount": ("kunlun", "resourceVCountName"),
        "kunlun-vmemory": ("kunlun", "resourceVMemoryName"),
    }
)
"""Flags that name a vendor's resources: the section and the key of the device configuration.

As in HAMi, the device configuration has the last word; a flag fills what it leaves out.
"""


def with_resource_names(devices: Mapping[str, Any], flags: Mapping[str, str]) -> dict[str, Any]:
    """The device configuration, with what these flags add to its sections."""
    sections = dict(devices)
    for flag, text in flags.items():
        section, key = RESOURCE_NAMES[flag]
        present = sections.get(section) or {}
        if isinstance(present, Mapping) and key not in present:
            value: Any = text.lower() == "true" if flag in SWITCHES else text
            sections[section] = {**present, key: value}
    return sections


def unread_sections(devices: Mapping[str, Any], plugins: Iterable[str]) -> list[str]:
    """Warnings about sections that no installed plugin reads; ``plugins`` are known names."""
    known = set(plugins)
    return [
        f"device configuration: no installed plugin reads the section {section!r}; install the "
        f"vendor's plugin, or remove the section"
        for section in sorted(devices)
        if section not in known
    ]
