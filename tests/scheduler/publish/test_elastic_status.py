"""What elastic quotas' objects are told: several in one turn, each as if it were alone."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from hami.domain.kubernetes.objects import ElasticQuotaStatus
from hami.scheduler.publish.elastic_status import (
    BORROWED,
    GUARANTEED,
    LENT,
    RESERVED,
    ElasticStatus,
)

from ..builders import ended
from ..readonly.test_api_elastic import MEM, lending, running
from ..writes import Patch, Patches

REST = 0.1


class Published:
    """Quota a lends to b; ``notes`` are what the objects' annotations say now, in MiB."""

    def __init__(self) -> None:
        self.cluster = lending()
        self.client = Patches(answer=self._merge)
        self.notes: dict[str, dict[str, int]] = {}
        self.at: dict[str, list[float]] = {"a": [], "b": []}
        self.problems: list[str] = []
        self.during = {"a": lambda: None, "b": lambda: None}
        self.status = ElasticStatus(
            self.cluster.state,
            self.client,
            leading=lambda: True,
            on_problem=self.problems.append,
            rest=REST,
        )
        self.cluster.on_usage(self.status.touch)

    def _merge(self, call: Patch) -> Any:
        if call.patch.get("metadata", {}).get("labels"):
            return None  # A pod's.
        quota = self.cluster.state.elastic.quota(f"ElasticQuota {call.namespace}/{call.name}")
        if "status" in call.patch:
            used = call.patch["status"]["used"]
            return msgspec.structs.replace(quota, status=ElasticQuotaStatus(used=used))
        written = call.patch["metadata"]["annotations"]
        self.notes[call.namespace] = {
            key: int(json.loads(text).get(MEM, 0)) for key, text in written.items()
        }
        self.at[call.namespace].append(time.monotonic())
        self.during[call.namespace]()
        about = msgspec.structs.replace(quota.metadata, annotations=written)
        return msgspec.structs.replace(quota, metadata=about)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        working = asyncio.create_task(self.status.run())
        try:
            yield
        finally:
            assert not working.done(), working
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            assert not self.problems


def noted(reserved: int, borrowed: int, lent: int, guaranteed: int) -> dict[str, int]:
    return {RESERVED: reserved, BORROWED: borrowed, LENT: lent, GUARANTEED: guaranteed}


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def test_several_quotas_in_one_turn_say_what_each_says_alone():
    world = Published()
    world.status.touch_all()
    async with world.at_work():
        await until(lambda: len(world.notes) == 2)
    assert world.notes == {"a": noted(1000, 0, 1000, 2000), "b": noted(3000, 1000, 0, 1000)}


async def test_one_quota_alone_says_the_same():
    for name, expected in ("a", noted(1000, 0, 1000, 2000)), ("b", noted(3000, 1000, 0, 1000)):
        world = Published()
        world.status._refresh_at = float("inf")  # Else all of them are due at once.
        world.status.touch(name)
        async with world.at_work():
            await until(lambda world=world: world.notes)
        assert world.notes == {name: expected}


async def test_a_quota_that_changes_while_another_is_written_is_written_once_more_after_its_rest():
    world = Published()
    world.during["a"] = lambda: world.cluster.sees(ended(running("b-2", 1000, namespace="b")))
    world.status.touch_all()
    async with world.at_work():
        await until(lambda: len(world.at["b"]) == 2)
    assert world.notes["b"] == noted(2000, 0, 0, 1000)
    first, second = world.at["b"]
    assert second - first >= REST
