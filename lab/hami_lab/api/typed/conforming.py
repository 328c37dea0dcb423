"""Whether a body has the types of its kind, before anything looks at its values.

kube-apiserver answers 400 to a wrong type (422 in a patch). In what has the right types, a field
that is null is not set, a null in a list or a map is its type's zero value, and quantities are
written in their canonical form. :func:`conform` does the same. It keeps fields that a type does not
have as they came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, assert_never

from hami_lab.api.typed.quantities import NotAQuantity, canonical
from hami_lab.api.typed.types import CUSTOM, RECORDS, Entries, Items, Leaf, Record, Type

Json = dict[str, Any]
Check = Callable[[Any], Any]
"""From a value to what is stored of it; raises :class:`_Mismatch`. Never called with None."""

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
_ZONE = r"(Z|[+-]\d\d:\d\d)"
_IS_TIME = re.compile(rf"{_TIME}(\.\d+)?{_ZONE}", re.ASCII).fullmatch
_IS_MICROTIME = re.compile(rf"{_TIME}\.\d{{6}}{_ZONE}", re.ASCII).fullmatch


class WrongType(ValueError):
    """A field has another type than its kind says."""


def conform(kind: Record, body: Json) -> None:
    """Check the body, take its nulls out, and rewrite its quantities in place.

    Raises:
        WrongType: the first field that has a wrong type, in the API server's words.
    """
    try:
        _RECORDS[kind.name](body)
    except _Mismatch as found:
        raise WrongType(str(found)) from found
    except NotAQuantity as error:
        raise WrongType(str(error)) from error


class _Mismatch(Exception):
    """A value of another type; each record on the way out adds its field."""

    def __init__(self, value: Any, go_type: str) -> None:
        super().__init__()
        self.value = value
        self.go_type = go_type
        self.owner = ""
        self.path: list[str] = []

    def __str__(self) -> str:
        sort = "number" if _is_number(self.value) else _SORTS[type(self.value)]
        path = ".".join([self.owner, *reversed(self.path)])
        return f"json: cannot unmarshal {sort} into Go struct field {path} of type {self.go_type}"


_SORTS: Mapping[type, str] = MappingProxyType(
    {str: "string", bool: "bool", dict: "object", list: "array"}
)


def _record(type_: Record, checks: Mapping[str, Check]) -> Check:
    """``checks`` by field; they may not be there yet."""

    def check(body: Any) -> Any:
        if type(body) is not dict:
            raise _Mismatch(body, _go_name(type_))
        nulls, field = False, ""
        try:
            for field, value in body.items():
                if value is None:
                    nulls = True
                elif (of := checks.get(field)) is not None:
                    body[field] = of(value)
        except _Mismatch as found:
            found.owner = found.owner or type_.name.rpartition(".")[2]
            found.path.append(field)
            raise
        return drop_nulls(body) if nulls else body

    return check


def _entries(type_: Entries, of: Check) -> Check:
    def check(body: Any) -> Any:
        if type(body) is not dict:
            raise _Mismatch(body, _go_name(type_))
        for name, value in body.items():
            body[name] = _zero(type_.value) if value is None else of(value)
        return body

    return check


def _items(type_: Items, of: Check) -> Check:
    def check(body: Any) -> Any:
        if type(body) is not list:
            raise _Mismatch(body, _go_name(type_))
        body[:] = [_zero(type_.item) if value is None else of(value) for value in body]
        return body

    return check


def _zero(type_: Type) -> Any:
    match type_:
        case Leaf(name):
            return _ZEROS.get(name)
        case Record() | Entries():
            return {}
        case Items():
            return []
        case _:
            assert_never(type_)


_ZEROS: Mapping[str, Any] = MappingProxyType(
    {
        "text": "", "bool": False, "int32": 0, "int64": 0, "number": 0, "int or text": 0,
        "quantity": "0",
    }
)  # fmt: skip


def drop_nulls(body: Json) -> Json:
    """A null is a field that is not set; ``body`` itself is changed."""
    for field in [field for field, value in body.items() if value is None]:
        del body[field]
    return body


def _leaf(fits: Callable[[Any], Any], go_type: str) -> Check:
    def check(value: Any) -> Any:
        if not fits(value):
            raise _Mismatch(value, go_type)
        return value

    return check


def _text(value: Any) -> Any:
    if type(value) is not str:
        raise _Mismatch(value, "string")
    return value


def _is_int(bits: int) -> Callable[[Any], bool]:
    most = 2 ** (bits - 1)
    return lambda value: type(value) is int and -most <= value < most  # 3.0 is none for Go.


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


_LEAVES: Mapping[str, Check] = MappingProxyType(
    {
        "any": lambda value: value,
        "text": _text,
        "bool": _leaf(lambda value: type(value) is bool, "bool"),
        "int32": _leaf(_is_int(32), "int32"),
        "int64": _leaf(_is_int(64), "int64"),
        "number": _leaf(_is_number, "float64"),
        "int or text": _leaf(
            lambda value: type(value) is str or _is_int(32)(value), "intstr.IntOrString"
        ),
        "quantity": canonical,
        "time": _leaf(lambda value: type(value) is str and _IS_TIME(value), "v1.Time"),
        "microtime": _leaf(
            lambda value: type(value) is str and _IS_MICROTIME(value), "v1.MicroTime"
        ),
    }
)


def _go_name(type_: Type) -> str:
    """As Go spells it in its errors."""
    match type_:
        case Leaf(name):
            return _GO_LEAVES.get(name, name)
        case Record(name):
            return ".".join(name.split(".")[-2:])
        case Entries(of):
            return f"map[string]{_go_name(of)}"
        case Items(of):
            return f"[]{_go_name(of)}"
        case _:
            assert_never(type_)


_GO_LEAVES: Mapping[str, str] = MappingProxyType(
    {"text": "string", "quantity": "resource.Quantity", "time": "v1.Time"}
)


def _checks() -> Mapping[str, Check]:
    """Of every record, by its name."""
    # Records refer to each other in circles: what their fields are follows when all are there.
    fields: dict[str, dict[str, Check]] = {name: {} for name in (*RECORDS, CUSTOM.name)}
    records = {record.name: record for record in (*RECORDS.values(), CUSTOM)}
    found = {name: _record(record, fields[name]) for name, record in records.items()}

    def of(type_: Type) -> Check:
        match type_:
            case Leaf(name):
                return _LEAVES[name]
            case Record(name):
                return found[name]
            case Entries(value):
                return _entries(type_, of(value))
            case Items(item):
                return _items(type_, of(item))
            case _:
                assert_never(type_)

    for name, record in records.items():
        fields[name].update({field: of(type_) for field, type_ in record.fields.items()})
    return MappingProxyType(found)


_RECORDS = _checks()
