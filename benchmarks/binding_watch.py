"""When each pod was bound, as a watcher of the API server sees it."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from urllib.parse import urlsplit

import msgspec

from tests.kubernetes.client import pods_path
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.processes import until


class _Metadata(msgspec.Struct):
    name: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Spec(msgspec.Struct):
    node_name: str = msgspec.field(name="nodeName", default="")


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class _Event(msgspec.Struct):
    type: str
    object: _Pod


class BindingWatch:
    """A context manager; ``bound`` has ``time.monotonic()`` of each pod's first sight as bound."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.bound: dict[str, float] = {}
        self._plane, self._path = plane, pods_path(namespace)
        address = urlsplit(plane.url)
        tls = ssl.create_default_context(cafile=str(plane.authority.certificate))
        self._connection = http.client.HTTPSConnection(
            str(address.hostname), address.port, context=tls
        )
        self._ended = False
        self._thread = threading.Thread(target=self._read, name="binding watch")

    def __enter__(self) -> BindingWatch:
        self._version = self._plane.admin.get(self._path)["metadata"]["resourceVersion"]
        self._answer = self._asked()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        assert self._connection.sock
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def wait(self, count: int, seconds: float) -> None:
        """Wait until this many pods are bound."""
        until(
            f"{count} bindings",
            lambda: len(self.bound) >= count,
            seconds=seconds,
            seen=lambda: f"{len(self.bound)} so far",
        )

    def _asked(self) -> http.client.HTTPResponse:
        self._connection.request(
            "GET",
            f"{self._path}?watch=1&allowWatchBookmarks=1&resourceVersion={self._version}",
            headers={"Authorization": "Bearer admin-token", "Accept": "application/json"},
        )
        return self._connection.getresponse()

    def _read(self) -> None:
        decoder = msgspec.json.Decoder(_Event)
        rest = b""
        while not self._ended:
            try:
                data = self._answer.read1(1 << 20)
            except (OSError, http.client.HTTPException):
                if self._ended:
                    return  # our own shutdown of the socket
                raise
            now = time.monotonic()
            if not data and not self._ended:
                # kube-apiserver ends a watch whose client reads too slowly: go on where it ended.
                self._connection.close()
                self._answer, rest = self._asked(), b""
                continue
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                pod = decoder.decode(line).object
                self._version = pod.metadata.resource_version
                if pod.spec.node_name:
                    self.bound.setdefault(pod.metadata.name, now)
