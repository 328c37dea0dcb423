"""A cheap client with one keep-alive connection, like kube-scheduler's to its extender.

Requests are made beforehand, so that the time is the server's and the loopback interface's.
"""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


def a_post(path: str, body: bytes) -> bytes:
    """The bytes of a whole request."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kube-scheduler/v1.36.0\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def a_get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


class Connection:
    """A connection; ``url`` is http://host:port."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        assert address.hostname
        assert address.port
        self._socket = socket.create_connection((address.hostname, address.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(1 << 24))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask(self, request: bytes) -> tuple[float, bytes]:
        """Send a request; seconds until the whole answer was there, and its body. Must be a 200."""
        begin = time.perf_counter()
        self._socket.sendall(request)
        got = self._socket.recv_into(self._buffer)
        whole = self._whole(got)
        while got < whole:
            more = self._socket.recv_into(self._buffer[got:])
            if not more:
                raise ConnectionError("the server has closed the connection")
            got += more
            whole = self._whole(got) if whole == _UNKNOWN else whole
        taken = time.perf_counter() - begin
        answer = bytes(self._buffer[:whole])
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise ConnectionError(answer[:500].decode(errors="replace"))
        return taken, answer[answer.index(_END) + len(_END) :]

    def _whole(self, got: int) -> int:
        """The length of the answer, once its head has arrived."""
        head = bytes(self._buffer[: min(got, 4096)])
        end = head.find(_END)
        if end < 0:
            return _UNKNOWN
        start = head.lower().index(_LENGTH) + len(_LENGTH)
        return end + len(_END) + int(head[start : head.index(b"\r", start)])


_UNKNOWN = 1 << 40
