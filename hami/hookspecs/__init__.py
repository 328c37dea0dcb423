"""The contract: every hook a vendor may implement.

A vendor is an object (often a module) registered under the entry-point group ``hami.plugins``
that says ``HAMI_API = 1`` and carries functions marked with :data:`hookimpl`. It states facts and
predicates; the fit loop, ranking, quota and annotations exist once, in the core. A hook that the
core asks one vendor has a default, which follows the vendor's profile, or is marked as required: a
plugin implements only what differs. It may take fewer arguments than a hook offers.

``scheduler`` and ``node`` specify the hooks. ``calls`` is the table by which the core calls them: a
line per hook, with its check (``checks``) and its refusal (``refusals``). ``hook`` makes a method
of such a line, and ``answer_types`` reads the answer's type from the hookspec. Pure: no I/O, no
clock. Not here: the defaults (``hami.policy.profile.defaults``), and who is called
(``hami.vendors``).

A hook is added in three places: its hookspec, its line in ``calls``, and its default (or the mark
``required`` on the hookspec). The contract only grows: a hook or an argument is added, never
removed or changed in meaning.
"""

from __future__ import annotations

from hami.hookspecs.markers import (
    ENTRY_POINT_GROUP,
    HAMI_API,
    PluginConfig,
    hook_names,
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
    "hook_names",
    "hookimpl",
    "hookspec",
]
