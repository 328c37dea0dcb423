"""The options of ``hami scheduler``, made from the settings themselves, and HAMi's own flags."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperCommand

from hami.scheduler.config import SchedulerConfig
from hami.scheduler.config_source import FLAG_FIELDS, key_of
from hami.scheduler.durations import go_duration
from hami.scheduler.hami_flags import RESOURCE_NAMES, SWITCHES, WITHOUT_EFFECT

FOREIGN = tuple(sorted(RESOURCE_NAMES.keys() | WITHOUT_EFFECT))
_BOOLEANS = frozenset({"true", "t", "1", "yes", "false", "f", "0", "no"})
_TRUE = frozenset({"true", "t", "1", "yes"})
_SHORT = re.compile(r"-v(=?\d+)?")


class GoFlags(TyperCommand):
    """Reads flags as Go programs write them too.

    ``--leader-elect=true``, ``--http_bind`` with an underscore, one dash before a long name, and
    ``-v=4`` of klog.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        # The boxes of rich cut long names off.
        super().__init__(*args, **(options | {"rich_markup_mode": None}))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(rewritten(args)))


def rewritten(arguments: list[str]) -> Iterator[str]:
    """The same flags as this command declares them."""
    switches = {key_of(n) for n in FLAG_FIELDS if _is_switch(n)} | SWITCHES
    known = {key_of(name) for name in FLAG_FIELDS} | set(FOREIGN)
    for argument in arguments:
        if _SHORT.fullmatch(argument):
            yield from _verbosity(argument)
            continue
        name, equals, value = argument.partition("=")
        bare = name.lstrip("-").replace("_", "-")
        if not name.startswith("-") or bare not in known:
            yield argument
        elif bare not in switches or (equals and value.lower() not in _BOOLEANS):
            yield f"--{bare}{equals}{value}"
        elif not equals:
            yield f"--{bare}"
        else:
            yield f"--{bare}" if value.lower() in _TRUE else f"--no-{bare}"


def _verbosity(argument: str) -> Iterator[str]:
    level = argument.removeprefix("-v").removeprefix("=")
    yield f"--v={level}" if level else "--v"


def declare(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command, which takes ``**options``, a parameter for every setting."""
    own = [
        p
        for p in inspect.signature(command, eval_str=True).parameters.values()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    made = [*map(_parameter, FLAG_FIELDS), *map(_foreign_parameter, FOREIGN)]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *made)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """What was given: settings by field name, HAMi's other flags by flag name."""
    given = {name: value for name, value in options.items() if value is not None}
    foreign = {
        flag: str(given[_argument(flag)]).lower() if flag in SWITCHES else given[_argument(flag)]
        for flag in FOREIGN
        if _argument(flag) in given
    }
    return {name: given[name] for name in FLAG_FIELDS if name in given}, foreign


def _parameter(field: str) -> inspect.Parameter:
    info = SchedulerConfig.model_fields[field]
    option = typer.Option(
        *_spellings(key_of(field), switch=_is_switch(field)),
        help=f"{info.description}{_default(info.default)}",
        metavar=None if _is_switch(field) else _metavar(field, info.annotation),
        show_default=False,
    )
    return _keyword(field, bool if _is_switch(field) else str, option)


def _foreign_parameter(flag: str) -> inspect.Parameter:
    switch = flag in SWITCHES
    option = typer.Option(*_spellings(flag, switch=switch), hidden=True)
    return _keyword(_argument(flag), bool if switch else str, option)


def _keyword(name: str, type: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[type | None, option],
    )


def _argument(flag: str) -> str:
    return f"hami_{flag.replace('-', '_')}"


def _spellings(flag: str, *, switch: bool) -> tuple[str, ...]:
    return (f"--{flag}/--no-{flag}",) if switch else (f"--{flag}",)


def _is_switch(field: str) -> bool:
    return bool in _types(SchedulerConfig.model_fields[field].annotation)


def _types(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the type alone."""
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def _metavar(field: str, annotation: Any) -> str:
    for type in _types(annotation):
        if get_origin(type) is Literal:
            return "|".join(map(str, get_args(type)))
        if type is Path:
            return "FILE"
        if type is float and field != "kube_qps":
            return "DURATION"
        if type in (int, float):
            return "NUMBER"
    return "ADDRESS" if "bind" in field else "TEXT"


def _default(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return f" Default: {'on' if value else 'off'}."
    shown = go_duration(value) if isinstance(value, float) and value else value
    return f" Default: {shown}."
