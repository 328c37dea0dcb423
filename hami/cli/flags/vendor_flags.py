"""A vendor's options on the command line of ``hami device-plugin``.

The flags depend on ``--vendor``. So the command takes them out of the command line before typer
reads the rest, and shows them below its own options in the help text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hami.cli.flags.go_flags import Flag, GoFlags, rewritten
from hami.cli.terminal.interrupts import ending_at_interrupt
from hami.cli.terminal.messages import answering
from hami.domain.errors import ConfigError, PluginRejected
from hami.domain.options import NodeOption, OptionKind
from hami.node.settings.served_vendor import vendor_named
from hami.node.settings.source import AgentSource
from hami.vendors.boundary import Vendor
from hami.vendors.registry import Vendors, load_vendors

_META = "hami.cli.flags.vendor_flags"


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorFlags:
    """A vendor, its options, and the values that were given, by each option's first flag."""

    vendor: Vendor | None = None
    options: Sequence[NodeOption] = ()
    given: Mapping[str, str] = field(default_factory=dict)


def vendor_flags(ctx: Any) -> VendorFlags:
    """The vendor's flags found on this command line."""
    found: VendorFlags = ctx.meta[_META]
    return found


class DevicePluginCommand(GoFlags):
    """A command that knows the flags of the vendor that ``--vendor`` names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with answering():
            rest, ctx.meta[_META] = self._split(args, self.flags(ctx))
        return super().parse_args(ctx, rest)

    def _split(self, args: list[str], own: list[Flag]) -> tuple[list[str], VendorFlags]:
        broken: list[PluginRejected] = []
        with ending_at_interrupt():
            vendors = load_vendors(on_broken=broken.append)
        words = list(rewritten(args, own))
        name = _vendor_of(words, own)
        vendor = _vendor_named(vendors, name, broken) if name else None
        options = _options(vendor, own) if vendor else []
        flags = {flag: option for option in options for flag in option.flags}
        words = list(rewritten(args, [*own, *map(_as_flag, flags, flags.values())]))
        rest, given = split_options(words, own, flags)
        for other in vendors.values():
            if other is not vendor:
                _refuse_foreign(rest, other, [*own, *map(_as_flag, flags, flags.values())])
        return rest, VendorFlags(vendor=vendor, options=options, given=given)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        found = vendor_flags(ctx)
        if found.vendor is None:
            with formatter.section("Options of a vendor"):
                formatter.write_text("They are shown with --vendor, for example --vendor nvidia.")
            return
        rows = [_help_row(option) for option in found.options]
        if rows:
            with formatter.section(f"Options of vendor {found.vendor.profile.key}"):
                formatter.write_dl(rows)


def _vendor_named(vendors: Vendors, name: str, broken: Sequence[PluginRejected]) -> Vendor:
    """The vendor of this name.

    Raises:
        PluginRejected: no plugin has it, and a plugin that cannot be used may be the one.
    """
    if broken and name.lower() not in map(str.lower, vendors):
        raise broken[0]
    return vendor_named(vendors, name)


def _options(vendor: Vendor, own: Iterable[Flag]) -> Sequence[NodeOption]:
    """The vendor's options.

    Raises:
        PluginRejected: an option has the name of one of the agent's.
    """
    options = vendor.node_options()
    agents = {f"--{flag.name}" for flag in own}
    for flag in (flag for option in options for flag in option.flags):
        if flag in agents:
            raise PluginRejected(
                f"vendor {vendor.profile.key} of {vendor.distribution} declares the option "
                f"{flag}, which is the agent's own; repair or uninstall {vendor.distribution}"
            )
    return options


def _vendor_of(words: Sequence[str], own: Iterable[Flag]) -> str:
    """The vendor's name, read before everything else: flag, variable or file; or empty."""
    _, given = split_options(words, own, dict.fromkeys(("--vendor", "--config"), _TEXT))
    config = given.get("--config")
    if name := given.get("--vendor"):
        return name
    source = AgentSource(file=Path(config) if config else None, environment=os.environ)
    written = source.written().get("vendor")
    return str(written.value) if written else ""


_TEXT = NodeOption(section="", key="", help="")


def split_options(
    words: Sequence[str], own: Iterable[Flag], options: Mapping[str, NodeOption]
) -> tuple[list[str], dict[str, str]]:
    """A command line without these options, and their values by each option's first flag.

    A list may be given several times; of other options the last value counts.

    Raises:
        ConfigError: an option at the end has no value.
    """
    values = {f"--{flag.name}" for flag in own if not flag.switch}
    rest: list[str] = []
    given: dict[str, str] = {}
    left = iter(words)
    for word in left:
        name, equals, text = word.partition("=")
        positive = name.replace("--no-", "--", 1)
        option = options.get(name) or options.get(positive)
        if word == "--":
            rest += [word, *left]
        elif option is None:
            rest.append(word)
            if word in values:
                rest += [value for value in (next(left, None),) if value is not None]
        elif name not in options:
            given[_key(option, positive)] = "false"
        elif option.kind is OptionKind.SWITCH:
            given[_key(option, name)] = text if equals else "true"
        else:
            value = text if equals else next(left, None)
            if value is None:
                raise ConfigError(f"{name} has no value; write {name}=VALUE")
            key = _key(option, name)
            several = option.kind is OptionKind.LIST and key in given
            given[key] = f"{given[key]},{value}" if several else value
    return rest, given


def _key(option: NodeOption, flag: str) -> str:
    return option.flags[0] if option.flags else flag


def _refuse_foreign(words: Sequence[str], other: Vendor, known: Iterable[Flag]) -> None:
    """Refuse options of another vendor.

    Raises:
        ConfigError: names the option and its vendor.
    """
    theirs = {flag: option for option in other.node_options() for flag in option.flags}
    for flag in {f"--{flag.name}" for flag in known} & theirs.keys():
        del theirs[flag]
    foreign = list(rewritten(words, map(_as_flag, theirs, theirs.values())))
    _, given = split_options(foreign, known, theirs)
    for flag in given:
        raise ConfigError(
            f"{flag} is an option of vendor {other.profile.key} ({other.distribution}); leave it "
            f"out, or serve that vendor with --vendor {other.profile.key.lower()}"
        )


def _as_flag(flag: str, option: NodeOption) -> Flag:
    return Flag(name=flag.removeprefix("--"), switch=option.kind is OptionKind.SWITCH)


def _help_row(option: NodeOption) -> tuple[str, str]:
    names = ", ".join(option.flags or option.variables)
    if option.flags and option.kind is not OptionKind.SWITCH:
        names += f" {'|'.join(option.choices) or option.kind.name}"
    text = option.help
    if option.flags and option.variables:
        text += f" Variable: {', '.join(option.variables)}."
    if option.default:
        text += f" Default: {option.default}."
    return names, text
