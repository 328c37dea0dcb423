"""One socket that kubelet calls us on, from its making to its removal."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio

from hami.domain.errors import ConfigError, HamiError
from hami.node.kubelet.device_list import Streams
from hami.node.kubelet.kubelet_socket import Identity, identity_of

MODE = 0o600
LONGEST_PATH = 107
"""Bytes of ``sun_path``, without the end."""
ENDING = 1.0
"""Seconds for our streams to end; kubelet takes what it is sent, or is gone."""

NAME = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?")
"""As a resource's name after its slash."""
_UNIQUE = 8


class CannotListen(HamiError):
    """The socket cannot be made; whoever runs the agent must act."""


class PluginSocket:
    """A gRPC server on a fresh name in kubelet's folder."""

    def __init__(
        self,
        folder: Path,
        name: str,
        streams: Streams,
        handlers: Callable[[Streams], grpc.GenericRpcHandler],
    ) -> None:
        self.path = folder / f"{_prefix(name)}{secrets.token_hex(_UNIQUE // 2)}.sock"
        self.streams = streams
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((handlers(streams),))
        self._identity: Identity | None = None

    async def start(self) -> None:
        """Begin to serve. The caller closes it even when this raises :class:`CannotListen`."""
        try:
            self.bind()
            await self._server.start()
        except (OSError, RuntimeError) as error:
            # Without the name, which differs each time: it is told once.
            reason = str(error).replace(self.path.name, "SOCKET")
            raise CannotListen(
                f"cannot listen in {self.path.parent}: {reason}; the agent needs to write in "
                "kubelet's device plugin folder"
            ) from error
        self._identity = identity_of(self.path)

    def bind(self) -> None:
        """Make the socket's file. Nobody is answered yet."""
        self._server.add_insecure_port(f"unix:{self.path}")
        # Only root reaches kubelet's folder; this is for a folder that is more open than that.
        self.path.chmod(MODE)

    @property
    def reachable(self) -> bool:
        """Whether the file is still ours: kubelet's start deletes it."""
        return self._identity is not None and identity_of(self.path) == self._identity

    async def end_streams(self) -> None:
        """End the streams, so that another socket may be registered."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING):
                await self.streams.end()

    async def stop(self, grace: float) -> None:
        """Take no more calls, and give those under way ``grace`` seconds; a shorter grace wins."""
        await self._server.stop(grace)

    async def close(self, *, grace: float) -> None:
        """End the streams, stop, and remove the file."""
        try:
            await self.end_streams()
            await self.stop(grace)
        finally:
            self.path.unlink(missing_ok=True)


def check_name(folder: Path, name: str) -> None:
    """Raise :class:`ConfigError` where no socket can be made for ``name`` in ``folder``."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"a socket's name is made of letters, digits, -, _ and ., and {name!r} is not"
        )
    path = folder / f"{_prefix(name)}{'0' * _UNIQUE}.sock"
    length = len(bytes(path))
    if length > LONGEST_PATH:
        raise ConfigError(
            f"the socket {path} would have a path of {length} bytes, and Linux takes "
            f"{LONGEST_PATH}; use a shorter device plugin folder"
        )


def remove_stale(folder: Path, name: str) -> None:
    """Remove the sockets of processes of this name that could not remove them themselves."""
    ours = re.compile(rf"{re.escape(_prefix(name))}[0-9a-f]{{{_UNIQUE}}}\.sock")
    try:
        found = [path for path in folder.iterdir() if ours.fullmatch(path.name)]
    except FileNotFoundError:
        return
    for path in found:
        if _is_dead(path):
            path.unlink(missing_ok=True)


def _prefix(name: str) -> str:
    return f"hami-{name}-"


def _is_dead(path: Path) -> bool:
    """Whether nobody listens on the socket; one with a full queue has a listener."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
