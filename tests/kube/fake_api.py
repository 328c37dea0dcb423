"""A small API server in memory, which can also misbehave; for tests of the client alone."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from hami.kube.client import KubeClient
from hami.kube.identity.settings import KubeSettings

Object = dict[str, Any]
KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "resourcequotas": "ResourceQuota",
    "leases": "Lease",
    "events": "Event",
    "secrets": "Secret",
    "configmaps": "ConfigMap",
    "namespaces": "Namespace",
}


@dataclass
class Asked:
    """A request that was received."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass
class Fault:
    """What to answer instead to requests that ``hits``, ``times`` times; no status: hang."""

    hits: Callable[[web.Request], bool]
    times: int
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: Object = field(default_factory=dict)
    after: bool = False


class Watcher:
    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()


class FakeApi:
    """``objects[plural][namespace, name]``; every change has the next resource version."""

    def __init__(self, seed: int = 0) -> None:
        self.url = ""
        self.objects: dict[str, dict[tuple[str, str], Object]] = {kind: {} for kind in KINDS}
        self.asked: list[Asked] = []
        self.faults: list[Fault] = []
        self.tokens: set[str] | None = None
        self.oldest = 0
        self.duplicates = 0.0
        self.page_lifetime = 1000
        self.open_watches = 0
        self._version = 100
        self._uids = 0
        self._history: dict[str, list[tuple[int, str, Object]]] = {kind: [] for kind in KINDS}
        self._watchers: dict[str, list[Watcher]] = {kind: [] for kind in KINDS}
        self._snapshots: dict[str, tuple[int, list[Object]]] = {}
        self._random = random.Random(seed)
        self._going = False
        self._never = asyncio.Event()

    # What tests do.

    def put(self, plural: str, name: str, namespace: str = "", **content: Any) -> Object:
        """Create or change an object; the same object keeps its uid."""
        key = (namespace, name)
        known = self.objects[plural].get(key)
        body: Object = {"apiVersion": "v1", "kind": KINDS[plural], **copy.deepcopy(content)}
        meta = body.setdefault("metadata", {})
        meta.update(name=name, **({"namespace": namespace} if namespace else {}))
        if known is None:
            self._uids += 1
        meta["uid"] = known["metadata"]["uid"] if known else f"uid-{self._uids}"
        return self._store(plural, key, "MODIFIED" if known else "ADDED", body)

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        body = copy.deepcopy(self.objects[plural].pop((namespace, name)))
        self._record(plural, "DELETED", body)

    def send(self, plural: str, type_: str, body: Object) -> None:
        """Send an event without any change."""
        self.send_line(plural, json.dumps({"type": type_, "object": body}).encode())

    def send_line(self, plural: str, line: bytes) -> None:
        for watcher in self._watchers[plural]:
            watcher.lines.put_nowait(line + b"\n")

    def send_part(self, plural: str, part: bytes) -> None:
        for watcher in self._watchers[plural]:
            watcher.lines.put_nowait(part)

    def bookmark(self, plural: str, version: str = "") -> None:
        body = {"kind": KINDS[plural], "metadata": {"resourceVersion": version or self.version}}
        self.send(plural, "BOOKMARK", body)

    def end_watches(self, plural: str) -> None:
        """End all watches, as a server does when they have lasted long enough or clients read
        slowly.
        """
        for watcher in self._watchers[plural]:
            watcher.lines.put_nowait(None)

    def expire(self) -> None:
        """Forget all history: a watch from an older version gets 410."""
        self.oldest = self._version
        self._snapshots.clear()

    def refuse(self, part: str, status: int, *, method: str = "", times: int = 1,
               reason: str = "", message: str = "no", after: bool = False,
               **headers: str) -> None:  # fmt: skip
        """Refuse requests. ``after``: carry them out first, like a lost answer."""
        body = {"kind": "Status", "code": status, "reason": reason, "message": message}
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        self.faults.append(Fault(_hits(part, method), times, status, named, body, after))

    def hang(self, part: str, *, method: str = "", times: int = 1) -> None:
        self.faults.append(Fault(_hits(part, method), times))

    @property
    def version(self) -> str:
        return str(self._version)

    def calls(self, method: str, part: str = "") -> list[Asked]:
        return [a for a in self.asked if a.method == method and part in a.path]

    # What clients get.

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else None
        self.asked.append(
            Asked(request.method, request.path, dict(request.query), body, dict(request.headers))
        )
        if self.tokens is not None and request.headers.get("Authorization") not in self.tokens:
            return _status(401, "Unauthorized", "Unauthorized")
        fault = next((f for f in self.faults if f.hits(request)), None)
        if fault is not None:
            fault.times -= 1
            if not fault.times:
                self.faults.remove(fault)
            if not fault.status:
                await self._never.wait()
            if fault.after:
                await self._route(request, body)
            return web.json_response(fault.body, status=fault.status, headers=fault.headers)
        return await self._route(request, body)

    async def _route(self, request: web.Request, body: Any) -> web.StreamResponse:
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": "30+"})
        parts = request.path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, "", "")[:3]
        if subresource:
            return self._act(plural, (namespace, name), subresource, body)
        if name:
            return self._one(request, plural, (namespace, name), body)
        if request.method == "POST":
            return self._create(plural, namespace, body)
        if "watch" in request.query:
            return await self._watch(request, plural, namespace)
        return self._list(request, plural, namespace)

    def _one(self, request: web.Request, plural: str, key: tuple[str, str],
             body: Any) -> web.Response:  # fmt: skip
        known = self.objects[plural].get(key)
        if known is None:
            return _status(404, "NotFound", f'{plural} "{key[1]}" not found')
        if request.method == "GET":
            return web.json_response(known)
        if request.method == "DELETE":
            wanted = ((body or {}).get("preconditions") or {}).get("uid")
            if wanted and wanted != known["metadata"]["uid"]:
                return _status(409, "Conflict", "uid")
            self.remove(plural, key[1], key[0])
            return web.json_response({"kind": "Status", "status": "Success"})
        version = (body.get("metadata") or {}).get("resourceVersion")
        if version and version != known["metadata"]["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified")
        changed = copy.deepcopy(body) if request.method == "PUT" else _merged(known, body)
        changed["metadata"]["uid"] = known["metadata"]["uid"]
        return web.json_response(self._store(plural, key, "MODIFIED", changed))

    def _act(self, plural: str, key: tuple[str, str], subresource: str, body: Any) -> web.Response:
        known = self.objects[plural].get(key)
        if known is None:
            return _status(404, "NotFound", f'{plural} "{key[1]}" not found')
        if subresource == "eviction":
            self.remove(plural, key[1], key[0])
            return _status(201, "", "")
        if subresource == "binding":
            if body["metadata"]["uid"] != known["metadata"]["uid"]:
                return _status(409, "Conflict", "Precondition failed: UID in precondition")
            if known.get("spec", {}).get("nodeName"):
                return _status(409, "Conflict", f"pod {key[1]} is already assigned to node")
            merged = {
                "spec": {"nodeName": body["target"]["name"]},
                "metadata": {"annotations": body["metadata"]["annotations"],
                             "labels": body["metadata"]["labels"]},
            }  # fmt: skip
            self._store(plural, key, "MODIFIED", _merged(known, merged))
            return _status(201, "", "")
        version = (body.get("metadata") or {}).get("resourceVersion")
        if version and version != known["metadata"]["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified")
        return web.json_response(self._store(plural, key, "MODIFIED", _merged(known, body)))

    def _create(self, plural: str, namespace: str, body: Any) -> web.Response:
        if body.get("kind") != KINDS[plural]:
            return _status(400, "BadRequest", "Object 'Kind' is missing")
        name = body["metadata"]["name"]
        if (namespace, name) in self.objects[plural]:
            return _status(409, "AlreadyExists", f'{plural} "{name}" already exists')
        return web.json_response(self.put(plural, name, namespace, **body), status=201)

    def _list(self, request: web.Request, plural: str, namespace: str) -> web.Response:
        token = request.query.get("continue", "")
        if token:
            name, _, offset = token.rpartition(":")
            if name not in self._snapshots:
                return _status(410, "Expired", "The provided continue parameter is too old")
            version, items = self._snapshots[name]
            start = int(offset)
        else:
            version, items, start = self._version, self._selected(request, plural, namespace), 0
            name = f"s{len(self.asked)}"
            self._snapshots[name] = version, items
        limit = int(request.query.get("limit") or 0) or len(items) or 1
        meta: Object = {"resourceVersion": str(version)}
        if start + limit < len(items):
            if start // limit < self.page_lifetime:
                meta["continue"] = f"{name}:{start + limit}"
            else:
                meta["continue"] = "expired:0"
        return web.json_response(
            {
                "kind": f"{KINDS[plural]}List",
                "metadata": meta,
                "items": items[start : start + limit],
            }
        )

    def _selected(self, request: web.Request, plural: str, namespace: str) -> list[Object]:
        return [
            copy.deepcopy(body)
            for (space, _), body in sorted(self.objects[plural].items())
            if (not namespace or space == namespace) and _selects(request, body)
        ]

    async def _watch(self, request: web.Request, plural: str, namespace: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < self.oldest:
            return _status(410, "Expired", f"too old resource version: {since}")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        watcher = Watcher()
        for version, type_, body in self._history[plural]:
            if version > since:
                watcher.lines.put_nowait(_line(type_, body))
        self._watchers[plural].append(watcher)
        self.open_watches += 1
        try:
            while not self._going and (line := await watcher.lines.get()) is not None:
                if _wanted(request, line, namespace):
                    await response.write(line)
        except ConnectionResetError:
            pass
        finally:
            self._watchers[plural].remove(watcher)
            self.open_watches -= 1
        return response

    def _store(self, plural: str, key: tuple[str, str], type_: str, body: Object) -> Object:
        self.objects[plural][key] = body
        return self._record(plural, type_, body)

    def _record(self, plural: str, type_: str, body: Object) -> Object:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        kept = copy.deepcopy(body)
        self._history[plural].append((self._version, type_, kept))
        for watcher in self._watchers[plural]:
            watcher.lines.put_nowait(_line(type_, kept))
            if self._random.random() < self.duplicates:
                _, old, again = self._random.choice(self._history[plural])
                watcher.lines.put_nowait(_line(old, again))
        return body

    def close(self) -> None:
        self._going = True
        self._never.set()
        for plural in KINDS:
            self.end_watches(plural)


def _line(type_: str, body: Object) -> bytes:
    return json.dumps({"type": type_, "object": body}).encode() + b"\n"


def _wanted(request: web.Request, line: bytes, namespace: str) -> bool:
    try:
        event = json.loads(line)
    except ValueError:
        return True
    if not isinstance(event, dict) or event.get("type") in ("BOOKMARK", "ERROR"):
        return True
    meta = event["object"].get("metadata", {})
    return (not namespace or meta.get("namespace") == namespace) and _selects(
        request, event["object"]
    )


def _selects(request: web.Request, body: Object) -> bool:
    meta = body.get("metadata", {})
    fields = request.query.get("fieldSelector", "")
    labels = request.query.get("labelSelector", "")
    return (not fields or fields == f"metadata.name={meta.get('name')}") and (
        not labels or dict([labels.split("=")]).items() <= (meta.get("labels") or {}).items()
    )


def _hits(part: str, method: str) -> Callable[[web.Request], bool]:
    def hits(request: web.Request) -> bool:
        verb = "WATCH" if "watch" in request.query else request.method
        return part in request.path and method in ("", verb)

    return hits


def _merged(known: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(copy.deepcopy(known)) if isinstance(known, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)


@asynccontextmanager
async def serving(api: FakeApi | None = None) -> AsyncIterator[FakeApi]:
    """Serve ``api`` on a free port while the block runs."""
    api = api or FakeApi()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=1.0, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        api.close()
        await runner.cleanup()


def kubeconfig(folder: Path, url: str, **user: Any) -> Path:
    """Write a kubeconfig for ``url`` into ``folder``."""
    path = folder / "kubeconfig.json"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": user or {"token": "secret"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "me"}}],
    }
    path.write_text(json.dumps(config))
    return path


@asynccontextmanager
async def connected(folder: Path, api: FakeApi, **settings: Any) -> AsyncIterator[KubeClient]:
    path = kubeconfig(folder, api.url)
    async with await KubeClient.connect(KubeSettings(kubeconfig=path, **settings)) as client:
        yield client


@asynccontextmanager
async def running(*coroutines: Any) -> AsyncIterator[None]:
    """Run each as a task while the block runs; an exception of one is raised at the end."""
    tasks = [asyncio.create_task(c) for c in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if result is not None and not isinstance(result, asyncio.CancelledError):
            raise result


async def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait for ``condition``. The limit is generous, since it says nothing about speed."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def names(objects: Iterator[tuple[str, str]]) -> list[str]:
    return sorted("/".join(part for part in key if part) for key in objects)
