"""A small client of any Kubernetes API, for tests; it keeps questions and answers."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
GROUPS = {
    "leases": "coordination.k8s.io/v1",
    "poddisruptionbudgets": "policy/v1",
    "deployments": "apps/v1",
}
SECONDS = 60.0
"""Seconds to wait for what controllers do; they take milliseconds, but a busy machine takes
longer."""


@dataclass(frozen=True, kw_only=True)
class Target:
    url: str
    token: str
    authority: str
    real: bool


def target_of_kubeconfig(path: Path) -> Target:
    config = yaml.safe_load(path.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    encoded = cluster.get("certificate-authority-data", "")
    authority = base64.b64decode(encoded).decode()
    return Target(url=cluster["server"], token=user["token"], authority=authority, real=True)


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    body: Any
    headers: dict[str, str]

    @property
    def meta(self) -> dict[str, Any]:
        return self.body["metadata"]

    @property
    def version(self) -> str:
        return self.meta["resourceVersion"]

    @property
    def refusal(self) -> tuple[int, str]:
        """Code and reason of a Status."""
        assert self.body["kind"] == "Status", self.body
        assert self.body["code"] == self.status
        return self.status, self.body.get("reason", "")

    @property
    def message(self) -> str:
        return self.body["message"]

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]

    def fields(self) -> list[str]:
        """The problems of a 422, by field."""
        return [cause["field"] for cause in self.body["details"]["causes"]]


class Api:
    def __init__(self, target: Target, namespace: str) -> None:
        self.target = target
        self.namespace = namespace
        self.real = target.real
        self._session: aiohttp.ClientSession | None = None
        self._was_left = False

    async def __aenter__(self) -> Api:
        context: ssl.SSLContext | bool = True
        if self.target.url.startswith("https"):
            context = ssl.create_default_context(cadata=self.target.authority or None)
            if not self.target.authority:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._session = aiohttp.ClientSession(
            self.target.url,
            connector=aiohttp.TCPConnector(ssl=context),
            headers={"Authorization": f"Bearer {self.target.token}"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        # The transports' last callbacks; TLS says farewell where it was the server that wanted to end.
        await asyncio.sleep(0.25 if self._was_left else 0)

    def path(self, plural: str, *rest: str) -> str:
        """``/api/v1/namespaces/<the test's>/pods/a/binding`` and the like."""
        group = GROUPS.get(plural)
        root = f"/apis/{group}" if group else "/api/v1"
        return "/".join((root, "namespaces", self.namespace, plural, *rest))

    async def call(
        self, method: str, path: str, body: Any = None, type: str = "application/json", **query: Any
    ) -> Answer:
        encoded = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        data = None if encoded is None else io.BytesIO(encoded)
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = type
        shown = {key: str(value) for key, value in query.items()}
        async with self._session.request(
            method, path, data=data, headers=headers, params=shown
        ) as answer:
            text = await answer.read()
            self._was_left |= answer.headers.get("Connection") == "close"
            is_json = "json" in answer.headers.get("Content-Type", "")
            found = json.loads(text) if is_json else text.decode()
            return Answer(status=answer.status, body=found, headers=dict(answer.headers))

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.call("GET", path, **query)

    async def table(self, path: str) -> Any:
        """The table that ``kubectl get`` shows."""
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
        async with self._session.get(path, headers={"Accept": accept}) as answer:
            return await answer.json()

    async def post(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.call("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.call("PUT", path, body, **query)

    async def patch(self, path: str, body: Any, type: str = MERGE, **query: Any) -> Answer:
        return await self.call("PATCH", path, body, type, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        return await self.call("DELETE", path, body, **query)

    async def created(self, plural: str, body: dict[str, Any], **query: Any) -> Answer:
        """Create an object that the server must accept."""
        answer = await self.post(self.path(plural), body, **query)
        assert answer.status == 201, answer.body
        return answer

    async def pod(self, name: str, **changes: Any) -> Answer:
        return await self.created("pods", a_pod(name, **changes))

    async def config_map(self, name: str, **metadata: Any) -> Answer:
        return await self.created("configmaps", {"metadata": {"name": name, **metadata}})

    async def bound(self, name: str, node: str = "n1") -> None:
        answer = await self.post(self.path("pods", name, "binding"), a_binding(name, node))
        assert answer.status == 201, answer.body

    async def set_status(self, name: str, **status: Any) -> None:
        answer = await self.patch(self.path("pods", name, "status"), {"status": status})
        assert answer.status == 200, answer.body

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[Events]:
        """The events of a watch, each as (type, object)."""
        shown = {"watch": "1", **{key: str(value) for key, value in query.items()}}
        async with self._session.get(
            path, params=shown, timeout=aiohttp.ClientTimeout(total=60)
        ) as answer:
            assert answer.status == 200, await answer.text()
            try:
                yield Events(answer.content)
            finally:
                if answer.connection and answer.connection.transport:
                    answer.connection.transport.abort()  # it would go on for ever

    async def eventually(
        self,
        ask: Callable[[], Awaitable[Answer]],
        holds: Callable[[Answer], bool] = lambda answer: answer.status < 400,
    ) -> Answer:
        """Ask until the condition holds; a real server's controllers take their time."""
        deadline = time.monotonic() + SECONDS
        while not holds(answer := await ask()):
            assert time.monotonic() < deadline, f"still {answer.body}"
            await asyncio.sleep(0.05)
        return answer


class Events:
    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    async def next(self) -> tuple[str, dict[str, Any]]:
        async with asyncio.timeout(SECONDS):
            line = await self._content.readline()
        assert line, "the watch has ended"
        event = json.loads(line)
        return event["type"], event["object"]

    async def take(self, count: int) -> list[tuple[str, str]]:
        """The next events as (type, name)."""
        found = []
        for _ in range(count):
            type, body = await self.next()
            found.append((type, body["metadata"]["name"]))
        return found

    async def ended(self) -> bool:
        async with asyncio.timeout(SECONDS):
            return await self._content.readline() == b""


def a_pod(name: str, *, limits: Any = None, requests: Any = None, **changes: Any) -> dict[str, Any]:
    """A pod that no scheduler takes; ``metadata`` is merged, other fields go into its spec."""
    metadata = {"name": name, **changes.pop("metadata", {})}
    resources = {k: v for k, v in (("limits", limits), ("requests", requests)) if v is not None}
    container = {"name": "c", "image": "busybox:1", "resources": resources}
    spec = {"schedulerName": "nobody", "containers": [container], **changes}
    return {"metadata": metadata, "spec": spec}


def a_binding(name: str, node: str = "n1", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
