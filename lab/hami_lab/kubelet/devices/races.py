"""What goes wrong between a real kubelet and its plugins now and then, to be switched on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


def _open() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


@dataclass(slots=True, kw_only=True)
class Races:
    """Counters count down; a gate holds things up while it is cleared.

    ``stale_checkpoints``: after so many of the next writes an older snapshot overwrites the file,
    until it is written again. ``forgotten_allocations``: so many of the next Allocates are
    forgotten while they are under way, as PodResources.List makes kubelet do, so that their ids go
    to the next pod too. ``stream_end``: kubelet notices that a ListAndWatch stream has ended, and
    disconnects whoever has the resource then. ``registration``: kubelet answers Register.
    """

    stale_checkpoints: int = 0
    forgotten_allocations: int = 0
    stream_end: asyncio.Event = field(default_factory=_open)
    registration: asyncio.Event = field(default_factory=_open)

    def forgets(self) -> bool:
        """Whether this Allocate is one of the forgotten."""
        happens = self.forgotten_allocations > 0
        self.forgotten_allocations -= happens
        return happens

    def goes_stale(self) -> bool:
        """Whether this write is one of the overwritten."""
        happens = self.stale_checkpoints > 0
        self.stale_checkpoints -= happens
        return happens
