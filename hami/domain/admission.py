"""What a vendor changes in a container when its pod is created, or why it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What to set in a container; a variable or annotation that is already so stays as it is.

    ``limits`` and ``requests`` are quantity texts by resource name. ``runtime_class`` counts only
    for a pod that has none. An empty Admission changes nothing.
    """

    env: Mapping[str, str] = field(default_factory=_nothing)
    limits: Mapping[str, str] = field(default_factory=_nothing)
    requests: Mapping[str, str] = field(default_factory=_nothing)
    pod_annotations: Mapping[str, str] = field(default_factory=_nothing)
    runtime_class: str | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """The vendor refuses the pod at creation, with this text for the pod's author."""

    text: str

    def __str__(self) -> str:
        return self.text
