"""Whatever happens between the server and us, in the end the stores are equal."""

from __future__ import annotations

import asyncio
import random

import pytest

from hami.kube.informer import Informer
from hami.kube.pace import Backoff
from hami.kube.resources import NODES

from .fake_api import FakeApi, connected, running, serving, until
from .informers import Heard, stored, versions


class Chaos:
    """Random changes and faults on one resource, from one seed."""

    def __init__(self, api: FakeApi, seed: int) -> None:
        self.api = api
        self.random = random.Random(seed)
        self.counter = 0

    def step(self) -> None:
        actions = [
            (self.create, 30), (self.change, 30), (self.delete, 20), (self.replace, 10),
            (self.end, 6), (self.expire, 4), (self.fail, 6), (self.gone, 2), (self.bookmark, 4),
            (self.cut, 2), (self.repeat, 6),
        ]  # fmt: skip
        action = self.random.choices([a for a, _ in actions], [w for _, w in actions])[0]
        action()

    def some(self) -> str | None:
        names = sorted(name for _, name in self.api.objects["nodes"])
        return self.random.choice(names) if names else None

    def create(self) -> None:
        self.api.put("nodes", f"n{self.random.randrange(40)}")

    def change(self) -> None:
        if name := self.some():
            self.counter += 1
            self.api.put("nodes", name, metadata={"labels": {"count": str(self.counter)}})

    def delete(self) -> None:
        if name := self.some():
            self.api.remove("nodes", name)

    def replace(self) -> None:
        if name := self.some():
            self.api.remove("nodes", name)
            self.api.put("nodes", name)

    def end(self) -> None:
        self.api.end_watches("nodes")

    def expire(self) -> None:
        self.api.end_watches("nodes")
        self.api.expire()

    def gone(self) -> None:
        self.api.send("nodes", "ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})

    def fail(self) -> None:
        status = self.random.choice([403, 410, 429, 500, 503])
        method = self.random.choice(["WATCH", "GET"])
        headers = {"Retry_After": "0"} if status == 429 else {}
        self.api.refuse("nodes", status, method=method, **headers)

    def bookmark(self) -> None:
        self.api.bookmark("nodes")

    def cut(self) -> None:
        self.api.send_part("nodes", b'{"type": "MODIFIED", "obj')
        self.api.end_watches("nodes")

    def repeat(self) -> None:
        if name := self.some():
            self.api.send("nodes", "MODIFIED", self.api.objects["nodes"]["", name])


@pytest.mark.parametrize("seed", range(12))
async def test_after_any_changes_and_faults_the_store_is_the_servers(seed, tmp_path):
    heard, problems = Heard(), []
    async with serving(FakeApi(seed)) as api, connected(tmp_path, api) as client:
        api.duplicates = 0.1
        chaos = Chaos(api, seed)
        for _ in range(20):
            chaos.create()
        informer = Informer(
            client, NODES, heard, on_problem=problems.append,
            backoff=Backoff(first=0.001, most=0.01),
        )  # fmt: skip
        async with running(informer.run()):
            for _ in range(600):
                chaos.step()
                if chaos.random.random() < 0.3:
                    await asyncio.sleep(chaos.random.choice([0, 0, 0.001, 0.005]))
            api.faults.clear()
            chaos.create()
            await until(lambda: versions(informer) == stored(api))
    assert heard.wrong == []
    assert heard.store == dict(informer.objects)
    assert not [p for p in problems if "failed for" in p or "passed over" in p]
