"""The embedded API server, with troubles that only a wire has: requests held on their way.

The server's own troubles (refusals, latency, dropped connections, bad watches) are in its
``Faults``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hami_lab.api import ApiServer

Json = dict[str, Any]


@dataclass(eq=False)
class Gate:
    """Stops requests whose path ends with ``suffix`` and whose body ``contains`` something.

    ``late``: the server carries them out, and the answer is held. ``status`` is the answer without
    carrying the request out, or with ``late`` in place of the true answer. ``times`` None: all
    requests. ``reached`` counts them.
    """

    method: str = "POST"
    suffix: str = "/binding"
    contains: bytes = b""
    late: bool = False
    status: int = 0
    times: int | None = 1
    reached: int = 0
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    async def come(self) -> None:
        """Wait until a request is held."""
        async with asyncio.timeout(60):
            await self._came.wait()

    def release(self) -> None:
        self._open.set()

    def takes(self, method: str, path: str, body: bytes) -> bool:
        if self.times == 0 or (self.method, self.suffix) != (method, path[-len(self.suffix) :]):
            return False
        if self.contains not in body:
            return False
        if self.times is not None:
            self.times -= 1
        self.reached += 1
        return True

    async def pass_through(self) -> None:
        self._came.set()
        if not self.status:
            await self._open.wait()


class Front:
    """An ASGI application in front of the server's own, for requests that the server must not see."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self.gates: list[Gate] = []
        self.bindings = 0
        """Under way now."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._application, name)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] not in ("POST", "PATCH"):
            await self._application(scope, receive, send)
            return
        binding = scope["path"].endswith("/binding")
        self.bindings += binding
        try:
            await self._through(scope, receive, send)
        finally:
            self.bindings -= binding

    async def _through(self, scope: Any, receive: Any, send: Any) -> None:
        # Its body is read before the client may leave: then it is on its way.
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        gates = [gate for gate in self.gates if gate.takes(scope["method"], scope["path"], body)]
        status = next((gate.status for gate in gates if gate.status), 0)
        for gate in gates:
            if not gate.late:
                await gate.pass_through()
        if any(gate.status and not gate.late for gate in gates):
            await _answer(send, _refusal(status))
            return
        answer: list[Any] = []
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Any:
            return parts.pop() if parts else await receive()

        async def keep(message: Any) -> None:
            answer.append(message)

        late = any(gate.late for gate in gates)
        await self._application(scope, replay, keep if late else send)
        for gate in gates:
            if gate.late:
                await gate.pass_through()
        await _answer(send, _refusal(status) if status else answer)


async def _answer(send: Any, messages: list[Any]) -> None:
    for message in messages:
        await send(message)


def _refusal(status: int) -> list[Any]:
    said = {"kind": "Status", "code": status, "reason": "InternalError", "message": "a fault"}
    headers = [(b"content-type", b"application/json")]
    return [
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": json.dumps(said).encode()},
    ]


class GatedServer(ApiServer):
    """The server with a gate; ``on_change`` receives every change at the moment it is made."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.front = Front(self._application)
        self._application = self.front

    def gate(self, **rule: Any) -> Gate:
        gate = Gate(**rule)
        self.front.gates.append(gate)
        return gate

    def fail_late(self, status: int, **rule: Any) -> Gate:
        """Carry the binding out, and answer that something went wrong."""
        return self.gate(status=status, late=True, **rule)

    def on_change(self, told: Callable[[str, str, Json, Json | None], None]) -> None:
        """``told(plural, ADDED|MODIFIED|DELETED, object, object before)``."""

        def changed(storage: tuple[str, str], record: Any) -> None:
            before = record.previous.object() if record.previous else None
            told(storage[1], record.type, record.item.object(), before)

        self._operations.storage.on_change.append(changed)
