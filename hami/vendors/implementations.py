"""Which function answers a hook for one vendor: its plugin's or the default, with its wrappers.

Resolved once after loading. Not here: what is made of the answer (``hami.vendors.boundary``), and
what the defaults are (``hami.policy.profile.defaults``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pluggy

from hami.domain.devices import DeviceState
from hami.domain.profile import VendorProfile
from hami.domain.reasons import Rejected
from hami.domain.requests import DeviceRequest, FitContext, Placement
from hami.domain.units import VendorKey
from hami.hookspecs import NodeHooks, SchedulerHooks, hook_names, hookimpl
from hami.hookspecs.hook import taking
from hami.policy.fit import exact
from hami.policy.ports import VendorCalls
from hami.policy.profile import defaults


class Defaults:
    """Every hook's default, registered like a plugin so that wrappers enclose it.

    They are the functions of ``hami.policy.profile.defaults`` that are marked as hooks, and the
    core's loop, which asks the hooks of the vendor.
    """

    def __init__(self, vendors: Mapping[VendorKey, VendorCalls]) -> None:
        self._vendors = vendors
        for word, function in vars(defaults).items():
            if hasattr(function, "hami_impl"):
                setattr(self, f"hami_{word}", function)

    @hookimpl
    def hami_fit(
        self,
        profile: VendorProfile,
        request: DeviceRequest,
        states: Sequence[DeviceState],
        ctx: FitContext,
    ) -> Placement | Rejected:
        return exact.place(self._vendors[profile.key], request, states, ctx)


@dataclass(frozen=True, slots=True)
class Implementations:
    """Who answers the hooks of one vendor.

    ``own`` are the hooks that its plugin implements, ``by_default`` those that the core answers
    without a wrapper around it. ``functions`` has how each hook is called: with the profile and the
    hook's arguments, by position. A hook that nobody answers is not there.
    """

    own: frozenset[str]
    by_default: frozenset[str]
    functions: Mapping[str, Callable[..., Any]]


def resolve(
    manager: pluggy.PluginManager, plugin: object, foreign: Sequence[object], default: Defaults
) -> Implementations:
    """Find out once, after loading, who answers each hook of a vendor of ``plugin``.

    ``foreign`` are the other vendors' plugins; what is left beside this plugin and ``default`` are
    cross-cutting plugins, whose wrappers enclose the call. Without one the function is called
    directly, which costs a fifth of a call through pluggy.
    """
    own: set[str] = set()
    by_default: set[str] = set()
    functions: dict[str, Callable[..., Any]] = {}
    for hook in (*hook_names(SchedulerHooks), *hook_names(NodeHooks)):
        implemented = any(impl.plugin is plugin for impl in answering(getattr(manager.hook, hook)))
        # An answer of None must not fall through to the default: it means something.
        unwanted = [*foreign, default] if implemented else foreign
        caller = manager.subset_hook_caller(hook, remove_plugins=unwanted)
        if implemented:
            own.add(hook)
        if answering(caller):
            functions[hook] = _function(caller)
        if [impl.plugin for impl in caller.get_hookimpls()] == [default]:
            by_default.add(hook)
    return Implementations(frozenset(own), frozenset(by_default), functions)


def answering(caller: pluggy.HookCaller) -> list[pluggy.HookImpl]:
    """Those that answer, and do not wrap who does."""
    return [impl for impl in caller.get_hookimpls() if not (impl.wrapper or impl.hookwrapper)]


def _function(caller: pluggy.HookCaller) -> Callable[..., Any]:
    """The call as a function of what the hook offers, by position."""
    assert caller.spec is not None  # these are hooks of the contract
    offered, impls = caller.spec.argnames, caller.get_hookimpls()
    if len(impls) == 1:
        return taking(impls[0].function, offered, names=impls[0].argnames)
    return lambda *given: caller(**dict(zip(offered, given, strict=True)))
