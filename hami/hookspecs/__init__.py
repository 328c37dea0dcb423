"""The contract: every hook a vendor may implement.

A vendor is an object (often a module) registered under the entry-point group ``hami.plugins``
that says ``HAMI_API = 1`` and carries functions marked with :data:`hookimpl`. It states facts and
predicates; the fit loop, ranking, quota and annotations exist once, in the core. Every hook but
``hami_vendors`` has a default that follows the vendor's profile, so a plugin implements only what
differs. A plugin may take fewer arguments than a hook offers.

The contract only grows: a hook or an argument is added, never removed or changed in meaning.
"""

from __future__ import annotations

from hami.hookspecs.markers import (
    ENTRY_POINT_GROUP,
    HAMI_API,
    PluginConfig,
    hookimpl,
    hookspec,
)
from hami.hookspecs.node import NodeHooks
from hami.hookspecs.scheduler import SchedulerHooks

__all__ = [
    "ENTRY_POINT_GROUP",
    "HAMI_API",
    "NodeHooks",
    "PluginConfig",
    "SchedulerHooks",
    "hookimpl",
    "hookspec",
]
