"""What every hook is marked with, and the version of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pluggy

HAMI_API = 1
"""The version of this contract; a plugin names the one it was written for."""

ENTRY_POINT_GROUP = "hami.plugins"

PluginConfig = Mapping[str, Any]
"""The device configuration: sections by name (``nvidia:``), as parsed from YAML."""

hookspec = pluggy.HookspecMarker("hami")
hookimpl = pluggy.HookimplMarker("hami")
one = hookspec(firstresult=True)
"""Marks a hook that one plugin answers: the vendor's own."""
