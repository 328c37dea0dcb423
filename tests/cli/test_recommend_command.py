"""``hami recommend --monitor``: what monitors said over real sockets, as people and programs see it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from hami.cli.app import app
from hami.cli.recommending import monitors
from hami.http.addresses import parse_bind
from hami.http.connection import RouteAnswer
from hami.http.listening import listening
from hami.monitor.node_api import node_json
from hami.monitor.table import MigIdentity, NodeTable, SliceFigures
from tests.monitor.serving import a_monitor
from tests.monitor.tables import GIB, NOW, a_node, a_slice, held

MIG = MigIdentity(
    index=0, device_id="GPU-0", uuid="MIG-1", profile="1g.10gb", gpu_instance_id=7,
    compute_instance_id=0,
)  # fmt: skip


def train(pod: str = "train-0", *, used: int = GIB, percent: float | None = 10.0, **more: Any) -> SliceFigures:  # fmt: skip
    """It has 4 GiB and 30 %."""
    device = held(used_bytes=used, utilisation=percent, guarantee=30, **more.pop("device", {}))
    return a_slice(pod, device, **({"created_at": NOW - 7200} | more))


@asynccontextmanager
async def answering(*tables: NodeTable, minutes: int = 60) -> AsyncIterator[list[str]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(a_monitor(lambda t=t: t, minutes=minutes))
            for t in tables
        ]


async def ran(urls: list[str], *arguments: str, columns: int = 120):
    options = [part for url in urls for part in ("--monitor", url)]
    return await asyncio.to_thread(
        CliRunner().invoke,
        app,
        ["recommend", *options, *arguments],
        env={"COLUMNS": str(columns), "KUBECONFIG": "/nowhere"},
    )


async def said(*tables: NodeTable, arguments: tuple[str, ...] = (), minutes: int = 60):
    async with answering(*tables, minutes=minutes) as urls:
        result = await ran(urls, "--json", *arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


async def test_a_table_for_people():
    async with answering(a_node(train(), train("train-1", used=3 * GIB, percent=25.0))) as urls:
        result = await ran(urls)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[3:4] + lines[-2:] == [
        "team Pod/train-0 main 1 4096 -> 1280 MiB 30 -> 15 % 60 2816 MiB, 15 %",
        "team Pod/train-1, container main stays as it is: asks for about what it uses",
        "saves 2816 MiB, 15 % in all",
    ]


async def test_json_has_everything():
    found = await said(a_node(train()))
    assert found == {
        "workloads": [
            {
                "namespace": "team", "kind": "Pod", "name": "train-0", "container": "main",
                "vendor": "NVIDIA", "pods": ["train-0"], "asks": {"memoryMiB": [4096], "cores": [30]},
                "couldAsk": {"memoryMiB": 1280, "cores": 15}, "why": None, "minutes": 60,
                "saves": {"memoryMiB": 2816, "cores": 15},
                "template": {"nvidia.com/gpumem": 1280, "nvidia.com/gpucores": 15}, "leftOut": [],
            },
        ],
        "saves": {"memoryMiB": 2816, "cores": 15},
        "silent": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("one", "minutes", "reason"),
    [
        pytest.param(train(used=3 * GIB, percent=25.0), 60, "FITS", id="it fits"),
        pytest.param(train(), 29, "SHORT", id="known for too short a time"),
        pytest.param(train(created_at=NOW - 60), 60, "RESTARTED", id="restarted"),
        pytest.param(train(mig=(MIG,)), 60, "MIG", id="MIG"),
        pytest.param(train(source="hami-core"), 60, "FOREIGN_LIBRARY", id="HAMi's own library"),
        pytest.param(train(problem="page: torn"), 60, "NO_FIGURES", id="files that cannot be read"),
        pytest.param(a_slice("train-0", held(memory_limit_bytes=0), created_at=NOW - 7200), 60, "UNLIMITED", id="unlimited"),
        pytest.param(a_slice("train-0", held(memory_limit_bytes=80 * GIB, guarantee=100), created_at=NOW - 7200), 60, "WHOLE_DEVICE", id="a whole device"),
        pytest.param(train(device={"device_id": "GPU-lost"}), 60, "SHORT", id="a device that is not shown"),
    ],
)  # fmt: skip
async def test_why_nothing_is_said(one, minutes, reason):
    (found,) = (await said(a_node(one), minutes=minutes))["workloads"]
    assert (found["couldAsk"], found["why"]["reason"], found["template"]) == (None, reason, {})


async def test_devices_of_two_vendors():
    other = train(vendor="ACME")
    (found,) = (await said(a_node(train(), other)))["workloads"]
    assert found["why"]["reason"] == "SEVERAL_VENDORS"


async def test_a_namespace():
    nodes = a_node(train(), train("other", namespace="elsewhere"))
    found = await said(nodes, arguments=("-n", "elsewhere"))
    assert [one["name"] for one in found["workloads"]] == ["other"]
    assert len((await said(nodes, arguments=("-A",)))["workloads"]) == 2


async def test_the_newest_answer_and_the_newest_slice_count():
    older = a_node(train(used=3 * GIB), taken_at=NOW - 5)
    former = train(id="former", created_at=NOW - 9000, device={"memory_limit_bytes": 16 * GIB})
    found = await said(a_node(train(), former), older)
    assert found["workloads"][0]["asks"]["memoryMiB"] == [4096]
    assert found["workloads"][0]["couldAsk"]["memoryMiB"] == 1280


async def test_nothing_runs():
    async with answering(a_node()) as urls:
        result = await ran(urls)
    assert result.stdout == "no container with a part of a device runs here\n"


# Monitors that do not answer as they should.


@asynccontextmanager
async def broken(**answer: Any) -> AsyncIterator[str]:
    async def node() -> RouteAnswer:
        if answer.get("hang"):
            await asyncio.sleep(60)
        return RouteAnswer(body=answer["body"])

    routes = {} if answer.get("missing") else {"/api/v1/node": node}
    async with listening(parse_bind("127.0.0.1:0"), routes, grace=0.1) as url:
        yield url


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param({"missing": True}, "HTTP 404 Not Found", id="another server"),
        pytest.param({"body": b"{}"}, "no answer of a hami monitor of this version", id="another JSON"),
        pytest.param({"body": b'\xff"'}, "no answer of a hami monitor of this version", id="no JSON"),
        pytest.param({"body": b'{"format":2}'}, "no answer of a hami monitor of this version", id="another format"),
        pytest.param({"body": b" " * 5000}, "the answer is longer than 4000 bytes", id="too long"),
        pytest.param({"hang": True, "body": b""}, "no answer within 0.3 s", id="silent"),
    ],
)  # fmt: skip
async def test_a_node_that_does_not_answer_hides_no_other(monkeypatch, answer, why):
    monkeypatch.setattr(monitors, "MOST_BYTES", 4000)
    if "hang" in answer:
        monkeypatch.setattr(monitors, "PATIENCE", 0.3)
    async with answering(a_node(train())) as urls, broken(**answer) as other:
        result = await ran([other, *urls])
        assert result.exit_code == 0
        assert result.stderr.startswith(f"hami: warning: node {other} does not answer: {why}")
        assert "4096 -> 1280 MiB" in result.stdout
        (silent,) = json.loads((await ran([other, *urls], "--json")).stdout)["silent"]
        assert silent["node"] == other


async def test_nobody_answers():
    async with answering(a_node()) as urls:
        pass
    result = await ran(urls)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"none of 1 monitors answers; {urls[0]}: " in result.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(["--monitor", "n1"], "--monitor 'n1' is no address", id="no address"),
        pytest.param(["--monitor", "http://me:secret@n1"], "is no address", id="a password"),
        pytest.param(["-A", "-n", "x"], "-A contradicts --namespace x", id="which namespaces"),
        pytest.param([], "$KUBECONFIG=/nowhere: no such file", id="no cluster"),
    ],
)
async def test_what_must_be_changed(arguments, text):
    result = await ran([], *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in result.stderr


async def test_many_are_asked_at_once_but_not_all():
    most = now = 0

    async def ask() -> bytes:
        nonlocal most, now
        now += 1
        most = max(most, now)
        for _ in range(3):
            await asyncio.sleep(0)
        now -= 1
        return node_json(a_node(), lambda *_: None)

    asked = [monitors._Monitor(who=str(n), ask=ask) for n in range(100)]
    assert len((await monitors._ask_all(asked)).nodes) == 100
    assert most == monitors.AT_ONCE
