"""One container of a simulated pod: waiting, running or terminated, and its status as kubelet's."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, assert_never

from hami.domain.allocations import ContainerKind

FIRST_BACKOFF, MOST_BACKOFF = 10.0, 300.0
"""Seconds that kubelet waits before it starts a container again; doubled each time."""
INITIALIZING = "PodInitializing"


def timestamp(seconds: float) -> str:
    """Unix time as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """``at``: when it may start; None: when others have finished."""

    reason: str
    message: str = ""
    at: float | None = None

    def as_json(self) -> dict[str, Any]:
        return _waiting(self.reason, self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """Its turn has come; whoever starts it has not done so yet. It still shows why it waited."""

    reason: str = "ContainerCreating"
    message: str = ""

    def as_json(self) -> dict[str, Any]:
        return _waiting(self.reason, self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """``until``: when it ends by itself; None: never."""

    since: float
    until: float | None
    code: int

    def as_json(self) -> dict[str, Any]:
        return {"running": {"startedAt": timestamp(self.since)}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminated:
    code: int
    since: float
    at: float

    def as_json(self) -> dict[str, Any]:
        return {
            "terminated": {
                "exitCode": self.code,
                "reason": "Completed" if self.code == 0 else "Error",
                "startedAt": timestamp(self.since),
                "finishedAt": timestamp(self.at),
            }
        }


State = Waiting | Starting | Running | Terminated


def _waiting(reason: str, message: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


@dataclass(slots=True, kw_only=True)
class ContainerRun:
    """A container and where it stands; times are Unix seconds."""

    name: str
    image: str
    kind: ContainerKind
    id: str
    state: State = field(default_factory=lambda: Waiting(reason=INITIALIZING))
    last: Terminated | None = None
    restarts: int = 0

    @property
    def succeeded(self) -> bool:
        return isinstance(self.state, Terminated) and self.state.code == 0

    @property
    def failed(self) -> bool:
        return isinstance(self.state, Terminated) and self.state.code != 0

    @property
    def next_at(self) -> float | None:
        """When it changes by itself."""
        match self.state:
            case Waiting(at=at):
                return at
            case Running(until=until):
                return until
            case Starting() | Terminated():
                return None
            case never:
                assert_never(never)

    def call(self) -> None:
        """Its turn has come, and starting it is somebody else's doing."""
        if isinstance(self.state, Waiting) and self.state.reason != INITIALIZING:
            self.state = Starting(reason=self.state.reason, message=self.state.message)
        else:
            self.state = Starting()

    def start(self, now: float, duration: float | None, code: int) -> None:
        until = None if duration is None else now + duration
        self.state = Running(since=now, until=until, code=code)

    def end(self, now: float, code: int) -> None:
        """It runs no more; one that had not started never does."""
        match self.state:
            case Running(since=since):
                self.state = Terminated(code=code, since=since, at=now)
            case Waiting() | Starting():
                self.state = Terminated(code=code, since=now, at=now)
            case Terminated():
                pass
            case never:
                assert_never(never)

    def again(self, now: float, first: float = FIRST_BACKOFF) -> None:
        """Start it again after kubelet's back-off, which begins with ``first``."""
        if isinstance(self.state, Terminated):
            self.last = self.state
        delay = min(MOST_BACKOFF, first * 2.0 ** min(self.restarts, 10))
        self.restarts += 1
        self.state = Waiting(reason="CrashLoopBackOff", at=now + delay)

    def as_json(self) -> dict[str, Any]:
        """An entry of ``containerStatuses`` or ``initContainerStatuses``."""
        running = isinstance(self.state, Running)
        plain_init = self.kind is ContainerKind.INIT
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "containerID": "" if isinstance(self.state, Waiting | Starting) else self.id,
            "ready": self.succeeded if plain_init else running,
            "started": running and not plain_init,
            "restartCount": self.restarts,
            "state": self.state.as_json(),
            "lastState": self.last.as_json() if self.last else {},
        }
