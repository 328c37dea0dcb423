"""Whose a token is, and what he may, as the API server answers; and how many are asked at once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from hami.kube.errors import ApiError
from hami.kube.reviews import ACCESS_REVIEWS, SubjectAccessReview, TokenReview
from hami.scheduler.resize.authorizer import AT_ONCE, MOST_WAITING, Authorizer, NotAllowed


class Played:
    """A client whose API server knows the token ``t`` of jane."""

    def __init__(self, *, allowed: bool = True, error: ApiError | None = None) -> None:
        self.allowed, self.error = allowed, error
        self.asked: list[object] = []
        self.now = self.most = 0
        self.open = asyncio.Event()
        self.open.set()

    async def create(self, resource, body):
        self.now += 1
        self.most = max(self.most, self.now)
        await self.open.wait()
        self.now -= 1
        if self.error:
            raise self.error
        self.asked.append(body["spec"])
        if resource is ACCESS_REVIEWS:
            return _decoded(SubjectAccessReview, {"status": {"allowed": self.allowed}})
        user = {"username": "jane", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}}
        known = {"authenticated": True, "user": user}
        unknown = {"user": {}, "error": "no"}
        return _decoded(TokenReview, {"status": known if body["spec"]["token"] == "t" else unknown})


def _decoded(kind, value):
    return msgspec.convert(value, kind)


async def test_the_question_is_about_this_user_and_this_pod():
    client = Played()
    user = await Authorizer(client).may_resize("t", "team", "p")
    assert user.username == "jane"
    assert client.asked[1] == {
        "user": "jane", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]},
        "resourceAttributes": {
            "verb": "update", "resource": "pods", "subresource": "resize", "namespace": "team",
            "name": "p",
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("client", "token", "why"),
    [
        pytest.param({}, "x", "unauthenticated", id="an unknown token"),
        pytest.param({"allowed": False}, "t", "forbidden", id="no right"),
        pytest.param({"error": ApiError("down")}, "t", "busy", id="an API server that is away"),
    ],
)
async def test_who_may_not(client, token, why):
    answer = await Authorizer(Played(**client)).may_resize(token, "team", "p")
    assert isinstance(answer, NotAllowed)
    assert answer.why == why


async def test_a_flood_of_tokens_keeps_the_api_server_free():
    client = Played()
    client.open.clear()
    authorizer = Authorizer(client)
    asked = [
        asyncio.create_task(authorizer.may_resize("x", "team", "p"))
        for _ in range(MOST_WAITING + 10)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    client.open.set()
    answers = [answer.why for answer in await asyncio.gather(*asked)]
    assert (answers.count("busy"), client.most) == (10, AT_ONCE)
