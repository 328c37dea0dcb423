"""The list of device ids, and the streams over which kubelet follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from hami.node.kubelet.api import v1beta1_pb2 as api
from hami.node.kubelet.tokens import Token

Write = Callable[[bytes], Awaitable[None]]


class DeviceList:
    """The list that was published last: ``message``, encoded once for all streams.

    ``followers`` are set when it is to be sent anew; ``published`` is set from the first list on.
    """

    def __init__(self) -> None:
        self.published = asyncio.Event()
        self.message = b""
        self.followers: set[asyncio.Event] = set()
        self._tokens: tuple[Token, ...] = ()

    @property
    def healthy(self) -> int:
        """How many ids are healthy."""
        return sum(token.healthy for token in self._tokens)

    @property
    def ids(self) -> frozenset[str]:
        """All ids, healthy or not."""
        return frozenset(token.id for token in self._tokens)

    def publish(self, tokens: Sequence[Token]) -> None:
        """Send this list on every open stream, unless it is the list that they have."""
        new = tuple(tokens)
        if self.published.is_set() and new == self._tokens:
            return
        self._tokens = new
        self.message = _encoded(new)
        self.published.set()
        self.resend()

    def resend(self) -> None:
        """Send the list again on every open stream: kubelet then writes its checkpoint again."""
        for follower in self.followers:
            follower.set()


class Streams:
    """kubelet's ListAndWatch calls on one socket.

    ``watched`` is set once the list has gone out, ``lost`` once a stream has ended that we did not
    end or that was given up, ``quiet`` while none is open.
    """

    def __init__(self, devices: DeviceList) -> None:
        self.watched = asyncio.Event()
        self.lost = asyncio.Event()
        self.quiet = asyncio.Event()
        self.quiet.set()
        self._devices = devices
        self._open: set[asyncio.Event] = set()
        self._ending = False

    async def serve(self, write: Write) -> None:
        """Serve one stream, from kubelet's call to its end."""
        news = asyncio.Event()
        self._open.add(news)
        self._devices.followers.add(news)
        self.quiet.clear()
        try:
            while not self._ending:
                news.clear()
                await write(self._devices.message)
                self.watched.set()
                await news.wait()
        finally:
            self._devices.followers.discard(news)
            self._open.discard(news)
            if not self._open:
                self.quiet.set()
            if not self._ending:
                self.lost.set()

    def give_up(self) -> None:
        """Count the open streams as lost."""
        self.lost.set()

    async def end(self) -> None:
        """End them all, and wait until they have ended."""
        self._ending = True
        for news in self._open:
            news.set()
        await self.quiet.wait()


def _encoded(tokens: Sequence[Token]) -> bytes:
    response = api.ListAndWatchResponse()
    for token in tokens:
        device = response.devices.add(
            ID=token.id, health="Healthy" if token.healthy else "Unhealthy"
        )
        if token.numa is not None:
            device.topology.nodes.add(ID=token.numa)
    return response.SerializeToString(deterministic=True)
