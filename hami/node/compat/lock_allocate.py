"""Allocate and its companions by HAMi's protocol, where identity comes from the node lock.

One Allocate after the other, as HAMi's mutex has it: each takes the pod that is being bound here,
the first container on its list, enforces the slice, takes the devices off the list, and once no
list of the pod names any more says ``success`` and releases the lock. What fails says ``failed``
and releases it too.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from hami.domain.slices import ContainerEdits
from hami.domain.units import DeviceId
from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.node.compat.allocating_pod import NonePending, Pending, find_pending
from hami.node.compat.lock_slices import make_locked
from hami.node.compat.lock_writes import LockedWrites, patiently
from hami.node.compat.replicas import device_of
from hami.node.kubelet.server import CallRefused
from hami.node.pod.pods import Granted, NotGranted
from hami.node.pod.refusal_causes import RefusalCause
from hami.node.slice.agent_context import AgentContext
from hami.node.start.container_start import SLICE_ID_BYTES, Starts


class LockedCalls:
    """kubelet's calls for the count resource of one vendor.

    ``preferring``: this node's configuration asks for it (``enablegetpreferredallocation``).
    Then kubelet is told to take replicas of the devices that the scheduler chose. Should it take
    others, the scheduler's choice still holds: another device was never charged for this pod.
    """

    def __init__(
        self,
        client: KubeClient,
        node: str,
        around: AgentContext,
        writes: LockedWrites,
        starts: Starts,
        *,
        preferring: Callable[[], bool],
    ) -> None:
        self._client = client
        self._node = node
        self._around = around
        self._writes = writes
        self._starts = starts
        self._preferring = preferring
        self._last: asyncio.Task[list[ContainerEdits]] | None = None

    async def allocate(self, requests: Sequence[tuple[str, ...]]) -> Sequence[ContainerEdits]:
        """One edit per request.

        What was begun is ended, whether kubelet waits for it or not: half of it would leave the
        node locked.

        Raises:
            CallRefused: there is no such pod, or it cannot have its devices.
        """
        task = asyncio.create_task(self._in_turn(self._last, requests))
        task.add_done_callback(_seen)
        self._last = task
        return await asyncio.shield(task)

    async def prefer(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        """Replicas of the devices that the scheduler gave the next container.

        Raises:
            CallRefused: the pod or its devices cannot be found; kubelet then chooses by itself.
        """
        if not self._preferring():
            return ()
        found = await self._find(size)
        if isinstance(found, NonePending):
            raise CallRefused(found.problem)
        wanted = [grant.device_id for grant in found.waiting.grants]
        known = self._around.inventory.devices
        preferred = chosen_replicas(wanted, available, must_include, size, known)
        if isinstance(preferred, str):
            raise CallRefused(f"pod {found.pod.full_name}: {preferred}")
        return preferred

    async def prepare(self, ids: frozenset[str]) -> None:
        await self._starts.start(ids)

    async def close(self) -> None:
        """End what was begun."""
        if self._last is not None:
            await asyncio.wait([self._last])

    async def _in_turn(
        self, before: asyncio.Task[list[ContainerEdits]] | None, requests: Sequence[tuple[str, ...]]
    ) -> list[ContainerEdits]:
        if before is not None:
            await asyncio.wait([before])
        return [await self._answer(frozenset(ids)) for ids in requests]

    async def _find(self, count: int) -> Pending | NonePending:
        try:
            return await patiently(
                lambda: find_pending(self._client, self._node, self._around.vendor, count)
            )
        except ApiError as error:
            raise CallRefused(f"cannot find out whom kubelet allocates for: {error}") from error

    async def _answer(self, ids: frozenset[str]) -> ContainerEdits:
        found = await self._find(len(ids))
        if isinstance(found, NonePending):
            problem = found.problem
            if found.pod is not None:
                await self._writes.fail(found.pod, found.lock)
                problem = f"pod {found.pod.full_name}: {problem}"
            raise CallRefused(problem)
        try:
            return await self._served(found, ids)
        except Exception:
            await self._writes.fail(found.pod, found.lock)
            raise

    async def _served(self, found: Pending, ids: frozenset[str]) -> ContainerEdits:
        slice_id = secrets.token_hex(SLICE_ID_BYTES)
        made = await self._made(slice_id, found)
        if isinstance(made, NotGranted):
            raise CallRefused(made.text)
        try:
            written = await self._writes.take_off(found, made.pod_annotations)
        except ApiError as error:
            raise CallRefused(
                f"pod {found.pod.full_name}, container {found.waiting.container}: cannot take its "
                f"devices off its list: {error}"
            ) from error
        await self._writes.finish(written, found.lock)
        self._starts.issue(ids, slice_id)
        # kubelet keeps it beside pod and container, and that is how the owner is verified.
        return replace(made, annotations={**made.annotations, self._around.kind: slice_id})

    async def _made(self, slice_id: str, found: Pending) -> ContainerEdits | NotGranted:
        pod, waiting = found.pod, found.waiting
        granted = self._around.granting.granted(pod, waiting.container)
        if isinstance(granted, NotGranted):
            return granted
        if problem := _another_list(granted, found):
            return NotGranted(
                f"pod {pod.full_name}, container {waiting.container}: {problem}",
                RefusalCause.BAD_ALLOCATION,
            )
        return await make_locked(slice_id, granted, self._around)


def _another_list(granted: Granted, found: Pending) -> str:
    """The list of what is to be allocated is not signed: it only says which container is next."""
    listed = sorted(grant.device_id for grant in found.waiting.grants)
    allocated = sorted(grant.device_id for grant in granted.grants)
    if listed == allocated:
        return ""
    return (
        f"it is to be allocated {', '.join(listed)}, and the scheduler gave it "
        f"{', '.join(allocated)}: its annotations were edited; delete the pod, so that it is "
        "scheduled again"
    )


def chosen_replicas(
    wanted: Sequence[DeviceId],
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
    known: Collection[DeviceId],
) -> tuple[str, ...] | str:
    """``size`` replica ids, one of each wanted device; or, in HAMi's words, why that cannot be."""
    if len(wanted) < size:
        return f"{len(wanted)} devices are annotated, {size} are asked for"
    chosen = list(dict.fromkeys(must_include))
    covered = [device_of(replica, known) for replica in chosen]
    free = [replica for replica in dict.fromkeys(available) if replica not in chosen]
    for device in wanted[:size]:
        if device in covered:
            covered.remove(device)
            continue
        replica = next((one for one in free if device_of(one, known) == device), None)
        if replica is None:
            return f"no available slice device found for annotated GPU {device}"
        free.remove(replica)
        chosen.append(replica)
    if len(chosen) != size:
        return f"{len(chosen)} replicas would be needed, {size} are asked for"
    return tuple(chosen)


def _seen(task: asyncio.Task[list[ContainerEdits]]) -> None:
    """Where kubelet waits no longer, nobody else takes the exception."""
    if not task.cancelled():
        task.exception()
