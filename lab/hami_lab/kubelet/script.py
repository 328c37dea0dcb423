"""How long a simulated pod runs and how it ends, from its annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hami.domain.errors import shortened
from hami.durations import seconds_of

DURATION = "hami.io/sim-duration"
EXIT_CODE = "hami.io/sim-exit-code"
INIT_DURATION = "hami.io/sim-init-duration"
INIT_EXIT_CODE = "hami.io/sim-init-exit-code"
STOP_DURATION = "hami.io/sim-stop-duration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Seconds and exit codes; each app container runs ``duration``, None: until it is stopped.

    Each plain init container runs ``init_duration``. A container that is told to stop takes
    ``stop_duration``, but no longer than the grace period.
    """

    duration: float | None = None
    exit_code: int = 0
    init_duration: float = 0.0
    init_exit_code: int = 0
    stop_duration: float = 0.0


@dataclass(frozen=True, slots=True)
class BadScript:
    """An annotation that cannot be read; the text names it, its value and the remedy."""

    text: str


def read_script(annotations: Mapping[str, str]) -> Script | BadScript:
    """What the annotations say; absent ones mean the defaults."""
    found: dict[str, float] = {}
    for key in (DURATION, INIT_DURATION, STOP_DURATION):
        if (text := annotations.get(key)) is not None:
            try:
                found[key] = seconds_of(text)
            except ValueError as error:
                return BadScript(f"annotation {key}: {shortened(text)!r} {error}")
    for key in (EXIT_CODE, INIT_EXIT_CODE):
        if (text := annotations.get(key)) is not None:
            if not (text.isascii() and text.isdigit() and len(text) < 4 and int(text) < 256):
                return BadScript(
                    f"annotation {key}: {shortened(text)!r} is no exit code; write 0 to 255"
                )
            found[key] = int(text)
    return Script(
        duration=found.get(DURATION),
        exit_code=int(found.get(EXIT_CODE, 0)),
        init_duration=found.get(INIT_DURATION, 0.0),
        init_exit_code=int(found.get(INIT_EXIT_CODE, 0)),
        stop_duration=found.get(STOP_DURATION, 0.0),
    )
