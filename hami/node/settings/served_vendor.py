"""The vendor that this agent serves, out of those that are installed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata

from hami.domain.errors import ConfigError, shortened
from hami.domain.units import VendorKey
from hami.vendors.boundary import Vendor

_DISCOVERS = "hami_discover"


def node_vendors(vendors: Mapping[VendorKey, Vendor]) -> list[Vendor]:
    """Those whose plugin finds devices on a node."""
    return [vendor for vendor in vendors.values() if _DISCOVERS in vendor.hooks]


def vendor_named(vendors: Mapping[VendorKey, Vendor], name: str) -> Vendor:
    """The vendor with this key, in any case.

    Raises:
        ConfigError: nobody has it, or its plugin has nothing for nodes; lists those that do.
    """
    serving = node_vendors(vendors)
    known = ", ".join(f"{v.profile.key} ({v.distribution})" for v in serving) or "none"
    for vendor in vendors.values():
        if vendor.profile.key.lower() != name.lower():
            continue
        if vendor in serving:
            return vendor
        raise ConfigError(
            f"vendor {vendor.profile.key} of {vendor.distribution} finds no devices on nodes (it "
            f"has no hook {_DISCOVERS}); install a version that does. With such a hook: {known}"
        )
    raise ConfigError(
        f"no installed plugin has the vendor {shortened(name)!r} (installed: {known}); install "
        f"{_plugin_of(name)}"
        if name.isidentifier()
        else f"{shortened(name)!r} is no vendor; name one of {known}"
    )


def _plugin_of(vendor: str) -> str:
    """The package that hami itself offers for it, or that it has none."""
    package = f"hami-{vendor.lower()}"
    offered = {re.split(r"[^\w.-]", one)[0] for one in metadata.requires("hami") or ()}
    return package if package in offered else "that vendor's own plugin"
