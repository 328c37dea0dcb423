"""The node's versions and labels: from the API server, or as they were at the last start."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from hami.kube.errors import FORBIDDEN, ApiError
from hami.node.settings import node_facts as facts_module
from hami.node.settings.node_facts import AgentNode, NodeFacts, NodeInfo, node_facts


class Client:
    """Fails so often, then answers; or never answers."""

    def __init__(self, *failures: int, hangs: bool = False) -> None:
        self.failures = list(failures)
        self.hangs = hangs
        self.asked = 0

    async def get(self, _resource, name):
        assert name == "n1"
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.failures:
            raise ApiError("get node n1: no", status=self.failures.pop(0))
        return a_node("1.36")


def a_node(version: str):
    body = {
        "metadata": {"name": "n1", "labels": {"pool": "a"}},
        "status": {"nodeInfo": {"kubeletVersion": version}},
    }
    return msgspec.convert(body, AgentNode)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "hami" / "node.json"


async def asked(client, file):
    problems = []
    return await node_facts(client, "n1", file, problems.append), problems


FACTS = NodeFacts(labels={"pool": "a"}, info=NodeInfo(kubelet_version="1.36"))


async def test_they_are_remembered_for_a_start_without_an_api_server(file):
    assert await asked(Client(), file) == (FACTS, [])
    found, (problem,) = await asked(Client(0), file)
    assert found == FACTS
    assert "as it was at the last start" in problem


async def test_a_server_that_hangs_is_not_waited_for_where_they_are_remembered(file, monkeypatch):
    monkeypatch.setattr(facts_module, "PATIENCE", 0.02)
    await asked(Client(), file)
    found, (problem,) = await asked(Client(hangs=True), file)
    assert found == FACTS
    assert "no answer within" in problem


@pytest.mark.parametrize("content", [None, "", "{", "null"])
async def test_without_a_memory_it_is_asked_until_it_answers(file, content):
    if content is not None:
        file.parent.mkdir()
        file.write_text(content)
    client = Client(0, FORBIDDEN)
    found, problems = await asked(client, file)
    assert (found, client.asked) == (FACTS, 3)
    assert len(problems) == 2
    assert all("trying again until it answers" in problem for problem in problems)


async def test_a_memory_that_cannot_be_written_is_told_of(file):
    file.parent.write_text("")
    found, (problem,) = await asked(Client(), file)
    assert found == FACTS
    assert "cannot start while the API server is away" in problem
