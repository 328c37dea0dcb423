"""The route of a resize: over which ways a token is taken, and what is asked before anything else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from structlog.testing import capture_logs

from hami.kube.reviews import UserInfo
from hami.scheduler.metrics import Metrics
from hami.scheduler.resize.authorizer import NotAllowed
from hami.scheduler.resize.resizer import NotDone
from hami.scheduler.web.bodies import Bodies, BodyLimits
from hami.scheduler.web.resize_route import PATH, ResizeParts, resize_route

BODY = b'{"requestId": "r", "containers": [{"cores": 5}]}'


@dataclass
class Route:
    """The route with everything behind it played."""

    user: UserInfo | NotAllowed = field(default_factory=lambda: UserInfo(username="jane"))
    missing: tuple[str, ...] = ()
    bug: Exception | None = None
    asked: list[Any] = field(default_factory=list)

    async def may_resize(self, token, namespace, name):
        self.asked.append((token, namespace, name))
        return self.user

    async def resize(self, namespace, name, body):
        if self.bug:
            raise self.bug
        self.asked.append((namespace, name, body.request_id))
        return NotDone("unknown", "not known yet")

    async def call(self, *, client=("127.0.0.1", 1), scheme="http", token="t", body=BODY):
        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        scope = {
            "type": "http", "method": "POST", "path": PATH, "headers": headers, "client": client,
            "scheme": scheme, "server": ("here", 1), "query_string": b"",
            "path_params": {"namespace": "team", "name": "p"},
        }  # fmt: skip
        parts = ResizeParts(self, self, Metrics())
        route = resize_route(parts, Bodies(BodyLimits(), 1000), lambda: self.missing)
        answer = await route(Request(scope, receive))
        return answer.status_code, msgspec.json.decode(answer.body)["reason"], answer.headers


@pytest.mark.parametrize(
    ("client", "scheme", "expected"),
    [
        pytest.param(("127.0.0.1", 1), "http", 504, id="a forwarded port"),
        pytest.param(("::1", 1), "http", 504, id="one of IPv6"),
        pytest.param(("::ffff:127.0.0.1", 1), "http", 504, id="of a listener for both families"),
        pytest.param(None, "http", 504, id="a Unix socket"),
        pytest.param(("192.0.2.1", 1), "https", 504, id="TLS from anywhere"),
        pytest.param(("192.0.2.1", 1), "http", 403, id="a way that others read"),
        pytest.param(("::ffff:192.0.2.1", 1), "http", 403, id="the same for both families"),
        pytest.param(("somebody", 1), "http", 403, id="what is no address"),
    ],
)
async def test_a_token_is_taken_where_nobody_else_reads_it(client, scheme, expected):
    route = Route()
    status, _, _ = await route.call(client=client, scheme=scheme)
    assert status == expected
    assert bool(route.asked) == (expected == 504)


async def test_it_hands_on_what_was_asked_and_says_when_to_ask_again():
    route = Route()
    status, reason, headers = await route.call()
    assert (status, reason, headers["retry-after"]) == (504, "Unknown", "1")
    assert route.asked == [("t", "team", "p"), ("team", "p", "r")]


async def test_without_a_token_nobody_is_asked():
    route = Route()
    status, reason, headers = await route.call(token="")
    assert (status, reason, headers["www-authenticate"]) == (401, "Unauthorized", "Bearer")
    assert route.asked == []


async def test_before_the_cluster_is_known_nobody_is_asked():
    route = Route(missing=("pods",))
    status, reason, headers = await route.call()
    assert (status, reason, headers["retry-after"]) == (503, "NotReady", "1")
    assert route.asked == []


@pytest.mark.parametrize(
    ("why", "expected"),
    [("unauthenticated", (401, "Unauthorized")), ("forbidden", (403, "Forbidden")), ("busy", (503, "Busy"))],
)  # fmt: skip
async def test_who_may_not_resizes_nothing(why, expected):
    route = Route(user=NotAllowed(why, "no"))
    status, reason, _ = await route.call()
    assert (status, reason) == expected
    assert route.asked == [("t", "team", "p")]


async def test_a_bug_is_told_and_logged():
    route = Route(bug=ValueError("what"))
    with capture_logs() as logged:
        status, reason, _ = await route.call()
    assert (status, reason) == (500, "InternalError")
    assert [line["event"] for line in logged] == ["a request failed"]


async def test_a_body_is_read_before_anybody_is_asked():
    route = Route()
    status, reason, _ = await route.call(body=b"{}")
    assert (status, reason) == (400, "BadRequest")
    assert route.asked == []
