"""A vendor's options: their texts read, and their values put into the device configuration.

A flag precedes a variable, and both precede what the device configuration says: they are this
process's. What an entry of the per-node configuration says comes last; the vendor reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hami.domain.errors import ConfigError, shortened
from hami.domain.options import NodeOption, OptionKind

_TRUE = frozenset({"true", "t", "1", "yes", "on"})
_FALSE = frozenset({"false", "f", "0", "no", "off"})

_REMEDIES = MappingProxyType(
    {
        OptionKind.SWITCH: "write true or false",
        OptionKind.INTEGER: "write a whole number",
        OptionKind.NUMBER: "write a number",
    }
)

Flags = Mapping[str, str]
"""The text of each flag that was given, by the flag's first spelling."""


def with_options(
    devices: Mapping[str, Any],
    options: Sequence[NodeOption],
    flags: Flags,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """The device configuration with the values of flags and variables in its sections.

    Raises:
        ConfigError: a text cannot be read as its option's kind; names the flag or variable.
    """
    sections = dict(devices)
    for option in options:
        found = _given(option, flags, environment)
        if found is None:
            continue
        place, text = found
        value = read_option(option, text, place)
        section = sections.get(option.section) or {}
        if not isinstance(section, Mapping):
            raise ConfigError(
                f"device configuration: {option.section} is {shortened(repr(section))}, so that "
                f"{place} has no place; write keys and values below it"
            )
        sections[option.section] = {**section, option.key: value}
    return sections


def _given(
    option: NodeOption, flags: Flags, environment: Mapping[str, str]
) -> tuple[str, str] | None:
    """Where the option's text stands, and the text."""
    if option.flags and option.flags[0] in flags:
        return option.flags[0], flags[option.flags[0]]
    for variable in option.variables:
        # An empty variable is how a manifest says that there is nothing.
        if text := environment.get(variable):
            return variable, text
    return None


def read_option(option: NodeOption, text: str, place: str) -> Any:
    """A text as the option's kind: str, bool, int, float or a list of str.

    Raises:
        ConfigError: it is none; ``place`` is the flag or the variable.
    """
    text = text.strip()
    value: Any
    match option.kind:
        case OptionKind.TEXT:
            value = text
        case OptionKind.SWITCH:
            value = _switch(text)
        case OptionKind.INTEGER | OptionKind.NUMBER:
            value = _number(option.kind, text)
        case OptionKind.LIST:
            value = [part.strip() for part in text.split(",") if part.strip()]
    if value is None:
        raise ConfigError(f"{place} {shortened(text)!r}: {_REMEDIES[option.kind]}")
    for chosen in value if isinstance(value, list) else [value]:
        if option.choices and chosen not in option.choices:
            raise ConfigError(
                f"{place} {shortened(str(chosen))!r}: write one of {', '.join(option.choices)}"
            )
    return value


def _switch(text: str) -> bool | None:
    word = text.lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _number(kind: OptionKind, text: str) -> int | float | None:
    try:
        value = int(text) if kind is OptionKind.INTEGER else float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
