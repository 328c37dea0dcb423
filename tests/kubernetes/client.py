"""A small synchronous client of the API server, independent of the code under test."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

Object = dict[str, Any]

CLOSED = (
    http.client.RemoteDisconnected,
    ConnectionResetError,
    BrokenPipeError,
    ssl.SSLEOFError,
)
MERGE = "application/merge-patch+json"
JSON = "application/json"


class Refused(Exception):
    """An answer of 400 or above: ``status``, and the message of the Status object."""

    def __init__(self, method: str, path: str, status: int, body: bytes) -> None:
        try:
            said = json.loads(body).get("message", "")
        except (ValueError, AttributeError):
            said = body.decode(errors="replace")
        super().__init__(f"{method} {path}: {status} {said}")
        self.status, self.message = status, said


class Client:
    """JSON in and out, over one connection per thread that is kept open."""

    def __init__(self, server: str, *, token: str = "", ca: Path | None = None) -> None:
        parts = urlsplit(server)
        assert parts.hostname
        self._host, self._port = parts.hostname, parts.port
        self._token = token
        self._tls = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=str(ca) if ca else None)
        self._here = threading.local()
        self._all: list[http.client.HTTPConnection] = []
        self.warnings: list[str] = []
        """What the server said beside its answers; kubectl shows it as a warning."""

    def close(self) -> None:
        for connection in self._all:
            connection.close()

    def send(
        self, method: str, path: str, body: object = None, *, content: str = JSON
    ) -> tuple[int, bytes]:
        """Send one request; reopen, once, a connection that the server has closed."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Accept": JSON}
        if body is not None:
            headers["Content-Type"] = content
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        for attempt in (1, 2):
            connection = self._connection()
            try:
                connection.request(method, path, payload if body is not None else None, headers)
                answer = connection.getresponse()
                self.warnings += answer.headers.get_all("Warning", [])
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                closed = isinstance(error, CLOSED)
                if attempt == 2 or not closed:
                    raise
        raise AssertionError("unreachable")

    def call(self, method: str, path: str, body: object = None, *, content: str = JSON) -> Object:
        """Make a call.

        Raises:
            Refused: the answer is 400 or above.
        """
        status, answer = self.send(method, path, body, content=content)
        if status >= 400:
            raise Refused(method, path, status, answer)
        return json.loads(answer)

    def get(self, path: str) -> Object:
        return self.call("GET", path)

    def list(self, path: str, **query: str) -> list[Object]:
        return list(self.get(f"{path}?{urlencode(query)}" if query else path)["items"])

    def text(self, path: str) -> str:
        status, answer = self.send("GET", path)
        if status >= 400:
            raise Refused("GET", path, status, answer)
        return answer.decode()

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        return self.call("POST", path, body)

    def merge(self, path: str, patch: Mapping[str, Any]) -> Object:
        return self.call("PATCH", path, patch, content=MERGE)

    def delete(self, path: str, *, grace: int | None = None) -> Object:
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        return self.call("DELETE", path, options)

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except Refused as error:
            if error.status == 404:
                return False
            raise
        return True

    def _connection(self) -> http.client.HTTPConnection:
        connection = getattr(self._here, "connection", None)
        if connection is None:
            if self._tls:
                connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=60, context=self._tls
                )
            else:
                connection = http.client.HTTPConnection(self._host, self._port, timeout=60)
            self._here.connection = connection
            self._all.append(connection)
        return connection


NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"


def node_path(name: str) -> str:
    return f"{NODES}/{quote(name)}"


def pods_path(namespace: str, name: str = "") -> str:
    return f"{NAMESPACES}/{namespace}/pods" + (f"/{name}" if name else "")


def quotas_path(namespace: str, name: str = "") -> str:
    return f"{NAMESPACES}/{namespace}/resourcequotas" + (f"/{name}" if name else "")
