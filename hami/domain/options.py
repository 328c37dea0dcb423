"""An option of the node agent that a vendor declares: a flag, its variables, and where it goes."""

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
    """Texts separated by commas; the flag may also be given several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOption:
    """``config[section][key]`` gets the value when a flag or a variable is given.

    ``flags`` begin with two dashes, the first is the documented one; ``variables`` are names of
    the environment, the first one set counts. An option may have only one of the two. ``default``
    is a text for people; what a missing key means is the vendor's business.
    """

    section: str
    key: str
    help: str
    flags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    kind: OptionKind = OptionKind.TEXT
    choices: tuple[str, ...] = ()
    default: str = ""
