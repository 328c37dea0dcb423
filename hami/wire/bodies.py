"""Request bodies decoded into structs; a body that cannot be read is a value for the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

T = TypeVar("T")

NULL = msgspec.Raw(b"null")
"""The default of a field that is kept undecoded: absent and ``null`` are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadBody:
    """The body is not an ``expected``; ``problem`` says where and why."""

    expected: str
    problem: str

    def __str__(self) -> str:
        return f"the body is no {self.expected}: {self.problem}"


def decode_body(body: bytes, type: type[T]) -> T | BadBody:
    """The whole body as one JSON value of this struct; unknown keys are ignored."""
    try:
        return msgspec.json.decode(body, type=type)
    except (msgspec.DecodeError, UnicodeError) as error:
        return BadBody(expected=type.__name__, problem=str(error))
    except RecursionError:
        return BadBody(expected=type.__name__, problem="JSON nested too deeply")
