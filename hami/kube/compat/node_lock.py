"""HAMi's node lock: one pod at a time between bind and the start of its containers.

Used only for nodes whose agent finds its pod by the lock. We take and honour it as HAMi does, so
that its device plugins release what we take and the other way round. It is the annotation
``hami.io/mutex.lock``. It expires by the wall clock, an owner that is gone loses it, and writes are
guarded by the resource version. Some vendors' own device plugins use a lock of their own: a bare
time without an owner.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import uniform
from typing import Literal

from hami.domain.errors import Malformed
from hami.domain.kubernetes.objects import Node, Pod
from hami.kube.client import KubeClient
from hami.kube.errors import CONFLICT, NOT_FOUND, ApiError
from hami.kube.resources import NODES, PODS
from hami.wire import keys
from hami.wire.codecs import NodeLock, decode_node_lock, encode_node_lock

EXPIRY = 300.0
"""Seconds after which a lock has no owner any more; HAMi's default, its ``--node-lock-timeout``."""
PRIVATE_EXPIRY = 120.0
"""Seconds after which a vendor's own lock expires: Cambricon's two minutes, which have no
setting."""
RETRY = 0.1
"""Seconds between two looks of a pod that waits for the lock."""
WRITES = 5
"""The most tries of one write whose object changed meanwhile, or whose answer was lost."""

Subresource = Literal["", "status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """The pod has the node's lock; ``value`` is the annotation's value.

    ``version``: the node's resource version as of which the lock is there.
    """

    value: str
    version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contended:
    """Another pod has the lock. ``text`` is for the event. ``waitable``: it may soon be free."""

    text: str
    waitable: bool = True


def utc_now() -> datetime:
    return datetime.now(UTC)


async def take_node_lock(
    client: KubeClient,
    node: str,
    pod: Pod,
    *,
    expiry: float = EXPIRY,
    patience: float = 0.0,
    seen: Node | None = None,
    now: Callable[[], datetime] = utc_now,
) -> Locked | Contended:
    """Take ``node``'s lock for ``pod``; a pod that holds it already has it.

    ``expiry`` and ``patience`` are seconds; members of a pod group wait for the lock with patience
    (HAMi: 28 s). Others are refused at once, and kube-scheduler tries them again. ``seen``: the
    node as it was a moment ago, which saves a read if the lock was free then.

    Raises:
        ApiError: the node or the lock's holder could not be read, or the lock not be written.
    """
    deadline = time.monotonic() + patience
    while True:
        lock = NodeLock(at=now(), namespace=pod.namespace, pod=pod.name)
        outcome = await _attempt(client, node, lock, expiry, seen)
        seen = None
        if isinstance(outcome, Locked) or not outcome.waitable or patience <= 0:
            return outcome
        if time.monotonic() + RETRY > deadline:
            return Contended(
                text=f"timed out after {_duration(patience)} waiting for node {node} to be "
                "unlocked: node lock contention"
            )
        await asyncio.sleep(RETRY)


async def release_node_lock(
    client: KubeClient, node: str, pod: Pod, *, subresource: Subresource = ""
) -> bool:
    """Remove ``node``'s lock if ``pod`` holds it; whether the pod did.

    An agent writes through ``status``, because it may write nothing else of a node.

    Raises:
        ApiError: the node could not be read or written. A node that is gone has no lock.
    """
    owner = f",{pod.namespace},{pod.name}"
    return await _release(
        client, node, keys.NODE_LOCK, lambda value: value.endswith(owner), subresource
    )


def private_value(at: datetime) -> str:
    """The text to write into a vendor's own lock.

    Its readers accept a fraction of a second, which makes two schedulers' values differ.
    """
    return at.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


async def take_private_lock(
    client: KubeClient, node: str, key: str, at: datetime, *, ours: Collection[str] = ()
) -> Locked | Contended:
    """Take the vendor's own lock under ``key``: write :func:`private_value` of ``at``, now.

    ``ours`` are the values that earlier tries for the same pod wrote; finding one is no contention.

    Raises:
        ApiError: the node could not be read, or the lock not be written.
    """
    value = private_value(at)
    attempt = 0
    while True:
        found = await client.get(NODES, node)
        there = found.annotations.get(key)
        if there == value:
            return Locked(value=value)
        if there is not None:
            held = decode_node_lock(there)
            if isinstance(held, Malformed):
                return _unreadable(node, key, held)
            if at - held.at <= timedelta(seconds=PRIVATE_EXPIRY):
                if there in ours:
                    return Locked(value=there)
                text = f"node {node} has been locked within 2 minutes ({key})"
                return Contended(text=text, waitable=False)
        try:
            written = await _write(client, found, key, value)
        except ApiError as error:
            if not _worth_another(error, attempt):
                raise
        else:
            return Locked(value=value, version=written.metadata.resource_version)
        attempt += 1
        await _between(attempt)


async def release_private_lock(
    client: KubeClient,
    node: str,
    key: str,
    ours: Collection[str],
    *,
    subresource: Subresource = "",
) -> bool:
    """Remove a lock that names no owner if its value is one of ``ours``; whether that was done.

    ``subresource`` and errors as :func:`release_node_lock`.
    """
    return await _release(client, node, key, lambda value: value in ours, subresource)


async def _release(
    client: KubeClient,
    node: str,
    key: str,
    is_ours: Callable[[str], bool],
    subresource: Subresource,
) -> bool:
    tried = False
    for attempt in range(WRITES):
        await _between(attempt)
        found = await _node(client, node)
        value = found.annotations.get(key) if found else None
        if found is None or value is None:
            return tried
        if not is_ours(value):
            return False
        tried = True
        try:
            await _write(client, found, key, None, subresource)
        except ApiError as error:
            if not _worth_another(error, attempt):
                raise
        else:
            return True
    return False


async def free_if_over(client: KubeClient, node: str, value: str) -> bool:
    """Remove this lock if its pod no longer needs it; whether that was done.

    Such a pod is gone, has ended, is bound elsewhere, or its agent said that it has all its devices
    or failed to get them. A lock without an owner stays.

    Raises:
        ApiError: the node or the pod could not be read, or the node not be written.
    """
    held = decode_node_lock(value)
    if isinstance(held, Malformed) or not held.pod:
        return False
    found = await _node(client, node)
    if found is None or found.annotations.get(keys.NODE_LOCK) != value:
        return False
    if not await _is_over(client, held, node):
        return False
    # Guarded by the version that was read before the pod: a lock that was taken since then stays.
    await _write(client, found, keys.NODE_LOCK, None)
    return True


async def _is_over(client: KubeClient, holder: NodeLock, node: str) -> bool:
    pod = await _holder(client, holder)
    if pod is None or pod.finished or pod.spec.node_name not in ("", node):
        return True
    return bool(pod.spec.node_name) and pod.annotations.get(keys.BIND_PHASE) in _SERVED


_SERVED = frozenset({"success", "failed"})


async def _attempt(
    client: KubeClient, node: str, lock: NodeLock, expiry: float, seen: Node | None
) -> Locked | Contended:
    """One try, which may take several looks while others write the same node."""
    wanted = encode_node_lock(lock)
    attempt = 0
    while True:
        if seen and seen.metadata.resource_version and keys.NODE_LOCK not in seen.annotations:
            found, seen = seen, None
            attempt -= 1  # Outdated, it costs no more than the look that it may save.
        else:
            found = await client.get(NODES, node)
        value = found.annotations.get(keys.NODE_LOCK)
        if value is not None:
            held = await _judge(client, found, value, lock, expiry)
            if held is not None:
                return held
        try:
            written = await _write(client, found, keys.NODE_LOCK, wanted)
        except ApiError as error:
            if not _worth_another(error, attempt):
                raise
        else:
            return Locked(value=wanted, version=written.metadata.resource_version)
        attempt += 1
        await _between(attempt)


async def _judge(
    client: KubeClient, found: Node, value: str, lock: NodeLock, expiry: float
) -> Locked | Contended | None:
    """What an existing lock means for us; None: it no longer has an owner."""
    held, node = decode_node_lock(value), found.name
    if isinstance(held, Malformed):
        return _unreadable(node, keys.NODE_LOCK, held)
    if lock.at - held.at > timedelta(seconds=expiry):
        return None
    if (held.namespace, held.pod) == (lock.namespace, lock.pod):
        return Locked(value=value, version=found.metadata.resource_version)
    if held.pod:
        holder = await _holder(client, held)
        if holder is None or holder.finished:
            return None
    return Contended(
        text=f"node {node} has been locked within {_duration(expiry)}: node lock contention"
    )


def _unreadable(node: str, key: str, value: Malformed) -> Contended:
    problem = replace(value, annotation=key)
    return Contended(
        text=f"node {node} is locked by a value that cannot be read: {problem}; if no pod is "
        f"starting there, remove it: kubectl annotate node {node} {key}-",
        waitable=False,
    )


async def _holder(client: KubeClient, lock: NodeLock) -> Pod | None:
    """The pod that holds the lock; None when the pod is gone."""
    try:
        return await client.get(PODS, lock.pod, namespace=lock.namespace)
    except ApiError as error:
        if error.status == NOT_FOUND:
            return None
        raise


async def _node(client: KubeClient, node: str) -> Node | None:
    try:
        return await client.get(NODES, node)
    except ApiError as error:
        if error.status == NOT_FOUND:
            return None
        raise


async def _write(
    client: KubeClient, node: Node, key: str, value: str | None, subresource: Subresource = ""
) -> Node:
    """Write over exactly what was read; returns the node as written."""
    metadata = {
        "annotations": {key: value},
        "resourceVersion": node.metadata.resource_version,
    }
    return await client.patch(NODES, node.name, {"metadata": metadata}, subresource=subresource)


def _worth_another(error: ApiError, attempt: int) -> bool:
    """Whether to try again: the object changed meanwhile, or the write may have succeeded."""
    return attempt + 1 < WRITES and (error.status == CONFLICT or error.outcome_unknown)


async def _between(attempt: int) -> None:
    """Sleep 100 ms, doubled each time, with up to half as much again; not before the first try."""
    if attempt:
        await asyncio.sleep(RETRY * 2 ** (attempt - 1) * uniform(1.0, 1.5))  # noqa: S311 -- jitter


def _duration(seconds: float) -> str:
    """The duration as Go prints it: ``5m0s``, ``28s``."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
