"""Publishes the usage of each ResourceQuota where people look for it: in its status.

The built-in controller leaves our ``limits.`` keys in ``status.used`` alone (seen on 1.36). Where a
role may not write the status, an annotation says the same. Only the leader writes, only what has
changed, and each object at most once a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from hami.domain.kubernetes import quantity
from hami.domain.kubernetes.objects import ResourceQuota
from hami.kube.errors import FORBIDDEN, NOT_FOUND, ApiError
from hami.kube.resources import QUOTAS, HasMetadata
from hami.policy.ports import VendorRegistry
from hami.policy.quota.constraint import PREFIX
from hami.scheduler.publish.publication import PatchClient, Publication

USED_ANNOTATION: Final = "hami.io/quota-used"
"""The usage as a JSON object of ``spec.hard``'s keys, where we may not write the status."""

T = TypeVar("T", bound=HasMetadata)
Key = tuple[str, str]


class UsageSource(Protocol):
    """The part of ``QuotaLedger`` that this needs."""

    def used(self, namespace: str, name: str) -> Mapping[str, int]: ...


class QuotaStatusState(Protocol):
    """The part of ``ClusterState`` that this needs."""

    @property
    def vendors(self) -> VendorRegistry: ...

    @property
    def ledger(self) -> UsageSource: ...

    @property
    def quotas(self) -> Mapping[Key, ResourceQuota]: ...


class QuotaStatus:
    """Publishes: ``touch`` says that a namespace's usage may have changed; ``run`` writes."""

    def __init__(
        self,
        state: QuotaStatusState,
        client: PatchClient,
        *,
        leading: Callable[[], bool],
        on_problem: Callable[[str], None],
        rest: float = 1.0,
        forbidden_for: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``rest`` seconds lie between two writes of one object.

        After a 403 the status is not tried again for ``forbidden_for`` seconds.
        """
        self._state = state
        self._client = client
        self._leading = leading
        self._on_problem = on_problem
        self._rest = rest
        self._forbidden_for = forbidden_for
        self._clock = clock
        self._touched: set[str] = set()
        self._due: dict[Key, float] = {}
        self._publications: dict[Key, Publication[ResourceQuota]] = {}
        self._forbidden: dict[str, float] = {}
        self._wake = asyncio.Event()

    def touch(self, namespace: str) -> None:
        """The usage in this namespace may have changed. Cheap: called for every pod's change."""
        self._touched.add(namespace)
        self._wake.set()

    def touch_all(self) -> None:
        """Publish all quotas: this replica leads from now on, and may find unwritten changes."""
        self._touched.update(namespace for namespace, _ in self._state.quotas)
        self._wake.set()

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await self._wait()
            if self._leading():
                await self._publish_due()
            else:
                self._touched.clear()
                self._due.clear()

    async def _wait(self) -> None:
        """Wait until something is touched or due."""
        seconds = None
        if self._due:
            seconds = max(0.0, min(self._due.values()) - self._clock())
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _publish_due(self) -> None:
        touched, self._touched = self._touched, set()
        now = self._clock()
        for key in self._publications.keys() - self._state.quotas.keys():
            del self._publications[key]
        for key in self._state.quotas:
            if key[0] in touched:
                self._due.setdefault(key, self._publication(key).rest_until)
        for key in [key for key, at in self._due.items() if at <= now]:
            del self._due[key]
            if self._leading():
                await self._publish(key)

    def _publication(self, key: Key) -> Publication[ResourceQuota]:
        return self._publications.setdefault(key, Publication())

    async def _publish(self, key: Key) -> None:
        publication, shown = self._publication(key), self._state.quotas.get(key)
        if shown is None:
            del self._publications[key]
            return
        # The quota and its account may go between two awaits.
        used, known = self._used(shown), publication.known(shown)
        try:
            made = await self._write(known, used)
        except ApiError as error:
            self._failed(key, error)
            return
        publication.backoff.reset()
        if made is not None:
            publication.seen, publication.made = shown, made
            publication.rest_until = self._clock() + self._rest

    def _failed(self, key: Key, error: ApiError) -> None:
        publication = self._publication(key)
        if error.status == NOT_FOUND:
            del self._publications[key]  # The informer will say so too.
            return
        delay = max(publication.backoff.delay(), error.retry_after or 0.0, self._rest)
        publication.made = None
        publication.rest_until = self._due[key] = self._clock() + delay
        if not error.outcome_unknown and error.status not in _PASSING:
            self._on_problem(f"what is used of ResourceQuota {key[0]}/{key[1]}: {error}")

    async def _write(self, quota: ResourceQuota, used: Mapping[str, str]) -> ResourceQuota | None:
        """Write what differs; returns the object as written, None if nothing was written."""
        until = self._forbidden.get(quota.namespace)
        if until is not None and self._clock() < until:
            return await self._annotate(quota, used)
        changes = status_changes(quota, used, self._state.vendors)
        if not changes:
            return None
        try:
            made = await self._patch(quota, {"status": {"used": changes}}, subresource="status")
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            if until is None:
                self._on_problem(
                    f"the status of ResourceQuotas in namespace {quota.namespace} may not be "
                    f"written ({error}); allow patch of resourcequotas/status. Until then the "
                    f"annotation {USED_ANNOTATION} says what is used"
                )
            self._forbidden[quota.namespace] = self._clock() + self._forbidden_for
            return await self._annotate(quota, used)
        self._forbidden.pop(quota.namespace, None)
        if USED_ANNOTATION in (quota.metadata.annotations or {}):
            made = await self._patch(quota, {"metadata": {"annotations": {USED_ANNOTATION: None}}})
        return made

    async def _annotate(
        self, quota: ResourceQuota, used: Mapping[str, str]
    ) -> ResourceQuota | None:
        text = msgspec.json.encode(used, order="sorted").decode() if used else None
        if (quota.metadata.annotations or {}).get(USED_ANNOTATION) == text:
            return None
        return await self._patch(quota, {"metadata": {"annotations": {USED_ANNOTATION: text}}})

    async def _patch(
        self, quota: ResourceQuota, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> ResourceQuota:
        return await self._client.patch(
            QUOTAS, quota.name, patch, namespace=quota.namespace, subresource=subresource
        )

    def _used(self, quota: ResourceQuota) -> dict[str, str]:
        used = self._state.ledger.used(quota.namespace, quota.name)
        return used_texts(used, self._state.vendors)


_PASSING = frozenset({409, 429})
"""Answers that need no one's attention, because the next try settles them."""


def used_texts(used: Mapping[str, int], vendors: VendorRegistry) -> dict[str, str]:
    """The usage by ``spec.hard``'s keys, in the unit that the quota's author used.

    Memory is counted in MiB. A vendor's unit may be larger; a part of a unit counts as a whole one.
    """
    units = {
        profile.resources.memory: max(profile.memory_factor, 1)
        for profile in (vendors[key].profile for key in vendors)
        if profile.resources.memory
    }
    return {
        f"{PREFIX}{resource}": str(-(-amount // units.get(resource, 1)))
        for resource, amount in used.items()
    }


def status_changes(
    quota: ResourceQuota, used: Mapping[str, str], vendors: VendorRegistry
) -> dict[str, str | None]:
    """The merge patch of ``status.used``; keys that left ``spec.hard`` become null.

    Values are compared as quantities, because the API server writes ``3000`` as ``3k``.
    """
    shown = (quota.status.used if quota.status else None) or {}
    changes: dict[str, str | None] = {
        key: text for key, text in used.items() if not quantity.same(shown.get(key), text)
    }
    for key in shown:
        resource = key.removeprefix(PREFIX)
        if resource != key and vendors.manages(resource) and key not in used:
            changes[key] = None
    return changes
