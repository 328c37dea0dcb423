"""Faults on demand: slow, refused, dropped calls, and watches that lie the way real ones do."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hami_lab.api.objects.request import Request

Drop = Literal["", "before", "after"]


@dataclass(slots=True, kw_only=True, eq=False)
class Fault:
    """What goes wrong, with which calls, and how often.

    Empty ``verb``, ``resource``, ``subresource`` (None), ``name`` and ``user_agent`` match all.
    ``times``: how many calls it hits, None: all; ``probability`` of each.

    ``latency`` in seconds before the call is carried out. ``status``: answered instead of being
    carried out. ``drop``: the connection is closed ``before`` the call is carried out, or
    ``after`` it was, without an answer. ``cut_after``: a watch ends after so many events.
    ``duplicate``: a watch sends every event twice. ``reorder``: it sends each batch of events
    backwards. ``hits`` counts.
    """

    verb: str = ""
    resource: str = ""
    subresource: str | None = None
    name: str = ""
    user_agent: str = ""
    matches: Callable[[Request], bool] | None = None
    times: int | None = None
    probability: float = 1.0
    latency: float = 0.0
    status: int = 0
    reason: str = ""
    retry_after: int | None = None
    drop: Drop = ""
    cut_after: int | None = None
    duplicate: bool = False
    reorder: bool = False
    hits: int = 0

    def concerns(self, request: Request) -> bool:
        return (
            self.verb in ("", request.verb)
            and self.resource in ("", request.kind.plural, request.kind.resource)
            and self.subresource in (None, request.subresource)
            and self.name in ("", request.name)
            and request.user_agent.startswith(self.user_agent)
            and (self.matches is None or self.matches(request))
        )


class Faults:
    """The faults in force. ``seed`` decides what happens with a probability."""

    def __init__(self, seed: int = 0) -> None:
        self._faults: list[Fault] = []
        self._random = random.Random(seed)  # noqa: S311
        self.on_cut: list[Callable[[str], None]] = []

    def add(self, fault: Fault) -> Fault:
        """Put a fault in force; its ``hits`` tells how often it struck."""
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        self._faults.remove(fault)

    def clear(self) -> None:
        self._faults.clear()

    def cut_watches(self, resource: str = "") -> None:
        """End the watches that are open now, all or those of one resource."""
        for cut in self.on_cut:
            cut(resource)

    def striking(self, request: Request) -> list[Fault]:
        """The faults that this call meets; each counts as a hit."""
        found = []
        for fault in self._faults:
            if fault.times is not None and fault.hits >= fault.times:
                continue
            if not fault.concerns(request):
                continue
            if fault.probability < 1.0 and self._random.random() >= fault.probability:
                continue
            fault.hits += 1
            found.append(fault)
        return found
