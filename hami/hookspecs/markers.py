"""What every hook is marked with, and the version of the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pluggy

HAMI_API = 1
"""The version of this contract; a plugin names the one it was written for."""

ENTRY_POINT_GROUP = "hami.plugins"

PluginConfig = Mapping[str, Any]
"""The device configuration: sections by name (``nvidia:``), as parsed from YAML."""

hookspec = pluggy.HookspecMarker("hami")
hookimpl = pluggy.HookimplMarker("hami")
one = hookspec(firstresult=True)
"""Marks a hook that one plugin answers: the vendor's own, or else the core with its default."""

_Spec = TypeVar("_Spec", bound=Callable[..., Any])


def required(spec: _Spec) -> _Spec:
    """Marks a hook that the vendor's own plugin must answer: the core has no default for it."""
    spec.__dict__["hami_required"] = True
    return one(spec)


def hook_names(hooks: type) -> tuple[str, ...]:
    """The hooks that a class specifies, in the order of its code."""
    return tuple(name for name in vars(hooks) if name.startswith("hami_"))
