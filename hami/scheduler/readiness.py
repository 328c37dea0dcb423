"""Whether a start is over: the service serves from then on, whatever it waits for later."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Readiness:
    """Asked by probes and by every request; the first answer without anything missing stands.

    A pod that is seen a moment later has a signature to verify, and must not take it back.
    """

    def __init__(
        self, awaited: Callable[[], Sequence[str]], begins: Callable[[], None] = lambda: None
    ) -> None:
        """``awaited``: what is not there yet. ``begins`` is called before anybody is served."""
        self._awaited = awaited
        self._begins = begins
        self.complete = False

    def missing(self) -> Sequence[str]:
        """What the start still waits for."""
        if self.complete:
            return ()
        if awaited := self._awaited():
            return awaited
        self._begins()
        self.complete = True
        return ()
