"""What a vendor's profile says to the Helm chart: its entry in the value ``vendors``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hami.cli.flags.files import read_device_config
from hami.cli.terminal.messages import warn
from hami.cli.vendor_loading import installed_vendors
from hami.domain.errors import ConfigError
from hami.node.settings.served_vendor import node_vendors
from hami.vendors.boundary import Vendor


def find_vendor(name: str, device_config: Path | None, profiles: Path | None) -> Vendor:
    """The vendor with this key, in any case, with the names that the configuration gives it.

    Raises:
        HamiError: a file or a plugin cannot be used, or no plugin has this vendor.
    """
    config = read_device_config(device_config) if device_config else {}
    vendors = installed_vendors(config, profiles=profiles, on_broken=lambda p: warn(str(p)))
    for key, vendor in vendors.items():
        if key.lower() == name.lower():
            return vendor
    raise ConfigError(
        f"no installed plugin has vendor {name}; name one of {', '.join(vendors) or 'none'}, or "
        f"install its plugin"
    )


def entry(vendor: Vendor) -> dict[str, Any]:
    """The vendor's entry, without what a profile does not know: its nodes, its image."""
    profile = vendor.profile
    node, pod = profile.node_annotations, profile.pod_annotations
    return {
        "enabled": True,
        "managedResources": list(profile.resources.all_names),
        "annotations": {
            "node": _sorted(node.register, node.handshake, node.lock, *node.also_written),
            "pod": _sorted(pod.to_allocate, *pod.also_written),
            "allocation": _sorted(pod.allocated),
        },
        "devicePlugin": {"enabled": bool(node_vendors({profile.key: vendor}))},
    }


def printed(vendor: Vendor) -> str:
    """The entry as YAML, to be put into a file of values."""
    values = {"vendors": {str(vendor.profile.key): entry(vendor)}}
    return yaml.safe_dump(values, sort_keys=False)


def _sorted(*keys: str) -> list[str]:
    return sorted({key for key in keys if key})
