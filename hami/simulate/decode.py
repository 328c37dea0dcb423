"""A manifest's plain values into the lean structs, or one error that says where it is wrong.

As strict as the API server in the fields that we read: an annotation that YAML reads as a boolean
is refused, a number where a quantity belongs becomes its text, null means absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from hami.domain.errors import ConfigError, shortened
from hami.domain.kubernetes import quantity
from hami.simulate.documents import Document

T = TypeVar("T")

_QUANTITIES = frozenset(
    {"limits", "requests", "allocatable", "capacity", "hard", "used", "overhead"}
)
_TEXTS = frozenset({"annotations", "labels", "nodeSelector"})
_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")


def decode(document: Document, owner: str, type_: type[T]) -> T:
    """``owner`` names the object in messages (``Pod ml/train``).

    Raises:
        ConfigError: a field has the wrong type; names file, object, field and value.
    """
    tree = _clean(document, owner, document.value, "")
    try:
        return msgspec.convert(tree, type_)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at ")
        raise _wrong_type(document, owner, tree, problem, where.strip("`")) from error
    except (ValueError, OverflowError, TypeError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{document.place}: {owner} cannot be read: {error}") from error


def check_quantities(
    document: Document, owner: str, field: str, quantities: Mapping[str, str] | None
) -> None:
    """Refuse a quantity that the API server would refuse.

    Raises:
        ConfigError: a value is not a quantity, or is negative.
    """
    for name, text in (quantities or {}).items():
        read = quantity.parse(text)
        problem = ""
        if isinstance(read, quantity.BadQuantity):
            problem = read.problem
        elif read.value < 0:
            problem = "is negative"
        if problem:
            raise ConfigError(
                f"{document.place}: {owner}: {field}[{name}]: {shortened(text)!r} {problem}; "
                f"write a number such as 8, 3000 or 16Gi"
            )


def _clean(document: Document, owner: str, value: Any, path: str) -> Any:
    if isinstance(value, list):
        return [_clean(document, owner, v, f"{path}[{i}]") for i, v in enumerate(value)]
    if not isinstance(value, dict):
        return value
    cleaned: dict[str, Any] = {}
    for key, child in value.items():
        if child is None:
            continue
        at = f"{path}.{key}" if path else key
        if isinstance(child, dict) and key in _QUANTITIES:
            cleaned[key] = {
                name: _quantity_text(document, owner, f"{at}[{name}]", v)
                for name, v in child.items()
            }
        elif isinstance(child, dict) and key in _TEXTS:
            cleaned[key] = {
                name: _text(document, owner, f"{at}[{name}]", v) for name, v in child.items()
            }
        else:
            cleaned[key] = _clean(document, owner, child, at)
    return cleaned


def _quantity_text(document: Document, owner: str, path: str, value: Any) -> str:
    match value:
        case str():
            return value
        case bool() | None:
            pass
        case int():
            return str(value)
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case _:
            pass
    raise ConfigError(
        f"{document.place}: {owner}: {path} is {_shown(value)}; write a number such as 8, 3000 "
        f"or 16Gi"
    )


def _text(document: Document, owner: str, path: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    quoted = f'; write "{_shown(value)}", with quotes' if not _nested(value) else ""
    raise ConfigError(
        f"{document.place}: {owner}: {path} is {_shown(value)}, not a text; the API server "
        f"refuses it{quoted}"
    )


def _nested(value: Any) -> bool:
    return value is None or isinstance(value, (dict, list))


def _shown(value: Any) -> str:
    """The value as its author sees it in YAML."""
    match value:
        case None:
            return "empty"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            return shortened(str(value))


def _wrong_type(document: Document, owner: str, tree: Any, problem: str, where: str) -> ConfigError:
    field, value = _locate(tree, where.removeprefix("$"))
    said = problem.replace("`", "").replace("Expected", "expected", 1)
    return ConfigError(
        f"{document.place}: {owner}: {field or 'the object'} is {_shown(value)}: {said}"
    )


def _locate(tree: Any, path: str) -> tuple[str, Any]:
    """The field that a msgspec path means, and the field's value."""
    field, value = "", tree
    for step in _steps(path):
        if isinstance(value, dict) and step in value:
            field, value = f"{field}.{step}" if field else step, value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            field, value = f"{field}[{step}]", value[int(step)]
        else:
            # "[...]" stands for some key of a mapping, and a missing field for itself.
            break
    return field, value


def _steps(path: str) -> Iterator[str]:
    for match in _STEP.finditer(path):
        yield match.group(1) or match.group(2)
