"""The API server as a whole: start it, talk to it over HTTP, or write to it directly."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hami.domain.errors import ConfigError
from hami_lab.api.http.calls import Calls
from hami_lab.api.http.faults import Faults
from hami_lab.api.http.front import Application
from hami_lab.api.http.tls import TlsFiles
from hami_lab.api.objects.kinds import Kind
from hami_lab.api.objects.persistence import ObjectFile
from hami_lab.api.objects.request import Request
from hami_lab.api.objects.storage import copied
from hami_lab.api.patches.documents import merge_patch
from hami_lab.api.writes.deletion import DeleteOptions
from hami_lab.api.writes.operations import Operations

Json = dict[str, Any]

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_AGENT = "in-process"


class ApiServer:
    """A Kubernetes API in memory, on a port of its own.

    ``history``: changes of each resource that a watch can still go on from; an older version gets
    410. ``token``: what clients must present, empty: nothing. ``bookmark_seconds``: how often a
    watch that asks for bookmarks gets one (a real server: once a minute). ``tls``: serve HTTPS;
    client-go, and so kubectl, sends a token over HTTPS alone. ``persist``: keep the objects in
    this SQLite file and go on from it.
    """

    def __init__(
        self,
        *,
        faults: Faults | None = None,
        token: str = "",
        history: int = 10_000,
        bookmark_seconds: float = 60.0,
        tls: TlsFiles | None = None,
        persist: Path | None = None,
    ) -> None:
        self.faults = faults or Faults()
        self.calls = Calls()
        self.url = ""
        self._token = token
        self._tls = tls
        self._persist = persist
        self._file: ObjectFile | None = None
        self._operations = Operations(history=history)
        self._application = Application(
            self._operations,
            faults=self.faults,
            calls=self.calls,
            token=token,
            bookmark_seconds=bookmark_seconds,
        )
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ApiServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(
        self, *, host: str = "127.0.0.1", port: int = 0, tls: TlsFiles | None = None
    ) -> None:
        """Listen; ``url`` says where.

        Raises:
            ConfigError: the port or the file is taken.
        """
        self._tls = tls = tls or self._tls
        listener = _listen(host, port)
        try:
            await self._furnish(tls)
        except BaseException:
            listener.close()
            raise
        config = uvicorn.Config(
            self._application,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=300,
            timeout_graceful_shutdown=1,
            ssl_certfile=str(tls.certificate) if tls else None,
            ssl_keyfile=str(tls.key) if tls else None,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        while not self._server.started:
            if self._serving.done():
                listener.close()
                await self._serving
            await asyncio.sleep(0.005)
        shown = f"[{host}]" if ":" in host else host
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://{shown}:{listener.getsockname()[1]}"

    async def _furnish(self, tls: TlsFiles | None) -> None:
        """What was kept in the file, and what every cluster has."""
        if tls is not None:
            self._operations.controllers.certificate = tls.certificate.read_text()
        if self._persist is not None and self._file is None:
            self._file = self._operations.keep_in(ObjectFile(self._persist))
        for name in _NAMESPACES:
            if self._operations.storage.get(("", "namespaces"), "", name) is None:
                await self.create(
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                )

    async def stop(self) -> None:
        """End all watches, close the port and what webhooks were called over."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            self._application.end_watches()
            await self._serving
        self._server = self._serving = None
        if self._file is not None:
            self._operations.storage.on_change.remove(self._file.write)
            self._file.close()
            self._file = None
        await self._operations.webhooks.close()

    def kubeconfig(self) -> Json:
        """A kubeconfig for kubectl and every other client; write it as JSON or YAML."""
        cluster: Json = {"server": self.url}
        if self._tls is not None:
            certificate = self._tls.certificate.read_bytes()
            cluster["certificate-authority-data"] = base64.b64encode(certificate).decode()
        user = {"token": self._token} if self._token else {}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "hami", "cluster": cluster}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [
                {"name": "hami", "context": {"cluster": "hami", "user": "admin"}},
            ],
            "current-context": "hami",
        }

    # Direct access, for the simulation: the same defaults, checks and admission as over HTTP.

    async def create(self, manifest: Json) -> Json:
        """Create an object from a manifest; it is left as it is.

        Raises:
            Refusal: as over HTTP.
            ConfigError: there is no such kind.
        """
        kind, namespace, name = self._target(manifest)
        request = _request("create", kind, namespace, name)
        item = await self._operations.create(request, copied(manifest))
        return _shown(kind, item.object())

    async def patch(
        self, plural: str, name: str, patch: Json, *, namespace: str = "", group: str = "",
        subresource: str = "",
    ) -> Json:  # fmt: skip
        """Apply a merge patch.

        Raises:
            Refusal: as over HTTP.
        """
        kind = self._operations.kinds.named(plural, group)
        request = _request("patch", kind, namespace, name, subresource)
        item = await self._operations.patch(request, lambda body: merge_patch(body, patch))
        return _shown(kind, item.object())

    async def delete(
        self, plural: str, name: str, *, namespace: str = "", group: str = "",
        grace: int | None = None,
    ) -> None:  # fmt: skip
        """Delete an object; ``grace`` in seconds.

        Raises:
            Refusal: as over HTTP.
        """
        kind = self._operations.kinds.named(plural, group)
        request = _request("delete", kind, namespace, name)
        await self._operations.delete(request, DeleteOptions(grace=grace))

    def get(self, plural: str, name: str, *, namespace: str = "", group: str = "") -> Json:
        """One object.

        Raises:
            Refusal: 404.
        """
        kind = self._operations.kinds.named(plural, group)
        return _shown(kind, self._operations.find(kind, namespace, name).object())

    def objects(self, plural: str, *, namespace: str = "", group: str = "") -> list[Json]:
        """All objects of a resource, in the order of namespace and name."""
        kind = self._operations.kinds.named(plural, group)
        items = self._operations.storage.collection(kind.storage).within(namespace)
        return [_shown(kind, item.object()) for item in items]

    def forget_history(self) -> None:
        """As etcd's compaction does: a watch from any version before now gets 410."""
        self._operations.storage.forget_history()

    def _target(self, manifest: Mapping[str, Any]) -> tuple[Kind, str, str]:
        version, name = manifest.get("apiVersion", "v1"), manifest.get("kind", "")
        kind = self._operations.kinds.of(version, name)
        if kind is None:
            raise ConfigError(f"the API server knows no kind {name!r} in {version!r}")
        metadata = manifest.get("metadata") or {}
        namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
        return kind, namespace, metadata.get("name") or ""


def _request(verb: str, kind: Kind, namespace: str, name: str, subresource: str = "") -> Request:
    return Request(
        verb=verb,
        kind=kind,
        namespace=namespace if kind.namespaced else "",
        name=name,
        subresource=subresource,
        user_agent=_AGENT,
    )


def _shown(kind: Kind, body: Json) -> Json:
    return {"apiVersion": kind.group_version, "kind": kind.kind, **body}


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # asyncio sets it only on sockets whose protocol is named; without it an answer waits 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another port"
        ) from error
    listener.settimeout(0)
    return listener


class _Server(uvicorn.Server):
    """uvicorn within somebody else's program: signals are that program's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Protocol(HttpToolsProtocol):
    """Hands the transport on, so that a fault can close the connection without an answer."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["transport"] = self.transport
