"""Whether the devices are well: what the driver tells of errors, and whether GPUs answer at all.

A device that fell ill can recover, unlike with HAMi's and NVIDIA's plugins, where it stays ill
until the plugin is restarted:

* one that did not answer, when it answers again: it was reset, or its driver was;
* one with a critical error (XID), when it answers and no other came for a while, unless the error
  or the driver demands a reset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hami.domain.devices import Device
from hami.domain.slices import HealthChange
from hami.domain.units import DeviceId
from hami_nvidia.health.condition import (
    WELL,
    DeviceCondition,
    after_answer,
    after_error,
    after_failure,
)
from hami_nvidia.health.survey import Finding, Place, survey
from hami_nvidia.health.xids import XidFilter, xid_filter
from hami_nvidia.nvml.interface import Nvml, NvmlAway, NvmlFailed, Watch, XidEvent
from hami_nvidia.settings.node_settings import NodeSettings

WAIT_SECONDS = 5.0
"""How long one look waits for errors."""

ANEW_SECONDS = 60.0
"""How often NVML is started anew while a GPU does not answer: it lists GPUs at its start alone."""

_MOST_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subscription:
    """``problem`` says why there is no watch."""

    gpus: frozenset[DeviceId] = frozenset()
    watch: Watch | None = None
    problem: str = ""

    def refusal(self, gpu: DeviceId) -> str:
        """Why the errors of this GPU are not known; empty when they are."""
        if self.watch is None:
            return self.problem
        return self.watch.refused.get(gpu, "")


class HealthWatch:
    """Remembers the condition of every device. For one thread, but for ``ailing``.

    ``clock`` is monotonic, in seconds.
    """

    def __init__(
        self,
        nvml: Nvml,
        *,
        wait_seconds: float = WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nvml = nvml
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._conditions: dict[DeviceId, DeviceCondition] = {}
        self._places: dict[DeviceId, Place] = {}
        self._subscription = _Subscription()
        self._anew_at = clock() + ANEW_SECONDS
        self._asked: tuple[Device, ...] = ()
        self._told: dict[DeviceId, bool] = {}

    def ailing(self) -> Mapping[DeviceId, str]:
        """Every device that is not healthy, with the cause; from any thread."""
        conditions = self._conditions
        return {id: found.cause for id, found in conditions.items() if not found.healthy}

    def check(self, devices: Sequence[Device], settings: NodeSettings) -> Sequence[HealthChange]:
        """What changed against the health that ``devices`` have; waits a while if nothing did.

        A change is not told twice in a row. It is told again when the devices still do not have
        it later: a discovery that began before the change may have overrun it.
        """
        counting = xid_filter(settings.disable_health_checks, settings.enable_health_checks)
        self._look(devices, settings)
        changes = self._changes(devices)
        if not changes and self._wait(counting):
            self._look(devices, settings)
            changes = self._changes(devices)
        self._told = {change.device_id: change.healthy for change in changes}
        return changes

    def close(self) -> None:
        """End the subscription to errors; the next look makes a new one."""
        if self._subscription.watch is not None:
            self._subscription.watch.close()
        self._subscription = _Subscription()

    def _changes(self, devices: Sequence[Device]) -> list[HealthChange]:
        if self._asked != tuple(devices):
            self._told = {}
        self._asked = tuple(devices)
        changes = []
        for device in devices:
            now = self._conditions[device.id]
            if now.healthy is not self._told.get(device.id, device.healthy):
                cause = now.cause or "it answers, and nothing is wrong with it any more"
                changes.append(HealthChange(device.id, now.healthy, cause))
        return changes

    def _look(self, devices: Sequence[Device], settings: NodeSettings) -> None:
        """Ask every GPU how it is, and follow the errors of those that answer."""
        try:
            findings = survey(self._nvml, devices, settings)
            self._subscribe(frozenset(f.place.gpu for f in findings.values() if f.place))
        except NvmlAway as away:
            self.close()
            findings = {device.id: Finding(problem=str(away), lost=True) for device in devices}
        now = self._clock()
        known = self._conditions
        self._conditions = {
            id: self._next(known.get(id, WELL), finding, now, settings.health_recovery)
            for id, finding in findings.items()
        }
        self._places = {id: f.place for id, f in findings.items() if f.place is not None}
        if now >= self._anew_at:
            self._anew_at = now + ANEW_SECONDS
            self._start_anew(findings)

    def _next(
        self, before: DeviceCondition, finding: Finding, now: float, quiet_seconds: float
    ) -> DeviceCondition:
        problem = finding.problem
        if not problem and finding.place is not None:
            problem = self._subscription.refusal(finding.place.gpu)
        if problem:
            return after_failure(before, problem, lost=finding.lost)
        return after_answer(before, finding.recovery, now, quiet_seconds)

    def _start_anew(self, findings: Mapping[DeviceId, Finding]) -> None:
        """So that a GPU that came back is found, and one that was not watched is."""
        if any(finding.lost for finding in findings.values()):
            self.close()
            self._nvml.close()
        elif any(self._subscription.refusal(place.gpu) for place in self._places.values()):
            self.close()

    def _subscribe(self, gpus: frozenset[DeviceId]) -> None:
        """One watch for these GPUs; a new one when they are others."""
        current = self._subscription
        if gpus == current.gpus and (current.watch is not None or current.problem):
            return
        self.close()
        if not gpus:
            return
        try:
            watch = self._nvml.watch(sorted(gpus))
        except NvmlAway:
            raise
        except NvmlFailed as failed:
            self._subscription = _Subscription(gpus=gpus, problem=str(failed))
        else:
            self._subscription = _Subscription(gpus=gpus, watch=watch)

    def _wait(self, counting: XidFilter) -> bool:
        """Until an error comes, but not for long; whether any came that counts."""
        watch = self._subscription.watch
        if watch is None:
            return False
        any_counts, seconds = False, self._wait_seconds
        try:
            for _ in range(_MOST_AT_ONCE):
                event = watch.wait(seconds)
                if event is None:
                    break
                seconds = 0.0
                if counting.counts(event.xid):
                    any_counts = True
                    self._suffer(event)
        except NvmlFailed:
            # The next look finds out what is wrong: a lost GPU, or no driver.
            self.close()
        return any_counts

    def _suffer(self, event: XidEvent) -> None:
        now = self._clock()
        self._conditions = {
            id: after_error(condition, event.xid, now)
            if (place := self._places.get(id)) is not None and place.is_hit_by(event)
            else condition
            for id, condition in self._conditions.items()
        }
