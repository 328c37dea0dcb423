"""The error tree, and the value that says what is wrong with a text from outside.

HamiError
├── ConfigError        a file or flag must be changed; the command exits with 2
├── PluginRejected     a plugin must be installed, removed or repaired; the command exits with 2
└── VendorFailed       a plugin's hook failed on the node; the agent tries again

Not here: "the pod does not fit" (:class:`~hami.domain.reasons.Rejected`) and "this annotation
cannot be read" (:class:`Malformed`). Those are answers, not errors.
"""

from __future__ import annotations

from dataclasses import dataclass


class HamiError(Exception):
    """Base of all errors. The message names the thing, the value and the remedy."""


class ConfigError(HamiError):
    """A configuration, manifest or flag is unusable; its author must act."""


class PluginRejected(HamiError):
    """A plugin cannot be used; the person who installed it must act."""


class VendorFailed(HamiError):
    """A vendor's hook gave no answer; whoever asked keeps what it had and tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """A text that cannot be read as what it should be.

    ``annotation`` is the annotation's key. ``position`` says where in its value (``device 2,
    memory``; ``byte 17``). ``text`` is the offending part, shortened, and ``problem`` says what is
    wrong with it.
    """

    annotation: str
    position: str
    text: str
    problem: str

    def __str__(self) -> str:
        where = f", {self.position}" if self.position else ""
        return f"annotation {self.annotation}{where}: {self.problem}: {shortened(self.text)!r}"


def shortened(text: str, limit: int = 80) -> str:
    """At most ``limit`` characters of ``text``, for messages: a tenant may have written it."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
