"""A Lease of our own: acquired, renewed and released, and never held by two at once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import uniform

from hami.kube.client import KubeClient
from hami.kube.errors import CONFLICT, NO_ANSWER, NOT_FOUND, ApiError
from hami.kube.leases.leadership import FIELD_TIMES, LONG_AGO, NEVER, boot_seconds
from hami.kube.outages import Outage
from hami.kube.resources import LEASES, Lease, LeaseSpec

RELEASE_TIMEOUT = 3.0
RETRY_JITTER = 1.2
"""The time between two tries is up to this many times the setting, as in client-go (JitterFactor in
tools/leaderelection/leaderelection.go)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """The lease's times in seconds; defaults are kube-scheduler's.

    A leader that cannot renew stops after ``renew_deadline``, or ``margin`` before its lease runs
    out, whichever comes first.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0
    margin: float = 5.0


class OwnLease:
    """Leads while it holds the Lease; see :mod:`hami.kube.leases.leadership` for the fence.

    :meth:`release` tells the next leader that it need not wait: call it after ``run`` has ended,
    and only when no write can be under way any more.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        times: LeaseTimes | None = None,
        on_problem: Callable[[str], None],
        clock: Callable[[], float] = boot_seconds,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.term = 0
        self.holder = ""
        self.leading_since = LONG_AGO
        self.leading_until = NEVER
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times or LeaseTimes()
        self._on_problem = on_problem
        self._clock = clock
        self._now = now
        self._outage = Outage()
        self._ours: Lease | None = None
        self._wrote = False
        self._our_term: int | None = None
        self._seen: LeaseSpec | None = None
        self._seen_at = LONG_AGO

    @property
    def leading(self) -> bool:
        return self.leading_since <= self._clock() < self.leading_until

    async def run(self) -> None:
        try:
            while True:
                try:
                    async with asyncio.timeout(self._times.renew_deadline / 2):
                        await self.attempt()
                except ApiError as error:
                    # A conflict is another candidate that was faster.
                    if error.status != CONFLICT:
                        self._tell(error.status, str(error))
                except TimeoutError:
                    patience = self._times.renew_deadline / 2
                    self._tell(NO_ANSWER, f"no answer within {patience:g} s")
                else:
                    self._outage.over()
                await asyncio.sleep(self._times.retry * uniform(1.0, RETRY_JITTER))  # noqa: S311 -- jitter
        finally:
            self._lose()

    def _tell(self, status: int, problem: str) -> None:
        if self._outage.is_news(status):
            self._on_problem(f"lease {self._namespace}/{self._name}: {problem}")

    async def attempt(self) -> None:
        """Renew our Lease, or try to acquire it; ``run`` calls this again and again."""
        if self._ours is not None:
            try:
                await self._write(self._ours, self._renewed(self._ours.spec))
                return
            except ApiError as error:
                if error.status not in (CONFLICT, NOT_FOUND):
                    raise
                if error.status == NOT_FOUND:
                    self._lose()
        lease = await self._look()
        if lease is None:
            await self._create()
        elif lease.spec.holder_identity == self._identity:
            await self._resume(lease)
        else:
            self._lose()
            if self._clock() >= self._expiry():
                await self._write(
                    lease, self._acquired(lease.spec), begins=self._expiry() + self._times.margin
                )

    async def _look(self) -> Lease | None:
        """Read the Lease; a change of it shows that its holder lives."""
        try:
            lease = await self._client.get(LEASES, self._name, namespace=self._namespace)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        self._observe(lease)
        return lease

    def _observe(self, lease: Lease) -> None:
        if lease.spec != self._seen:
            self._seen, self._seen_at = lease.spec, self._clock()
        self.holder = lease.spec.holder_identity or ""

    def _expiry(self) -> float:
        """When the Lease runs out unless its holder, another process, renews it."""
        if self._seen is None or self._seen.holder_identity in (None, "", self._identity):
            return LONG_AGO
        return self._seen_at + (self._seen.lease_duration_seconds or self._times.duration)

    async def _create(self) -> None:
        """Create the missing Lease. A leader that we saw may have held it until it was deleted."""
        begins = self._expiry() + self._times.margin
        spec = self._acquired(LeaseSpec(lease_transitions=-1))
        self._wrote = True
        sent = self._clock()
        lease = await self._client.create(
            LEASES,
            {"metadata": {"name": self._name}, "spec": _fields(spec)},
            namespace=self._namespace,
        )
        self._hold(lease, sent, begins=begins)

    async def _resume(self, lease: Lease) -> None:
        """Renew a Lease in our name: ours, or that of an earlier process with the same name."""
        if self._our_term is not None and lease.spec.lease_transitions == self._our_term:
            await self._write(lease, self._renewed(lease.spec))
        else:
            self._lose()
            await self._write(
                lease, self._acquired(lease.spec), begins=self._clock() + self._times.margin
            )

    async def _write(self, lease: Lease, spec: LeaseSpec, *, begins: float | None = None) -> None:
        """Write over exactly what was read. The lease's time counts from before the request."""
        patch = {
            "metadata": {"resourceVersion": lease.metadata.resource_version},
            "spec": _fields(spec),
        }
        self._wrote = True
        sent = self._clock()
        written = await self._client.patch(LEASES, self._name, patch, namespace=self._namespace)
        self._hold(written, sent, begins=begins)

    def _hold(self, lease: Lease, sent: float, *, begins: float | None) -> None:
        times = self._times
        if begins is not None:
            self.leading_since = max(begins, sent)
        self.leading_until = sent + min(times.renew_deadline, times.duration - times.margin)
        self.term = self._our_term = lease.spec.lease_transitions or 0
        self._ours = lease
        self._observe(lease)

    def _lose(self) -> None:
        self.leading_until = NEVER
        self._ours = None

    def _acquired(self, before: LeaseSpec) -> LeaseSpec:
        return LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=math.ceil(self._times.duration),
            acquire_time=self._written_now(),
            renew_time=self._written_now(),
            lease_transitions=(before.lease_transitions or 0) + 1,
        )

    def _renewed(self, before: LeaseSpec) -> LeaseSpec:
        return LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=math.ceil(self._times.duration),
            acquire_time=before.acquire_time,
            renew_time=self._written_now(),
            lease_transitions=before.lease_transitions,
        )

    def _written_now(self) -> str:
        return self._now().astimezone(UTC).strftime(FIELD_TIMES)

    async def release(self) -> None:
        """Give the Lease up as client-go does: no holder, for a second."""
        self._lose()
        if not self._wrote:
            return
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                # A renewal that was cut off may have been written: what is there now counts.
                lease = await self._look()
                if lease is not None and lease.spec.holder_identity == self._identity:
                    patch = {
                        "metadata": {"resourceVersion": lease.metadata.resource_version},
                        "spec": {
                            "holderIdentity": "",
                            "leaseDurationSeconds": 1,
                            "renewTime": self._written_now(),
                        },
                    }
                    await self._client.patch(LEASES, self._name, patch, namespace=self._namespace)
        except (ApiError, TimeoutError) as error:
            self._on_problem(
                f"lease {self._namespace}/{self._name} was not released and runs out by itself: "
                f"{error or 'no answer'}"
            )


def _fields(spec: LeaseSpec) -> dict[str, str | int | None]:
    return {
        "holderIdentity": spec.holder_identity,
        "leaseDurationSeconds": spec.lease_duration_seconds,
        "acquireTime": spec.acquire_time,
        "renewTime": spec.renew_time,
        "leaseTransitions": spec.lease_transitions,
    }
