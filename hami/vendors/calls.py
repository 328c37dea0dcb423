"""Which function answers a hook for one vendor: its plugin's or the default, with its wrappers.

Resolved once after loading. Not here: what is made of the answer (``hami.vendors.boundary``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pluggy

from hami.domain.admission import Admission
from hami.domain.allocations import ContainerKind, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.errors import Malformed
from hami.domain.objects import Container, Node, Pod
from hami.domain.options import NodeOption
from hami.domain.profile import VendorProfile
from hami.domain.reasons import Rejected
from hami.domain.requests import DeviceRequest, FitContext, Invalid, Placement
from hami.domain.slices import ContainerEdits, HealthChange, Measurement
from hami.hookspecs import NodeHooks, SchedulerHooks, hookimpl
from hami.policy.fit import exact
from hami.policy.ports import VendorCalls
from hami.policy.profile import defaults


class Defaults:
    """A vendor's default hooks, registered beside its plugin so that wrappers enclose them."""

    def __init__(self) -> None:
        self.vendor: VendorCalls | None = None

    @hookimpl
    def hami_node_devices(self, profile: VendorProfile, node: Node) -> Sequence[Device] | Malformed:
        return defaults.node_devices(profile, node)

    @hookimpl
    def hami_node_annotations(
        self, profile: VendorProfile, devices: Sequence[Device]
    ) -> Mapping[str, str]:
        return defaults.node_annotations(profile, devices)

    @hookimpl
    def hami_admit(
        self, profile: VendorProfile, container: Container, pod: Pod, kind: ContainerKind
    ) -> Admission:
        return defaults.admit(profile, container, pod, kind)

    @hookimpl
    def hami_parse_request(
        self, profile: VendorProfile, container: Container, pod: Pod
    ) -> DeviceRequest | Invalid | None:
        return defaults.parse_request(profile, container, pod)

    @hookimpl
    def hami_charge(
        self, profile: VendorProfile, request: DeviceRequest, state: DeviceState, ctx: FitContext
    ) -> Grant:
        return defaults.charge(profile, request, state, ctx)

    @hookimpl
    def hami_accept(self) -> None:
        return None

    @hookimpl
    def hami_choose(self) -> None:
        return None

    @hookimpl
    def hami_fit(
        self, request: DeviceRequest, states: Sequence[DeviceState], ctx: FitContext
    ) -> Placement | Rejected:
        assert self.vendor is not None
        return exact.place(self.vendor, request, states, ctx)

    @hookimpl
    def hami_allocation_annotations(self) -> Mapping[str, str]:
        return {}

    @hookimpl
    def hami_restore(self, allocation: PodAllocation) -> PodAllocation:
        return allocation

    @hookimpl
    def hami_node_options(self) -> Sequence[NodeOption]:
        return ()

    @hookimpl
    def hami_static_devices(self) -> Mapping[str, Sequence[Device]]:
        return {}

    @hookimpl
    def hami_static_edits(self) -> ContainerEdits:
        return ContainerEdits()

    @hookimpl
    def hami_release(self) -> None:
        return None

    @hookimpl
    def hami_reconcile(self) -> None:
        return None

    @hookimpl
    def hami_check_health(self) -> Sequence[HealthChange]:
        return ()

    @hookimpl
    def hami_measure(self) -> Sequence[Measurement]:
        return ()


def resolve(
    manager: pluggy.PluginManager, plugin: object, own: Defaults, remove: Sequence[object]
) -> tuple[list[str], dict[str, Callable[..., Any]]]:
    """The hooks ``plugin`` implements, and how to call each: once, after loading.

    ``remove`` are the other vendors' plugins and defaults; what is left beside this plugin are
    cross-cutting plugins, whose wrappers enclose the call. Without one the function is called
    directly, which costs a fifth of a call through pluggy.
    """
    implemented: list[str] = []
    calls: dict[str, Callable[..., Any]] = {}
    for spec in (SchedulerHooks, NodeHooks):
        for hook in (name for name in vars(spec) if name.startswith("hami_")):
            mine = [
                impl
                for impl in getattr(manager.hook, hook).get_hookimpls()
                if impl.plugin is plugin and not (impl.wrapper or impl.hookwrapper)
            ]
            if mine:
                implemented.append(hook)
            # An answer of None must not fall through to the default: it means something.
            unwanted = [*remove, own] if mine else list(remove)
            caller = manager.subset_hook_caller(hook, remove_plugins=unwanted)
            impls = caller.get_hookimpls()
            answering = [i for i in impls if not (i.wrapper or i.hookwrapper)]
            if len(impls) == 1 and answering:
                calls[hook] = _direct(impls[0].function, impls[0].argnames, caller.spec)
            elif answering:
                calls[hook] = caller
    return implemented, calls


def _direct(function: Callable[..., Any], names: Sequence[str], spec: Any) -> Callable[..., Any]:
    if set(names) == set(spec.argnames):
        return function

    def call(**arguments: Any) -> Any:
        return function(**{name: arguments[name] for name in names})

    return call
