"""An admission webhook for tests: it answers as told and remembers its requests."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from hami_lab.api import TlsFiles

Response = dict[str, Any]
ALLOWED: Response = {"allowed": True}


def denied(message: str, code: int = 0, reason: str = "") -> Response:
    status = {"message": message}
    return {
        "allowed": False,
        "status": status
        | ({"code": code} if code else {})
        | ({"reason": reason} if reason else {}),
    }


def patched(*operations: dict[str, Any]) -> Response:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def annotated(key: str, value: str) -> Callable[[Any], Response]:
    """A response that adds an annotation, unless the object has it."""

    def respond(request: Any) -> Response:
        annotations = request["object"]["metadata"].get("annotations")
        if annotations is None:
            return patched({"op": "add", "path": "/metadata/annotations", "value": {key: value}})
        if key in annotations:
            return ALLOWED
        return patched({"op": "add", "path": f"/metadata/annotations/{key}", "value": value})

    return respond


class WebhookServer:
    """``responds[path]`` is a response, a function of the request, or raw bytes."""

    def __init__(self, folder: Path) -> None:
        self._files = TlsFiles.self_signed(folder)
        self.authority = base64.b64encode(self._files.certificate.read_bytes()).decode()
        self.responds: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def __aenter__(self) -> WebhookServer:
        application = web.Application()
        application.router.add_post("/{path}", self._answer)
        # A handler ends with its request: nobody waits for one that was too slow.
        self._runner = web.AppRunner(application, handler_cancellation=True)
        await self._runner.setup()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._files.certificate, self._files.key)
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        self.url = f"https://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        # An API server keeps its connections, and does not answer that they are to be closed.
        for connection in self._runner.server.connections if self._runner.server else ():
            if connection.transport:
                connection.transport.abort()
        await self._runner.cleanup()

    def requests(self, path: str) -> list[dict[str, Any]]:
        return [request for asked, request in self.asked if asked == path]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        review = await request.json()
        self.asked.append((path, review["request"]))
        respond = self.responds[path]
        if isinstance(respond, bytes):
            return web.Response(body=respond)
        if callable(respond):
            respond = respond(review["request"])
        if hasattr(respond, "__await__"):
            respond = await respond
        response = {"uid": review["request"]["uid"], **respond}
        return web.json_response({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response,
        })  # fmt: skip
