"""What HAMi's protocol writes: devices taken off a pod's list, its phase, the lock's release.

Through the status subresources, which are all that an agent may write. Another pod's lock is
never released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from hami.domain.errors import Malformed
from hami.domain.kubernetes.objects import Pod
from hami.domain.profile import VendorProfile
from hami.kube.client import KubeClient
from hami.kube.compat.node_lock import release_node_lock, release_private_lock
from hami.kube.errors import TOO_MANY_REQUESTS, ApiError
from hami.kube.node_pod import NODE_PODS
from hami.kube.pace import Backoff
from hami.kube.resources import NODES
from hami.node.compat.allocating_pod import Pending, has_waiting, lock_key, taken_off
from hami.wire import keys
from hami.wire.codecs import decode_node_lock
from hami.wire.node_identity import lock_of

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds for the API server to answer: a failed Allocate costs the pod, a slow one holds up the
node's other pods."""
AFTERWARDS = 2.0
"""The same, for what is written about a pod that has failed already."""


class LockedWrites:
    """For one vendor on one node; ``profiles`` are those of every vendor that may share a pod."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        profile: VendorProfile,
        profiles: Iterable[VendorProfile],
        on_problem: Callable[[str], None],
    ) -> None:
        self._client = client
        self._node = node
        self._profile = profile
        self._profiles = tuple(profiles)
        self._on_problem = on_problem

    async def take_off(self, pending: Pending, annotations: Mapping[str, str]) -> Pod:
        """One patch: the container's devices leave the list, ``annotations`` come; the pod then.

        Raises:
            ApiError: it could not be written.
        """
        key = self._profile.pod_annotations.to_allocate
        left = taken_off(pending.pod.annotations[key], pending.waiting.slot)
        return await patiently(lambda: self._annotate(pending.pod, {**annotations, key: left}))

    async def finish(self, pod: Pod, lock: str) -> None:
        """``pod`` as it was last written: if it waits for nothing more, it has what it needs."""
        try:
            if has_waiting(pod, self._profile) or await self._others_wait(pod):
                return
            await patiently(lambda: self._annotate(pod, {keys.BIND_PHASE: "success"}))
        except ApiError as error:
            self._on_problem(f"cannot say that pod {pod.full_name} has its devices: {error}")
        await self.release(pod, lock)

    async def fail(self, pod: Pod, lock: str) -> None:
        """The pod cannot start; the next may."""
        try:
            failed = {keys.BIND_PHASE: "failed"}
            await patiently(lambda: self._annotate(pod, failed), AFTERWARDS)
        except ApiError as error:
            self._on_problem(f"cannot say that pod {pod.full_name} has failed: {error}")
        await self.release(pod, lock, AFTERWARDS)

    async def release(self, pod: Pod, lock: str, patience: float = PATIENCE) -> None:
        """Remove the lock if it is this pod's, or one without an owner that is still ``lock``."""
        key = lock_key(self._profile)
        if not key:
            return
        held = decode_node_lock(lock)
        nameless = not isinstance(held, Malformed) and not held.pod
        try:
            if nameless:
                await patiently(
                    lambda: release_private_lock(
                        self._client, self._node, key, {lock}, subresource="status"
                    ),
                    patience,
                )
            elif key == keys.NODE_LOCK:
                await patiently(
                    lambda: release_node_lock(self._client, self._node, pod, subresource="status"),
                    patience,
                )
        except ApiError as error:
            self._on_problem(
                f"cannot release the lock of node {self._node} ({key}) for pod {pod.full_name}: "
                f"{error}; it expires by itself, or: kubectl annotate node {self._node} {key}-"
            )

    async def _others_wait(self, pod: Pod) -> bool:
        """Another vendor's agent will come for its part, and needs this lock for it."""
        waiting = [
            profile
            for profile in self._profiles
            if lock_key(profile) == lock_key(self._profile) and has_waiting(pod, profile)
        ]
        if not waiting:
            return False
        node = await patiently(lambda: self._client.get(NODES, self._node))
        return any(lock_of(node, profile) != "none" for profile in waiting)

    async def _annotate(self, pod: Pod, annotations: Mapping[str, str]) -> Pod:
        """The uid is a precondition: a pod made anew under the name is another one."""
        patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        return await self._client.patch(
            NODE_PODS, pod.name, patch, namespace=pod.namespace, subresource="status"
        )


async def patiently(call: Callable[[], Awaitable[T]], seconds: float = PATIENCE) -> T:
    """Try again while the server has no verdict; what is called may be done twice.

    Raises:
        ApiError: a refusal, or the last trouble within ``seconds``.
    """
    backoff = Backoff(first=0.1, most=2.0)
    last: ApiError | None = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await call()
                except ApiError as error:
                    if not _may_pass(error):
                        raise
                    last = error
                await asyncio.sleep(max(backoff.delay(), last.retry_after or 0.0))
    except TimeoutError:
        raise last or ApiError(f"no answer within {seconds:g} s") from None


def _may_pass(error: ApiError) -> bool:
    return error.outcome_unknown or not error.sent or error.status == TOO_MANY_REQUESTS
