"""A Lease that says that a node's agent lives. The agent renews it; no one competes for it.

It is small, and stands beside kubelet's own Lease
(https://kubernetes.io/docs/concepts/architecture/leases/): on a cluster of 5000 nodes it costs a
third of what kubelets write there. A change of the node itself would be sent to everybody who
watches nodes. Watchers judge by the changes that they see, on their own clock, because clocks
differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from random import uniform
from typing import Any, Final

from hami.kube.client import KubeClient
from hami.kube.errors import FORBIDDEN, NO_ANSWER, NOT_FOUND, ApiError
from hami.kube.leases.leadership import FIELD_TIMES
from hami.kube.outages import Outage
from hami.kube.resources import LEASES, NODES

NAMESPACE: Final = "kube-node-lease"
"""The namespace of kubelets' own Leases; every cluster has it."""

EVERY = 15.0
"""Seconds between two renewals."""

SILENCE = 45.0
"""Seconds without a renewal after which the agent counts as gone."""


class Heartbeat:
    """Renews the Lease of an agent on node ``holder``; ``heard`` is set once it is written.

    The node owns the Lease, so the Lease is deleted with it.
    """

    def __init__(
        self,
        client: KubeClient,
        name: str,
        holder: str,
        labels: Mapping[str, str],
        *,
        on_problem: Callable[[str], None],
        every: float = EVERY,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.heard = asyncio.Event()
        self._client = client
        self._name = name
        self._holder = holder
        self._labels = dict(labels)
        self._on_problem = on_problem
        self._every = every
        self._now = now
        self._outage = Outage()

    async def run(self) -> None:
        """Renew the Lease until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._every):
                    await self._beat()
            except (ApiError, TimeoutError) as error:
                self._tell(error)
            else:
                self._outage.over()
                self.heard.set()
            await asyncio.sleep(self._every * uniform(0.9, 1.1))  # noqa: S311 -- jitter

    async def _beat(self) -> None:
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": int(SILENCE),
            "renewTime": self._now().astimezone(UTC).strftime(FIELD_TIMES),
        }
        body: dict[str, Any] = {"metadata": {"labels": self._labels}, "spec": spec}
        try:
            await self._client.patch(LEASES, self._name, body, namespace=NAMESPACE)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            node = await self._client.get(NODES, self._holder)
            owner = {
                "apiVersion": "v1",
                "kind": "Node",
                "name": node.name,
                "uid": node.metadata.uid,
            }
            body["metadata"] |= {"name": self._name, "ownerReferences": [owner]}
            await self._client.create(LEASES, body, namespace=NAMESPACE)

    def _tell(self, error: ApiError | TimeoutError) -> None:
        status = error.status if isinstance(error, ApiError) else NO_ANSWER
        outage = self._client.unreachable if status == NO_ANSWER else self._outage
        if not outage.is_news(status):
            return
        forbidden = status == FORBIDDEN
        advice = "; allow our account to create and patch leases there" if forbidden else ""
        self._on_problem(f"lease {NAMESPACE}/{self._name}: {error or 'no answer in time'}{advice}")
