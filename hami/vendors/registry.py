"""The registry of vendors: strict discovery, addressed calls, one boundary for failures.

``load_vendors`` registers what was found (``hami.vendors.discovery``) and stops with one sentence
at the first thing that is wrong; pluggy itself would skip a duplicate silently. ``Vendors`` then
maps each vendor's key to its calls. Not here: what the hooks mean (``hami.hookspecs``), what
happens without one (``hami.policy.profile.defaults``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import pluggy

from hami.domain.errors import HamiError, PluginRejected, shortened
from hami.domain.kubernetes.objects import Node
from hami.domain.profile import VendorProfile
from hami.domain.units import VendorKey
from hami.hookspecs import (
    HAMI_API,
    NodeHooks,
    PluginConfig,
    SchedulerHooks,
    hook_names,
)
from hami.policy.profile.profile_rules import profile_problems
from hami.vendors.boundary import Vendor, VendorFailure, ignore_failure, ignore_fit
from hami.vendors.discovery import (
    OnBroken,
    Plugin,
    installed_plugins,
    line_of,
    one_line,
    profile_plugins,
    refuse_broken,
    said,
)
from hami.vendors.implementations import Defaults, answering, resolve


class Vendors(Mapping[VendorKey, Vendor]):
    """Every vendor of every plugin, by key, in the order of their keys. Immutable.

    A reload makes a new one; whoever holds the old one keeps a consistent set.
    """

    def __init__(self, vendors: Mapping[VendorKey, Vendor], manager: pluggy.PluginManager) -> None:
        self._vendors = dict(sorted(vendors.items()))
        self._simulators = _one_by_one(manager, "hami_simulated_annotations")
        self._managed = frozenset(
            name for v in vendors.values() for name in v.profile.resources.quota_names
        )

    @classmethod
    def of(
        cls,
        plugins: Mapping[str, object],
        config: PluginConfig = MappingProxyType({}),
        *,
        on_failure: Callable[[VendorFailure], None] = ignore_failure,
    ) -> Vendors:
        """From plugin objects by name, through the same checks as installed ones.

        Raises:
            PluginRejected: two plugins clash, one misspells a hook, speaks another API or names a
                vendor that cannot be.
            ConfigError: a plugin refuses its section of ``config``.
        """
        found = [Plugin(name, obj, name) for name, obj in sorted(plugins.items())]
        return build(found, config, on_failure=on_failure)

    def __getitem__(self, key: VendorKey, /) -> Vendor:
        return self._vendors[key]

    def __iter__(self) -> Iterator[VendorKey]:
        return iter(self._vendors)

    def __len__(self) -> int:
        return len(self._vendors)

    @property
    def profiles(self) -> tuple[VendorProfile, ...]:
        return tuple(vendor.profile for vendor in self._vendors.values())

    def manages(self, resource: str) -> bool:
        """A registered vendor counts this resource: count, memory or cores."""
        return resource in self._managed

    def simulated_annotations(self, node: Node, config: PluginConfig) -> Mapping[str, str]:
        """What simulating plugins add to this node; what it has already is kept.

        Raises:
            ConfigError: a plugin was asked for something that it does not have.
            PluginRejected: a plugin failed.
        """
        added: dict[str, str] = {}
        for name, call in self._simulators:
            try:
                # pluggy leaves an answer of None out, and None is no answer here.
                answers = call(node=node, config=config)
                answer: Any = answers[0] if answers else None
                added |= {k: v for k, v in answer.items() if k not in node.annotations}
            except HamiError:
                raise
            except (Exception, SystemExit) as error:
                raise PluginRejected(
                    f"plugin {name!r} failed to simulate node {node.name}: "
                    f"{said(error)}; repair or uninstall it"
                ) from error
        return added


def _one_by_one(
    manager: pluggy.PluginManager, hook: str
) -> list[tuple[str, Callable[..., list[Any]]]]:
    """The plugins that answer, by name, each with a call of it alone and of the wrappers."""
    impls = sorted(answering(getattr(manager.hook, hook)), key=lambda i: i.plugin_name)
    return [
        (
            impl.plugin_name,
            manager.subset_hook_caller(hook, [o.plugin for o in impls if o is not impl]),
        )
        for impl in impls
    ]


def load_vendors(
    config: PluginConfig = MappingProxyType({}),
    *,
    profiles: Path | None = None,
    on_failure: Callable[[VendorFailure], None] = ignore_failure,
    on_fit: Callable[[VendorKey, float], None] = ignore_fit,
    on_broken: OnBroken = refuse_broken,
) -> Vendors:
    """Every installed plugin's vendors, and those of the YAML profiles in the folder ``profiles``.

    ``on_broken`` is told of a plugin that does not import or does not follow the contract; where
    it returns, that plugin is left out.

    Raises:
        PluginRejected: the message names the distribution and what to install, remove or repair.
        ConfigError: a plugin refuses its section of ``config``, or a profile cannot be read.
    """
    plugins = installed_plugins(on_broken)
    if profiles is not None:
        plugins += profile_plugins(profiles)
    return build(plugins, config, on_failure=on_failure, on_fit=on_fit, on_broken=on_broken)


def build(
    plugins: Sequence[Plugin],
    config: PluginConfig,
    *,
    on_failure: Callable[[VendorFailure], None] = ignore_failure,
    on_fit: Callable[[VendorKey, float], None] = ignore_fit,
    on_broken: OnBroken = refuse_broken,
) -> Vendors:
    """Register plugins and ask each for its vendors; the steps of :func:`load_vendors`."""
    manager = pluggy.PluginManager("hami")
    manager.add_hookspecs(SchedulerHooks)
    manager.add_hookspecs(NodeHooks)
    plugins = [plugin for plugin in plugins if _registered(manager, plugin, on_broken)]
    carriers = [p for p in plugins if _answers(manager, p, "hami_vendors")]
    for plugin in plugins:
        if plugin not in carriers:
            _check_cross_cutting(manager, plugin)
    found: dict[VendorKey, tuple[Plugin, VendorProfile]] = {}
    for plugin in carriers:
        others = [p.object for p in carriers if p is not plugin]
        for profile in _profiles(manager, plugin, others, config):
            _check_key(profile.key, plugin, found)
            found[profile.key] = (plugin, profile)

    vendors: dict[VendorKey, Vendor] = {}
    default = Defaults(vendors)
    manager.register(default)
    for key, (plugin, profile) in found.items():
        foreign = [p.object for p in carriers if p is not plugin]
        vendors[key] = Vendor(
            profile=profile,
            distribution=plugin.distribution,
            version=plugin.version,
            implementations=resolve(manager, plugin.object, foreign, default),
            on_failure=on_failure,
            on_fit=on_fit,
        )
    _check_claims(vendors)
    return Vendors(vendors, manager)


def _registered(manager: pluggy.PluginManager, plugin: Plugin, on_broken: OnBroken) -> bool:
    try:
        _register(manager, plugin)
    except PluginRejected as problem:
        on_broken(problem)
        # One object may have two names; what stands under the first goes on.
        if manager.get_plugin(plugin.name) is plugin.object:
            manager.unregister(plugin.object)
        return False
    return True


def _register(manager: pluggy.PluginManager, plugin: Plugin) -> None:
    speaks = getattr(plugin.object, "HAMI_API", None)
    if type(speaks) is not int:
        said = "has no HAMI_API" if speaks is None else f"says HAMI_API = {shortened(repr(speaks))}"
        raise PluginRejected(
            f"plugin {plugin.name!r} of {plugin.distribution}: {_named(plugin.object)} {said}; "
            f"its entry point must name an object that says HAMI_API = {HAMI_API}: repair or "
            f"uninstall {plugin.distribution}"
        )
    if speaks != HAMI_API:
        raise PluginRejected(
            f"plugin {plugin.name!r} of {plugin.distribution} speaks API {speaks}, this hami "
            f"speaks API {HAMI_API}; install a version of {plugin.distribution} that fits"
        )
    try:
        manager.register(plugin.object, name=plugin.name)
        _check_names(manager, plugin)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        raise PluginRejected(
            f"plugin {plugin.name!r} of {plugin.distribution} does not follow the contract: "
            f"{one_line(error)}; repair or uninstall {plugin.distribution}"
        ) from error


def _check_names(manager: pluggy.PluginManager, plugin: Plugin) -> None:
    """Refuse what looks like a hook and is none, or is not marked as one."""
    contract = (*hook_names(SchedulerHooks), *hook_names(NodeHooks))
    for name in dir(plugin.object):
        if not name.startswith("hami_") or not callable(getattr(plugin.object, name)):
            continue
        spec = getattr(manager.hook, name) if name in contract else None
        if spec is not None and any(i.plugin is plugin.object for i in spec.get_hookimpls()):
            continue
        wrong = "is not marked with @hookimpl"
        if spec is None:
            words = [hook.removeprefix("hami_") for hook in contract]
            meant = get_close_matches(name.removeprefix("hami_"), words, n=1)
            guess = f" (did you mean hami_{meant[0]}?)" if meant else ""
            wrong = f"is no hook of API {HAMI_API}{guess}"
        raise PluginRejected(
            f"plugin {plugin.name!r} of {plugin.distribution}: "
            f"{line_of(getattr(plugin.object, name))}{name} {wrong}; repair or uninstall "
            f"{plugin.distribution}"
        )


def _named(found: object) -> str:
    if isinstance(found, ModuleType):
        return f"the module {found.__name__}"
    return f"the object of class {type(found).__name__}"


def _answers(manager: pluggy.PluginManager, plugin: Plugin, hook: str) -> bool:
    """The plugin implements the hook, and not only as a wrapper around others."""
    return any(i.plugin is plugin.object for i in answering(getattr(manager.hook, hook)))


def _check_cross_cutting(manager: pluggy.PluginManager, plugin: Plugin) -> None:
    """A plugin without vendors may wrap every vendor's calls, and simulate nodes of any vendor.

    An answer of its own would belong to no vendor.
    """
    for caller in manager.get_hookcallers(plugin.object) or ():
        if caller.name != "hami_simulated_annotations" and _answers(manager, plugin, caller.name):
            raise PluginRejected(
                f"plugin {plugin.name!r} of {plugin.distribution} implements {caller.name} but "
                f"carries no vendor; add hami_vendors or mark it @hookimpl(wrapper=True)"
            )


def _profiles(
    manager: pluggy.PluginManager, plugin: Plugin, others: list[object], config: PluginConfig
) -> list[VendorProfile]:
    caller = manager.subset_hook_caller("hami_vendors", remove_plugins=others)
    try:
        profiles = list(caller(config=config) or ())
    except HamiError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginRejected(
            f"plugin {plugin.name!r} of {plugin.distribution} failed to name its vendors: "
            f"{said(error)}; repair or uninstall {plugin.distribution}"
        ) from error
    for profile in profiles:
        _check_profile(plugin, profile)
    return profiles


def _check_profile(plugin: Plugin, profile: object) -> None:
    if not isinstance(profile, VendorProfile):
        raise PluginRejected(
            f"plugin {plugin.name!r} of {plugin.distribution} returned {profile!r} as a "
            f"vendor; hami_vendors returns VendorProfile values"
        )
    if problems := profile_problems(profile):
        key = shortened(repr(profile.key))
        raise PluginRejected(
            f"plugin {plugin.name!r} of {plugin.distribution}: vendor {key}: "
            f"{'; '.join(problems)}; correct it in the device configuration, or repair or "
            f"uninstall {plugin.distribution}"
        )


def _check_key(
    key: VendorKey,
    plugin: Plugin,
    found: Mapping[VendorKey, tuple[Plugin, VendorProfile]],
) -> None:
    """Refuse a second vendor with a key: in lower case too, as paths and CDI names have it."""
    for known, (former, _) in found.items():
        if known.lower() != key.lower():
            continue
        if known != key:
            raise PluginRejected(
                f"vendor {known} of {former.distribution} and vendor {key} of "
                f"{plugin.distribution} differ by case alone, and paths and CDI names do not; "
                f"rename one of them in its plugin, or uninstall one"
            )
        raise PluginRejected(
            f"{plugin.distribution} carries the vendor {key!r} twice; repair it"
            if former is plugin
            else f"{former.distribution} and {plugin.distribution} both carry the vendor "
            f"{key!r}; uninstall one of them"
        )


def _check_claims(vendors: Mapping[VendorKey, Vendor]) -> None:
    """Refuse a resource name or an annotation that two vendors claim."""
    owners: dict[str, Vendor] = {}
    for vendor in vendors.values():
        profile = vendor.profile
        claims = [(f"resource {name!r}", name) for name in profile.resources.all_names]
        claims += [
            (f"annotation {key!r}", key)
            for key in (
                profile.pod_annotations.to_allocate,
                profile.pod_annotations.allocated,
                *profile.pod_annotations.also_written,
                profile.node_annotations.register,
                profile.node_annotations.handshake,
                *profile.node_annotations.also_written,
            )
            if key
        ]
        for what, name in claims:
            former = owners.setdefault(name, vendor)
            if former is not vendor:
                raise PluginRejected(
                    f"vendor {former.profile.key} of {former.distribution} and vendor "
                    f"{profile.key} of {vendor.distribution} both claim the {what}; rename it in "
                    f"the configuration of one, or uninstall one of them"
                )
