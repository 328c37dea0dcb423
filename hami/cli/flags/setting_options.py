"""Command line options, made from a command's settings."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from hami.durations import go_duration
from hami.settings.model import key_of
from hami.settings.source import Command

ConfigFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Settings in YAML: flags without the dashes."),
]
PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Print the settings as they would be, and exit.")
]


def declared(function: Callable[..., None], made: Iterable[inspect.Parameter]) -> None:
    """Give ``function``, which takes ``**options``, these parameters for typer to read."""
    own = [
        p
        for p in inspect.signature(function, eval_str=True).parameters.values()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *made)]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}


def setting_parameters(command: Command[Any]) -> list[inspect.Parameter]:
    """A parameter for every setting that has a flag."""
    return [_parameter(command, field) for field in command.flag_fields]


def given_settings(command: Command[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among the options that were given, by field name."""
    return {n: options[n] for n in command.flag_fields if options.get(n) is not None}


def ignored_parameters(flags: Iterable[str], switches: frozenset[str]) -> list[inspect.Parameter]:
    """Hidden options for flags of other programs; :func:`given_ignored` finds them again."""
    made = []
    for flag in sorted(flags):
        switch = flag in switches
        option = typer.Option(*_spellings(flag, switch=switch), hidden=True)
        made.append(_keyword(_argument(flag), bool if switch else str, option))
    return made


def given_ignored(flags: Iterable[str], options: Mapping[str, Any]) -> dict[str, str]:
    """The hidden flags that were given, by name; a switch is ``true`` or ``false``."""
    given = {flag: options.get(_argument(flag)) for flag in sorted(flags)}
    return {
        flag: str(value).lower() if isinstance(value, bool) else value
        for flag, value in given.items()
        if value is not None
    }


def _parameter(command: Command[Any], field: str) -> inspect.Parameter:
    info = command.model.model_fields[field]
    setting = command.setting_of(field)
    switch = bool in _types(info.annotation)
    spellings = [key_of(field), *setting.flags]
    option = typer.Option(
        *(text for flag in spellings for text in _spellings(flag, switch=switch)),
        help=f"{info.description}{_default(info.default)}",
        metavar=None if switch else setting.metavar or _metavar(field, info.annotation),
        show_default=False,
    )
    return _keyword(field, bool if switch else str, option)


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


def _types(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
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
    if value in (None, "", ()):
        return ""
    if isinstance(value, bool):
        return f" Default: {'on' if value else 'off'}."
    shown = go_duration(value) if isinstance(value, float) and value else value
    if isinstance(value, tuple):
        shown = ",".join(map(str, value))
    return f" Default: {shown}."
