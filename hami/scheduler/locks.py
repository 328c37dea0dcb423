"""HAMi's node lock, for vendors whose agent on a node still needs it.

Such an agent finds the pod it serves by "the one that is being bound here", so only one pod at a
time may be between bind and start. Agents of ours find it through kubelet and need no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from hami.domain.objects import Node, Pod
from hami.domain.units import VendorKey
from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.kube.node_lock import Contended, release_node_lock, take_node_lock
from hami.kube.resources import PODS
from hami.scheduler.decision import label_of
from hami.scheduler.state import ClusterState
from hami.wire import keys
from hami.wire.node_identity import lock_of

BINDING_LABELS_SINCE = (1, 35)
"""Servers from this version on keep a Binding's labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSettings:
    """Seconds: when another one's lock has expired; how long members of a PodGroup wait for it."""

    expiry: float = 300.0
    group_patience: float = 28.0


class NodeLocks:
    """Takes and releases what a pod's vendors need on a node."""

    def __init__(
        self, state: ClusterState, client: KubeClient, settings: Callable[[], LockSettings]
    ) -> None:
        self._state = state
        self._client = client
        self._settings = settings
        self._version: tuple[int, int] | None = None
        self._log = structlog.get_logger("hami.locks")

    async def take(self, pod: Pod, node: str, vendors: frozenset[VendorKey]) -> str:
        """Why the node cannot be had now; empty when it can."""
        if not self._needed(node, vendors):
            return ""
        settings = self._settings()
        patience = settings.group_patience if keys.POD_GROUP in pod.labels else 0.0
        try:
            outcome = await take_node_lock(
                self._client, node, pod, expiry=settings.expiry, patience=patience
            )
        except ApiError as error:
            return f"cannot lock node {node}: {error}"
        return outcome.text if isinstance(outcome, Contended) else ""

    async def release(self, pod: Pod, node: str, vendors: frozenset[VendorKey]) -> None:
        """The pod will not start there. The agent releases the lock of one that does."""
        if self._needed(node, vendors):
            try:
                await release_node_lock(self._client, node, pod)
            except ApiError as error:
                self._log.warning("cannot release a node lock", node=node, error=str(error))

    async def bound(self, pod: Pod, node: str, vendors: frozenset[VendorKey]) -> None:
        """Where HAMi's components are at work, give the pod the label that its monitor reads."""
        if not self._needed(node, vendors) or not (labels := label_of(node)):
            return
        try:
            self._version = self._version or await self._client.server_version()
            if self._version < BINDING_LABELS_SINCE:
                patch = {"metadata": {"uid": pod.uid, "labels": labels}}
                await self._client.patch(PODS, pod.name, patch, namespace=pod.namespace)
        except ApiError as error:
            self._log.warning("cannot label a pod", pod=pod.full_name, error=str(error))

    def _needed(self, name: str, vendors: frozenset[VendorKey]) -> bool:
        node = self._state.nodes.get(name)
        return node is not None and any(self._lock(node, key) for key in vendors)

    def _lock(self, node: Node, vendor: VendorKey) -> bool:
        return lock_of(node, self._state.vendors[vendor].profile) != "none"
