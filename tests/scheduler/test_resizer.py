"""What a resize comes to where the API server's answers and the books are of different moments."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from hami.kube.errors import ApiError
from hami.scheduler.events import PodSeen
from hami.scheduler.resize.resizer import Done, NotDone, Resizer, ResizeSettings
from hami.wire import keys
from hami.wire.resizes import ContainerBody, ResizeBody

from .bookings.test_resizes import Node, a_pod


class Leading:
    leading, holder, term = True, "me", 1


class Server:
    """An API server with one pod, whose watch the test plays; ``fails`` are answers to patches.

    A patch takes a second of ``now``.
    """

    def __init__(self, node: Node, uid) -> None:
        self.node, self.uid = node, uid
        self.stored = node.shown[uid]
        self.patches, self.now = 0, 0
        self.fails: list[ApiError] = []
        self.stale = False
        self.resizer: Resizer

    async def get(self, _resource, _name, *, namespace):
        del namespace
        return self.node.shown[self.uid] if self.stale else self.stored

    async def patch(self, _resource, _name, operations, **_):
        self.patches += 1
        self.now += 1
        if self.fails:
            raise self.fails.pop(0)
        former = self.stored.annotations[keys.ALLOCATION_SIGNATURE]
        if [o["value"] for o in operations if o["op"] == "test"] != [self.uid, former]:
            raise ApiError("a test failed", status=422)
        added = {
            o["path"].rpartition("/")[2].replace("~1", "/"): o["value"]
            for o in operations
            if o["op"] == "add"
        }
        metadata = msgspec.structs.replace(
            self.stored.metadata, annotations={**self.stored.annotations, **added}
        )
        self.stored = msgspec.structs.replace(self.stored, metadata=metadata)

    def watch(self) -> None:
        """The informer shows what is stored."""
        self.node.cluster.sees(self.stored)
        self.resizer.pod_seen(PodSeen(self.stored))


@pytest.fixture
def server():
    node = Node()
    server = Server(node, node.run(a_pod()))
    server.resizer = Resizer(
        node.state,
        server,
        Leading(),
        settings=lambda: ResizeSettings(timeout=3, retry=0.001, patience=0.05),
        signer=lambda: node.cluster.signer,
        told=lambda *_: None,
        clock=lambda: server.now,
    )
    return server


def asking(mem: int, id: str = "r") -> ResizeBody:
    return ResizeBody(request_id=id, containers=(ContainerBody(name="main", memory_mib=mem),))


async def resized(server, mem: int, id: str = "r"):
    asked = asyncio.create_task(server.resizer.resize("default", "p", asking(mem, id)))
    for _ in range(5):
        await asyncio.sleep(0)
    server.watch()
    return await asked


async def test_the_same_request_whose_pod_was_read_before_the_first_was_seen(server):
    """Two at once: the second has read the pod as it was, and then the first came to its end."""
    first = await resized(server, 3000)
    assert isinstance(first, Done)
    server.stale = True  # What it has read is as old as the shelf of the test.
    again = await server.resizer.resize("default", "p", asking(3000))
    assert isinstance(again, Done)
    assert (again.generation, again.again, server.patches) == (2, True, 1)


async def test_the_caller_has_an_answer_while_the_watch_says_nothing(server):
    done = await server.resizer.resize("default", "p", asking(3000))
    assert isinstance(done, Done), "it is written"
    assert server.node.used == (1, 3000, 10)
    other = await server.resizer.resize("default", "p", asking(500, "s"))
    assert isinstance(other, NotDone)
    assert other.word == "busy", "until the books have it"
    server.watch()
    await asyncio.sleep(0.01)
    assert isinstance(await resized(server, 500, "s"), Done)


async def test_while_nobody_answers_it_is_not_known_and_stays_reserved(server):
    server.fails = [ApiError("no answer") for _ in range(500)]
    outcome = await server.resizer.resize("default", "p", asking(3000))
    assert isinstance(outcome, NotDone)
    assert outcome.word == "unknown"
    assert server.node.used == (1, 3000, 10)
    server.fails.clear()
    assert isinstance(await resized(server, 3000), Done)
    assert server.patches > 1


async def test_refused_for_good_after_a_patch_that_was_lost(server):
    server.fails = [ApiError("no answer"), *(ApiError("no", status=403) for _ in range(100))]
    outcome = await server.resizer.resize("default", "p", asking(3000))
    assert isinstance(outcome, NotDone)
    assert outcome.word == "error"
    assert server.node.used == (1, 1000, 10)
    assert server.patches == 1 + 3, "not before the lost one can arrive no more"


async def test_stopped_the_books_are_as_the_pod_is(server):
    server.fails = [ApiError("no answer") for _ in range(500)]
    await server.resizer.resize("default", "p", asking(3000))
    await server.resizer.close()
    assert server.node.used == (1, 1000, 10)
    assert not server.resizer.quiet, "one may still arrive"
    server.now += 3
    assert server.resizer.quiet
