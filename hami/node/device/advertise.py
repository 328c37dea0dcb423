"""What the node says of its devices: the vendor's annotations, and how its agent finds its pods.

Written through ``nodes/status``, which is all of a node that an agent may write, and compared with
the node as it is: what somebody removed comes back, and nothing counts as written before the API
server said so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import structlog

from hami.domain.devices import Device
from hami.domain.errors import VendorFailed
from hami.domain.kubernetes.objects import Node
from hami.domain.slices import Identity
from hami.kube.client import KubeClient
from hami.kube.errors import CONFLICT, FORBIDDEN, NO_ANSWER, ApiError
from hami.kube.informer import Informer, is_older
from hami.kube.outages import Outage
from hami.kube.pace import Backoff
from hami.kube.resources import NODES
from hami.vendors.boundary import Vendor
from hami.wire import keys
from hami.wire.codecs import Reported, decode_handshake, encode_reported
from hami.wire.node_identity import marked, merged_identity, without_identity

EVERY = 30.0
"""Seconds between two writes that nothing of ours is the reason of; HAMi's figure."""

WITHDRAWAL = 3.0
"""Seconds for the last thing that is written."""


class Advertiser:
    """Keeps the node's annotations as the vendor wants them for the devices of the moment.

    A change of ours is written at once; what others change is put right after ``every`` seconds at
    the earliest, and so is a scheduler answered that asks for a sign of life. ``published`` is set
    once the node says what it should.
    """

    def __init__(
        self,
        client: KubeClient,
        node: str,
        vendor: Vendor,
        identity: Identity,
        *,
        vouched: Callable[[], bool] = lambda: True,
        on_problem: Callable[[str], None],
        on_labels: Callable[[Mapping[str, str]], None] = lambda _: None,
        every: float = EVERY,
        now: Callable[[], datetime] = datetime.now,
        backoff: Backoff | None = None,
    ) -> None:
        """``now`` gives the local time without a zone, as handshakes are written.

        ``on_labels`` is told of the node's labels whenever they may have changed. ``vouched``:
        something will say that we are gone; what saves pods the lock is not said before.
        """
        self.published = asyncio.Event()
        self._client = client
        self._name = node
        self._vendor = vendor
        self._identity = identity
        self._vouched = vouched
        self._on_problem = on_problem
        self._on_labels = on_labels
        self._every = every
        self._now = now
        self._backoff = backoff or Backoff(first=0.2, most=30.0)
        self._informer = Informer(
            client,
            NODES,
            self,
            field_selector=f"metadata.name={node}",
            on_problem=on_problem,
        )
        self._live: Node | None = None
        self._wanted: Mapping[str, str | None] | None = None
        self._ours_is_new = False
        self._wrote_at = -every
        self._due = asyncio.Event()
        self._outage = Outage()
        self._told = ""
        self._log = structlog.get_logger("hami.advertise")

    @property
    def node(self) -> Node | None:
        """The node as the agent last saw it; None before that."""
        return self._live

    @property
    def heard_at(self) -> float:
        """When the API server last said anything of the node (monotonic seconds)."""
        return self._informer.last_event_at

    def set_devices(self, devices: Sequence[Device]) -> None:
        """Publish these devices from now on; if the vendor fails, the annotations stay."""
        try:
            annotations = self._vendor.node_annotations(devices)
        except VendorFailed as error:
            self._tell(f"the annotations of node {self._name} stay as they are: {error}")
            return
        # What was ours and is not wanted any more is removed.
        dropped = dict.fromkeys(key for key in self._wanted or () if key not in annotations)
        wanted: dict[str, str | None] = {**dropped, **annotations}
        profile = self._vendor.profile
        if register := wanted.get(profile.node_annotations.register):
            wanted[profile.node_annotations.register] = marked(register, profile)
        if wanted != self._wanted:
            self._wanted = wanted
            self._ours_is_new = True
            self.published.clear()
            self._due.set()

    def look_again(self) -> None:
        """Look at the node again: the heartbeat beats from now on."""
        self._ours_is_new = True
        self._due.set()

    async def withdraw(self) -> None:
        """Take the identity off the node before the agent ends: the next one may need the lock."""
        if self._identity != "kubelet":
            return
        try:
            async with asyncio.timeout(WITHDRAWAL):
                while not await self._withdrawn():
                    await asyncio.sleep(0)  # The node had changed.
        except (ApiError, TimeoutError) as error:
            self._tell(
                f"cannot take {keys.NODE_IDENTITY} off node {self._name}: {error or 'no answer'}; "
                "the scheduler notices within a minute that nobody vouches for it"
            )

    async def _withdrawn(self) -> bool:
        """Whether it is off the node; False if the node had changed meanwhile."""
        node = await self._client.get(NODES, self._name)
        text = node.annotations.get(keys.NODE_IDENTITY, "")
        left = without_identity(text, self._vendor.profile.key)
        if (left or "") == text:
            return True
        patch = {
            "annotations": {keys.NODE_IDENTITY: left},
            "resourceVersion": node.metadata.resource_version,
        }
        try:
            await self._client.patch(NODES, self._name, {"metadata": patch}, subresource="status")
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            return False
        return True

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            tasks.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            if self._live is None or self._wanted is None:
                continue
            if not self._changes(self._live):
                self._ours_is_new = False
                self.published.set()
                continue
            wait = 0.0 if self._ours_is_new else self._wrote_at + self._every - self._time()
            if wait > 0 and await self._overtaken(wait):
                continue
            await self._write()

    async def _overtaken(self, seconds: float) -> bool:
        """Whether something of ours changed while others' changes were waiting."""
        try:
            async with asyncio.timeout(seconds):
                while not self._ours_is_new:
                    await self._due.wait()
                    self._due.clear()
        except TimeoutError:
            return False
        self._due.set()
        return True

    async def _write(self) -> None:
        node = self._live
        changes = self._changes(node) if node is not None else {}
        if node is None or not changes:
            self._due.set()
            return
        metadata: dict[str, Any] = {"annotations": changes}
        if keys.NODE_IDENTITY in changes:
            # Agents of several vendors share it: it is written over exactly what was read.
            metadata["resourceVersion"] = node.metadata.resource_version
        self._wrote_at = self._time()
        self._ours_is_new = False  # What changes while this is written is new again.
        try:
            written = await self._client.patch(
                NODES, self._name, {"metadata": metadata}, subresource="status"
            )
        except ApiError as error:
            await self._failed(error)
            return
        self._backoff.reset()
        self._outage.over()
        self._told = ""
        self._take(written)
        self._log.info("published on the node", node=self._name, annotations=sorted(changes))

    async def _failed(self, error: ApiError) -> None:
        """Look at the node again, and try again, later each time."""
        if error.status != CONFLICT and self._is_news(error):
            advice = (
                "; allow our account to patch nodes/status" if error.status == FORBIDDEN else ""
            )
            self._on_problem(f"cannot publish the devices of node {self._name}: {error}{advice}")
        await asyncio.sleep(max(self._backoff.delay(), error.retry_after or 0.0))
        self._ours_is_new = True
        try:
            self._take(await self._client.get(NODES, self._name))
        except ApiError as again:
            if self._is_news(again):
                self._on_problem(f"cannot read node {self._name}: {again}")
            self._due.set()

    def _is_news(self, error: ApiError) -> bool:
        outage = self._client.unreachable if error.status == NO_ANSWER else self._outage
        return outage.is_news(error.status)

    def _changes(self, node: Node) -> dict[str, str | None]:
        """The annotations that the node lacks or has otherwise."""
        annotations = node.annotations
        wanted: dict[str, str | None] = dict(self._wanted or {})
        identities = annotations.get(keys.NODE_IDENTITY, "")
        if self._identity != "kubelet" or self._vouched():
            wanted[keys.NODE_IDENTITY] = merged_identity(
                identities, self._vendor.profile.key, self._identity
            )
        changes = {key: text for key, text in wanted.items() if annotations.get(key) != text}
        if key := self._asked(annotations):
            changes[key] = encode_reported(self._now())
        return changes

    def _asked(self, annotations: Mapping[str, str]) -> str:
        """The handshake's key, if a scheduler relies on it and waits for an answer; else empty."""
        profile = self._vendor.profile
        key = profile.node_annotations.handshake
        if profile.liveness != "handshake" or not key:
            return ""
        return "" if isinstance(decode_handshake(annotations.get(key, "")), Reported) else key

    def _take(self, node: Node) -> None:
        """Take over a state of the node, unless a newer one is known."""
        live = self._live
        same = live is not None and live.metadata.uid == node.metadata.uid
        if same and live is not None:
            have = live.metadata.resource_version
            if is_older(node.metadata.resource_version, than=have):
                return
        self._live = node
        self._due.set()
        self._on_labels(node.labels)

    def _tell(self, problem: str) -> None:
        """Report a problem once, as long as it stays the same."""
        if problem != self._told:
            self._told = problem
            self._on_problem(problem)

    def _time(self) -> float:
        return asyncio.get_running_loop().time()

    # What the informer says.

    def changed(self, new: Node, old: Node | None) -> None:  # noqa: ARG002 -- the handler's signature
        self._take(new)

    def gone(self, last: Node) -> None:
        if self._live is not None and self._live.metadata.uid == last.metadata.uid:
            self._live = None
