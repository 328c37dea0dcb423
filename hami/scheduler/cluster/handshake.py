"""HAMi's sign of life: the leader asks, a node's agent answers, silence means that it is gone.

Asked are only vendors that live by this (``liveness: handshake``), only on nodes that carry their
register, and only when they have answered: a scheduler that stamps every vendor's key on every
node spends minutes of API calls on nodes without such devices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

from hami.domain.kubernetes.objects import Node
from hami.domain.profile import VendorProfile
from hami.kube.errors import FORBIDDEN, NOT_FOUND, ApiError
from hami.kube.pace import TokenBucket, Turns
from hami.kube.resources import NODES, HasMetadata, Resource
from hami.policy.profile.liveness import alive
from hami.vendors.registry import Vendors
from hami.wire.codecs import Requesting, decode_handshake, encode_requesting

EVERY = 15.0
"""Seconds between two rounds of asking; HAMi's figure."""

WRITES_PER_SECOND = 50.0
"""A cluster larger than this can ask in one round is asked more rarely, and never in a storm."""

LOOK_EVERY = 5.0
"""Seconds between looks at whose patience has run out."""

T = TypeVar("T", bound=HasMetadata)


class NodeState(Protocol):
    """The part of ``ClusterState`` that this needs."""

    @property
    def vendors(self) -> Vendors: ...

    @property
    def nodes(self) -> Mapping[str, Node]: ...

    def reread_node(self, name: str) -> None: ...


class NodeClient(Protocol):
    """The part of ``hami.kube.client.KubeClient`` that this needs."""

    async def patch(self, resource: Resource[T], name: str, patch: Any) -> T: ...


class Handshakes:
    """The leader's part: asks every vendor that has answered."""

    def __init__(
        self,
        state: NodeState,
        client: NodeClient,
        *,
        leading: Callable[[], bool],
        now: Callable[[], datetime],
        on_problem: Callable[[str], None],
        every: float = EVERY,
        pace: TokenBucket | None = None,
    ) -> None:
        """``now`` gives the local time without a zone, as handshakes are written."""
        self._state = state
        self._client = client
        self._leading = leading
        self._now = now
        self._on_problem = on_problem
        self._every = every
        self._pace = pace or TokenBucket(rate=WRITES_PER_SECOND, burst=int(WRITES_PER_SECOND))
        self._told = ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._leading():
                await self._round()
            await asyncio.sleep(self._every)

    async def _round(self) -> None:
        turns = Turns()
        for name in list(self._state.nodes):
            await turns.pause()
            if (node := self._state.nodes.get(name)) is None:
                continue
            keys = list(unanswered(node, self._state.vendors.profiles))
            if not keys:
                continue
            await self._pace.wait()
            if not self._leading():
                return
            await self._ask(name, keys)

    async def _ask(self, name: str, keys: Iterable[str]) -> None:
        """All vendors of a node with one write."""
        stamps = dict.fromkeys(keys, encode_requesting(self._now()))
        try:
            await self._client.patch(NODES, name, {"metadata": {"annotations": stamps}})
        except ApiError as error:
            if error.status == NOT_FOUND:
                return
            # Once for the role, or once for each thing that goes wrong: not for every node.
            text = "nodes may not be patched" if error.status == FORBIDDEN else str(error)
            if text != self._told:
                self._told = text
                self._on_problem(f"cannot ask node {name} for a sign of life: {error}")
        else:
            self._told = ""


def unanswered(node: Node, profiles: Iterable[VendorProfile]) -> Iterator[str]:
    """The handshake keys of this node that hold no question yet."""
    annotations = node.annotations
    for profile in profiles:
        keys = profile.node_annotations
        if (
            profile.liveness != "handshake"
            or not keys.handshake
            or keys.register not in annotations
        ):
            continue
        if not isinstance(decode_handshake(annotations.get(keys.handshake, "")), Requesting):
            yield keys.handshake


class Patience:
    """Every replica's part: has the state read nodes anew whose agents did not answer in time.

    Nothing happens in the cluster at that moment, so no informer says it.
    """

    def __init__(
        self, state: NodeState, *, now: Callable[[], datetime], every: float = LOOK_EVERY
    ) -> None:
        self._state = state
        self._now = now
        self._every = every

    async def run(self) -> None:
        """Until cancelled."""
        before = self._now()
        while True:
            await asyncio.sleep(self._every)
            now, turns = self._now(), Turns()
            for name in list(self._state.nodes):
                node = self._state.nodes.get(name)
                if node is not None and flipped(node, self._state.vendors.profiles, before, now):
                    self._state.reread_node(name)
                await turns.pause()
            before = now


def flipped(node: Node, profiles: Iterable[VendorProfile], before: datetime, now: datetime) -> bool:
    """Time alone has changed whether some vendor's devices on this node are there."""
    return any(
        alive(profile, node, before) != alive(profile, node, now)
        for profile in profiles
        if profile.liveness == "handshake"
        and profile.node_annotations.handshake in node.annotations
    )


def local_time() -> datetime:
    """Without a zone, as handshakes are written."""
    return datetime.now()  # noqa: DTZ005


def alive_now(profile: VendorProfile, node: Node) -> bool:
    """Whether the vendor's agent on the node has answered in time."""
    return alive(profile, node, local_time())
