"""Vendor-only data, which the core carries and does not understand.

A vendor makes one :class:`ExtraKey` per kind of value and keeps it; code that has the key can read
the value. The key's codec lets the core print, sign and compare it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ExtraKey(Generic[T]):
    """The name of one kind of vendor value, and how the value becomes JSON.

    ``type`` is a frozen dataclass or msgspec Struct (or a plain int, str, tuple of them): its field
    names are the JSON keys. ``name`` is unique by convention: ``nvidia.mig``.
    """

    name: str
    type: type[T]

    def encode(self, value: T) -> Any:
        """The value as plain JSON types."""
        return msgspec.to_builtins(value)

    def decode(self, data: Any) -> T:
        """The inverse of :meth:`encode`.

        Raises:
            msgspec.ValidationError: ``data`` does not have the shape of ``type``.
        """
        return msgspec.convert(data, self.type)


@dataclass(frozen=True, slots=True)
class Extra:
    """An immutable set of vendor values.

    Two sets are equal when they hold equal values under equal keys.
    """

    _items: tuple[tuple[ExtraKey[Any], Any], ...] = ()

    def get(self, key: ExtraKey[T]) -> T | None:
        for held, value in self._items:
            if held == key:
                return value  # type: ignore[no-any-return]
        return None

    def with_(self, key: ExtraKey[T], value: T) -> Extra:
        """A copy with ``value`` under ``key``, sorted by the keys' names."""
        kept = [item for item in self._items if item[0] != key]
        return Extra(tuple(sorted([*kept, (key, value)], key=lambda item: item[0].name)))

    def items(self) -> tuple[tuple[ExtraKey[Any], Any], ...]:
        """Every key with its value, sorted by the keys' names."""
        return self._items

    def encode(self) -> Mapping[str, Any]:
        """``{key name: JSON value}``; empty when the set is."""
        return {key.name: key.encode(value) for key, value in self._items}

    def __bool__(self) -> bool:
        return bool(self._items)


NO_EXTRA = Extra()
