"""A pod's life on its node, as kubelet leads it: a function of its spec, its script and the time.

Init containers run one after the other, sidecars are started on the way and stay, then all other
containers run together. Times are Unix seconds, handed in.

Where devices come from plugins, ``staged``, a pod has to be admitted first, and a container whose
turn has come is ``wanted`` until somebody says that it was started, or refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hami.domain.allocations import ContainerKind
from hami_lab.kubelet.container import (
    FIRST_BACKOFF,
    ContainerRun,
    Running,
    Starting,
    Terminated,
    Waiting,
    timestamp,
)
from hami_lab.kubelet.script import BadScript, Script, read_script
from hami_lab.live import LivePod

TERMINATED_BY_SIGTERM, TERMINATED_BY_SIGKILL = 143, 137
GRACE = 30
"""The API's default for ``terminationGracePeriodSeconds``."""


class Life:
    """One pod from its arrival on a node to its end.

    ``address`` is the pod's IP address, for its status; ``backoff`` the seconds before the first
    restart of a container.
    """

    def __init__(
        self,
        pod: LivePod,
        *,
        begin: float,
        address: str,
        staged: bool = False,
        backoff: float = FIRST_BACKOFF,
    ) -> None:
        self._staged = staged
        self._admitted = not staged
        self._backoff = backoff
        self._begin = begin
        self._address = address
        self._policy = pod.spec.restart_policy
        self._problem: tuple[str, str] | None = None
        self._transitions: dict[str, tuple[str, float]] = {}
        self._stopping: float | None = None
        self._over = False
        deadline = pod.spec.active_deadline_seconds
        self._deadline = None if deadline is None else begin + deadline
        self._containers = [
            ContainerRun(
                name=container.name,
                image=container.image,
                kind=kind,
                id=f"simulated://{pod.uid}/{container.name}",
            )
            for container, kind in pod.each_live_container()
        ]
        script = read_script(pod.annotations)
        self._script = script if isinstance(script, Script) else Script()
        if isinstance(script, BadScript):
            self._fail("BadSimulation", script.text, begin, TERMINATED_BY_SIGKILL)
        self._go_on(begin)

    @property
    def phase(self) -> str:
        apps = [run for run in self._containers if run.kind is ContainerKind.APP]
        if self._problem or self._init_failed:
            return "Failed"
        if all(isinstance(run.state, Waiting | Starting) and not run.restarts for run in apps):
            return "Pending"
        if not self._all_terminated(apps):
            return "Running"
        if all(run.succeeded for run in apps):
            return "Succeeded"
        return "Failed"

    @property
    def over(self) -> bool:
        """Nothing of it runs, and nothing will."""
        return self._over

    @property
    def next_at(self) -> float | None:
        """When something happens next without anybody's doing."""
        if self.over:
            return None
        if self._stopping is not None:
            times = [
                run.state.until for run in self._containers if isinstance(run.state, Running)
            ] + [self._stopping]
        else:
            times = [run.next_at for run in self._containers] + [self._deadline]
        return min((t for t in times if t is not None), default=None)

    def advance(self, now: float) -> bool:
        """Let everything happen that is due; whether something did."""
        happened = False
        while (at := self.next_at) is not None and at <= now:
            happened = True
            self._step(at)
        return happened

    def stop(self, now: float, grace: int | None) -> None:
        """It is being deleted: its containers get so many seconds."""
        if self._stopping is not None and grace is None:
            return
        allowed = GRACE if grace is None else grace
        end = now + min(self._script.stop_duration, allowed)
        self._stopping = end if self._stopping is None else min(self._stopping, end)
        self.advance(now)

    # For whoever admits and starts.

    @property
    def admitted(self) -> bool:
        """Its node has taken it in."""
        return self._admitted

    @property
    def wanted(self) -> Sequence[str]:
        """The containers to be started now, in their order."""
        if self.over or self._stopping is not None:
            return ()
        return [run.name for run in self._containers if isinstance(run.state, Starting)]

    @property
    def running(self) -> frozenset[str]:
        """The containers that run."""
        return frozenset(r.name for r in self._containers if isinstance(r.state, Running))

    def admit(self, now: float) -> None:
        """Its node takes it in."""
        self._admitted = True
        self._go_on(now)

    def reject(self, reason: str, message: str, now: float) -> None:
        """Its node does not take it, or no longer: it has failed for good."""
        self._problem = (reason, message)
        self._over = True
        for run in self._containers:
            if isinstance(run.state, Running):
                run.end(now, TERMINATED_BY_SIGKILL)

    def started(self, name: str, id: str, now: float) -> None:
        """A container that was wanted runs; ``id`` is its runtime's."""
        run = self._named(name)
        run.id = id
        self._start(run, now)
        self._go_on(now)

    def refused(self, name: str, reason: str, message: str, again: float) -> None:
        """A container that was wanted could not be started; it is wanted again then."""
        self._named(name).state = Waiting(reason=reason, message=message, at=again)

    def _named(self, name: str) -> ContainerRun:
        return next(run for run in self._containers if run.name == name)

    def status(self) -> dict[str, Any]:
        """What kubelet writes of it; the condition ``PodScheduled`` is not kubelet's."""
        ready = self.phase == "Running" and all(
            isinstance(run.state, Running)
            for run in self._containers
            if run.kind is not ContainerKind.INIT
        )
        initialized = self.phase != "Pending" and not self._init_failed
        reason, message = self._problem or (None, None)
        return {
            "phase": self.phase,
            "reason": reason,
            "message": message,
            "startTime": timestamp(self._begin),
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "conditions": [
                self._condition("PodReadyToStartContainers", not self.over),
                self._condition("Initialized", initialized),
                self._condition("Ready", ready),
                self._condition("ContainersReady", ready),
            ],
            "initContainerStatuses": [run.as_json() for run in self._inits()],
            "containerStatuses": [run.as_json() for run in self._apps()],
        }

    def _condition(self, type_: str, holds: bool) -> dict[str, Any]:  # noqa: FBT001 -- a truth value
        status = "True" if holds else "False"
        former, since = self._transitions.get(type_, ("", 0.0))
        if former != status:
            since = self._latest()
            self._transitions[type_] = (status, since)
        return {"type": type_, "status": status, "lastTransitionTime": timestamp(since)}

    def _latest(self) -> float:
        """When something happened last."""
        times = [self._begin]
        for run in self._containers:
            match run.state:
                case Running(since=at) | Terminated(at=at):
                    times.append(at)
                case Waiting() | Starting():
                    pass
        return max(times)

    @property
    def _init_failed(self) -> bool:
        return self._policy == "Never" and any(
            run.failed for run in self._containers if run.kind is ContainerKind.INIT
        )

    def _inits(self) -> Iterator[ContainerRun]:
        return (run for run in self._containers if run.kind is not ContainerKind.APP)

    def _apps(self) -> Iterator[ContainerRun]:
        return (run for run in self._containers if run.kind is ContainerKind.APP)

    def _step(self, at: float) -> None:
        for run in self._containers:
            match run.state:
                case Running(until=until, code=code) if until is not None and until <= at:
                    run.end(at, code)
                case _:
                    pass
        if self._stopping is not None:
            if self._stopping <= at or self._all_terminated(self._containers):
                self._end_all(at, TERMINATED_BY_SIGTERM)
        elif self._deadline is not None and self._deadline <= at:
            text = "Pod was active on the node longer than the specified deadline"
            self._fail("DeadlineExceeded", text, at, TERMINATED_BY_SIGKILL)
        else:
            self._go_on(at)

    def _go_on(self, now: float) -> None:
        """Start what may start now, and end the pod when its work is done."""
        if self.over or not self._admitted or not self._init(now):
            return
        for run in self._apps():
            match run.state:
                case Waiting(at=at) if at is None or at <= now:
                    self._begin_start(run, now)
                case _:
                    pass
            if isinstance(run.state, Terminated) and self._restarts(run.state.code):
                run.again(now, self._backoff)
        if self._all_terminated(self._apps()):
            self._end_all(now, TERMINATED_BY_SIGTERM)

    def _init(self, now: float) -> bool:
        """Whether every init container has done its part."""
        for run in self._inits():
            sidecar = run.kind is ContainerKind.SIDECAR
            match run.state:
                case Waiting(at=at) if at is None or at <= now:
                    self._begin_start(run, now)
                case _:
                    pass
            match run.state:
                case Waiting() | Starting():
                    return False
                case _:
                    pass
            if sidecar:
                continue
            if isinstance(run.state, Running):
                if run.state.until is None or run.state.until > now:
                    return False
                run.end(now, run.state.code)
            if run.failed:
                if self._policy == "Never":
                    self._end_all(now, TERMINATED_BY_SIGTERM)
                else:
                    run.again(now, self._backoff)
                return False
        return True

    def _begin_start(self, run: ContainerRun, now: float) -> None:
        if self._staged:
            run.call()
        else:
            self._start(run, now)

    def _start(self, run: ContainerRun, now: float) -> None:
        script = self._script
        match run.kind:
            case ContainerKind.SIDECAR:
                run.start(now, None, 0)
            case ContainerKind.INIT:
                run.start(now, script.init_duration, script.init_exit_code)
            case ContainerKind.APP:
                run.start(now, script.duration, script.exit_code)
                if script.duration == 0:
                    run.end(now, script.exit_code)

    def _restarts(self, code: int) -> bool:
        return self._policy == "Always" or (self._policy == "OnFailure" and code != 0)

    def _fail(self, reason: str, message: str, now: float, code: int) -> None:
        self._problem = (reason, message)
        self._end_all(now, code)

    def _all_terminated(self, runs: Iterable[ContainerRun]) -> bool:
        return all(isinstance(run.state, Terminated) for run in runs)

    def _end_all(self, now: float, code: int) -> None:
        self._over = True
        for run in self._containers:
            run.end(now, code)
