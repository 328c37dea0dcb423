"""Keeps the Secret with our certificates: the leader writes it, every replica serves it.

Two that take themselves for the leader do no harm: each write names the version that it changes,
and the API server takes one of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import structlog

from hami.kube.errors import CONFLICT, FORBIDDEN, NOT_FOUND, ApiError
from hami.kube.pace import Backoff
from hami.kube.resources import SECRETS, HasMetadata, Resource, Secret
from hami.scheduler.certificates.ca_bundles import CaBundles
from hami.scheduler.certificates.certificate_set import (
    CertificateSet,
    CertificateTimes,
    next_set,
    read_set,
)
from hami.scheduler.certificates.served_certificate import ServedCertificate

T = TypeVar("T", bound=HasMetadata)

SOON = 1.0
"""Seconds between two looks while there is no certificate yet."""


class CertificateClient(Protocol):
    """The part of ``hami.kube.client.KubeClient`` that this needs."""

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "") -> T: ...

    async def create(self, resource: Resource[T], body: Any, *, namespace: str = "") -> T: ...

    async def patch(
        self, resource: Resource[T], name: str, patch: Any, *, namespace: str = ""
    ) -> T: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperSettings:
    """``overlap``: for how many seconds every webhook must have trusted a new CA before a
    certificate of it is served: API servers hear of a changed configuration by a watch. ``every``:
    seconds between two looks.
    """

    namespace: str
    name: str
    names: Sequence[str]
    times: CertificateTimes
    overlap: float
    every: float


class CertificateKeeper:
    """One Secret, the certificate that is served of it, and who must trust it."""

    def __init__(
        self,
        client: CertificateClient,
        settings: KeeperSettings,
        served: ServedCertificate,
        bundles: CaBundles,
        *,
        leading: Callable[[], bool],
        on_problem: Callable[[str], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff | None = None,
    ) -> None:
        self.served = served
        self._client = client
        self._settings = settings
        self._bundles = bundles
        self._leading = leading
        self._on_problem = on_problem
        self._now = now
        self._clock = clock
        self._backoff = backoff or Backoff(first=0.5, most=30.0)
        self._changed = asyncio.Event()
        self._told = ""
        self._trusted = b""
        self._trusted_since = 0.0

    def __str__(self) -> str:
        return f"Secret {self._settings.namespace}/{self._settings.name}"

    @property
    def known(self) -> bool:
        """Whether there is a certificate to serve."""
        return self.served.known

    def touch(self) -> None:
        """This replica leads now. Never blocks."""
        self._changed.set()

    async def run(self) -> None:
        """Keep everything right until cancelled."""
        while True:
            self._changed.clear()
            pause = await self._round()
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _round(self) -> float:
        """One look, and what follows from it; the seconds until the next one."""
        try:
            found = await self._newest()
        except ApiError as error:
            if error.status != CONFLICT:  # Another replica was quicker: look again.
                self._tell(f"cannot keep the certificate in {self}: {error}{_remedy(error)}")
            return self._backoff.delay()
        self._backoff.reset()
        self._serve(found)
        if self._leading() and found.trusted:
            await self._keep_trusted(found.bundle)
        return self._settings.every if self.served.known else min(SOON, self._settings.every)

    def _tell(self, problem: str) -> None:
        """Once, until there is something else to say."""
        if problem != self._told:
            self._told = problem
            self._on_problem(problem)

    async def _newest(self) -> CertificateSet:
        """What the Secret says, after this replica has written what is due, if it leads."""
        try:
            there = await self._client.get(
                SECRETS, self._settings.name, namespace=self._settings.namespace
            )
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            there = None
        found = read_set((there.data if there else None) or {})
        if not self._leading():
            return found
        due = next_set(
            found,
            served=self.served.now,
            names=self._settings.names,
            now=self._now(),
            times=self._settings.times,
            known_everywhere=self._is_trusted(found.bundle),
        )
        if due is not found:
            await self._write(due, there)
        return due

    async def _write(self, due: CertificateSet, there: Secret | None) -> None:
        settings = self._settings
        if there is None:
            about = {"name": settings.name, "namespace": settings.namespace}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": about, "data": due.data()}
            await self._client.create(SECRETS, body, namespace=settings.namespace)
            return
        version = {"resourceVersion": there.metadata.resource_version}
        patch = {"metadata": version, "data": due.data()}
        await self._client.patch(SECRETS, settings.name, patch, namespace=settings.namespace)

    def _serve(self, found: CertificateSet) -> None:
        """What is damaged is not taken over: the former one stays until the leader mends it."""
        if found.serving is None:
            if self.served.known:
                self._tell(f"{self} holds no usable certificate; the one from before is served")
            return
        self._told = ""
        if found.data() == self.served.now.data():
            return
        former, self.served.now = self.served.now, found
        for tell in self.served.told:
            tell()
        if former.serving is None or former.serving.cert != found.serving.cert:
            ends = found.serving.cert.not_valid_after_utc.isoformat()
            structlog.get_logger("hami.scheduler").info(
                "another certificate is served", secret=str(self), ends=ends
            )

    async def _keep_trusted(self, bundle: bytes) -> None:
        if not await self._bundles.keep(bundle):
            self._trusted = b""
        elif bundle != self._trusted:
            self._trusted, self._trusted_since = bundle, self._clock()

    def _is_trusted(self, bundle: bytes) -> bool:
        """Whether all who call us have had the time to hear of each of these CAs."""
        since = self._clock() - self._trusted_since
        return bool(bundle) and bundle == self._trusted and since >= self._settings.overlap


def _remedy(error: ApiError) -> str:
    if error.status == FORBIDDEN:
        return "; allow get, create and patch of it"
    return "; trying again"
