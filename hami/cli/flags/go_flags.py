"""Flags in the spelling of Go programs as well, for command lines that were written for HAMi.

``--leader-elect=true``, ``--http_bind`` with an underscore, one dash before a long name, and
``-v=4`` of klog.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from typer.core import TyperCommand

from hami.cli.terminal.messages import answering
from hami.domain.errors import ConfigError, shortened

_TRUE = frozenset({"true", "t", "1", "yes", "on"})
_BOOLEANS = _TRUE | {"false", "f", "0", "no", "off"}
_SHORT = re.compile(r"-v(=?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag that a command declares; the name has no dashes; a switch needs no value."""

    name: str
    switch: bool = False


class GoFlags(TyperCommand):
    """A command that reads flags in either way."""

    def __init__(self, *args: Any, **options: Any) -> None:
        # The boxes of rich cut long names off.
        super().__init__(*args, **(options | {"rich_markup_mode": None}))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        flags = self.flags(ctx)
        words = list(rewritten(args, flags))
        with answering():
            check_switches(words, flags)
        return super().parse_args(ctx, words)

    def flags(self, ctx: Any) -> list[Flag]:
        """Every long flag that the command declares."""
        return [
            Flag(name=spelling.removeprefix("--"), switch=getattr(param, "is_flag", False))
            for param in self.get_params(ctx)
            if param.param_type_name == "option"
            for spelling in param.opts
            if spelling.startswith("--")
        ]


def rewritten(arguments: Sequence[str], flags: Iterable[Flag]) -> Iterator[str]:
    """The same words, with flags spelled as the command declares them."""
    switches = {flag.name: flag.switch for flag in flags}
    for argument in arguments:
        if _SHORT.fullmatch(argument):
            yield from _verbosity(argument)
            continue
        name, equals, value = argument.partition("=")
        bare = name.lstrip("-").replace("_", "-")
        if not name.startswith("-") or bare not in switches:
            yield argument
        elif not switches[bare] or (equals and value.lower() not in _BOOLEANS):
            yield f"--{bare}{equals}{value}"
        elif not equals:
            yield f"--{bare}"
        else:
            yield f"--{bare}" if value.lower() in _TRUE else f"--no-{bare}"


def check_switches(words: Sequence[str], flags: Iterable[Flag]) -> None:
    """Refuse a value of a switch that is neither yes nor no.

    Raises:
        ConfigError: names the flag and its value.
    """
    switches = {f"--{flag.name}" for flag in flags if flag.switch}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in switches:
            raise ConfigError(f"{name} {shortened(value)!r}: write true or false")


def _verbosity(argument: str) -> Iterator[str]:
    level = argument.removeprefix("-v").removeprefix("=")
    yield f"--v={level}" if level else "--v"
