"""An option of the node agent that a vendor declares: a flag, its variables, and its config key."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class OptionKind(Enum):
    """How an option's text is read."""

    TEXT = "text"
    SWITCH = "switch"
    INTEGER = "integer"
    NUMBER = "number"
    LIST = "list"
    """Texts separated by commas; the flag may be given several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOption:
    """One option: ``config[section][key]`` gets the value that a flag or a variable gives.

    ``flags`` begin with two dashes; the first is the documented one. ``variables`` are environment
    variables; the first that is set counts. An option may have flags alone or variables alone.
    ``default`` is a text for people; the vendor decides what a missing key means.
    """

    section: str
    key: str
    help: str
    flags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    kind: OptionKind = OptionKind.TEXT
    choices: tuple[str, ...] = ()
    default: str = ""
