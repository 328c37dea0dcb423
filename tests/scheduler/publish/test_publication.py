"""How fast statuses and labels are written, and in which order."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

from hami.domain.kubernetes.objects import Metadata, Pod
from hami.kube.events import EventLimits
from hami.kube.resources import ELASTIC_QUOTAS, PODS, QUOTAS
from hami.scheduler.publish.elastic_status import LABELS_A_TURN, QUOTAS_A_TURN, ElasticStatus
from hami.scheduler.publish.publication import LABELS, STATUSES, PacedPatches
from hami.scheduler.reclaim import evictions, preemption

from ..builders import Cluster, a_node, a_pod, an_elastic_quota, granted


class Server:
    """Notes what is patched, and answers with what it becomes as far as anybody looks."""

    def __init__(self) -> None:
        self.patched: list[tuple[str, str]] = []
        self.at: list[float] = []
        self.meanwhile = lambda: None

    async def patch(self, resource: Any, name: str, patch: Any, **where: str) -> Any:
        self.patched.append((resource.plural, f"{where.get('namespace', '')}/{name}"))
        self.at.append(time.monotonic())
        self.meanwhile()
        await asyncio.sleep(0)
        about = Metadata(
            name=name,
            namespace=where.get("namespace", ""),
            annotations=patch.get("metadata", {}).get("annotations"),
        )
        return Pod(metadata=about) if resource is PODS else resource.type(metadata=about)


async def patches(paced: PacedPatches, resource: Any, number: int) -> None:
    await asyncio.gather(*(paced.patch(resource, f"p{n}", {}) for n in range(number)))


@pytest.mark.parametrize("resource", [PODS, QUOTAS, ELASTIC_QUOTAS], ids=lambda r: r.plural)
async def test_no_more_are_written_at_once_and_a_second_than_is_allowed(resource: Any) -> None:
    server = Server()
    await patches(PacedPatches(server, statuses=20, labels=20), resource, 50)
    began = server.at[0]
    assert sum(at - began < 0.02 for at in server.at) == 40
    assert server.at[-1] - began >= 9.5 / 20


async def test_labels_and_statuses_do_not_wait_for_each_other() -> None:
    paced, began = PacedPatches(Server(), statuses=20, labels=20), time.monotonic()
    await asyncio.gather(*(patches(paced, resource, 40) for resource in (PODS, QUOTAS)))
    assert time.monotonic() - began < 0.3


class Publishing:
    """An ``ElasticStatus`` over so many quotas of which each counts so many pods."""

    def __init__(self, quotas: int, pods: int) -> None:
        self.cluster = Cluster(a_node(memory=10**6))
        names = [f"team{number:03}" for number in range(quotas)]
        self.cluster.limits(*(an_elastic_quota(name, 10) for name in names))
        for name in names:
            self.cluster.sees(*(
                granted(a_pod(f"p{n}", mem=10, namespace=name), "n1", "n1-d0:10") for n in range(pods)
            ))  # fmt: skip
        self.server = Server()
        self.status = ElasticStatus(
            self.cluster.state, self.server, leading=lambda: True, on_problem=lambda _text: None
        )
        self.status.touch_all()

    async def until(self, number: int) -> list[str]:
        """The kinds of the first patches."""
        task = asyncio.create_task(self.status.run())
        end = time.monotonic() + 10
        while len(self.server.patched) < number and time.monotonic() < end and not task.done():
            await asyncio.sleep(0.001)
        failed = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=not failed)
        return [plural for plural, _ in self.server.patched[:number]]


async def test_hundreds_of_labels_hold_up_no_status_and_no_status_them() -> None:
    quotas, pods = 2 * QUOTAS_A_TURN, 8
    publishing = Publishing(quotas, pods)
    kinds = await publishing.until(2 * quotas + quotas * pods)
    assert kinds.count("pods") == quotas * pods > 2 * LABELS_A_TURN
    turns = re.findall("(q+)(p*)", "".join("p" if kind == "pods" else "q" for kind in kinds))
    assert [len(statuses) for statuses, _ in turns] == [2 * QUOTAS_A_TURN] * 2
    assert len(turns[0][1]) == LABELS_A_TURN


async def test_a_quota_that_goes_while_another_is_written_stops_nothing() -> None:
    """It is still an object that the informer shows, but a composite covers it by now."""
    publishing = Publishing(2, 1)
    cluster = publishing.cluster
    covers = an_elastic_quota("z", 10, None, "team000", "team001", name="both")
    publishing.server.meanwhile = lambda: cluster.limits(covers)
    await publishing.until(4)
    assert ("compositeelasticquotas", "z/both") not in publishing.server.patched
    publishing.status.touch_all()
    await publishing.until(8)
    assert ("compositeelasticquotas", "z/both") in publishing.server.patched


# docs/quota.md.


def test_the_documented_budget_is_the_one_that_is_kept() -> None:
    document = (Path(__file__).parents[3] / "docs/quota.md").read_text()
    section = document.partition("## What it writes")[2].partition("\n## ")[0]
    limits = EventLimits()
    for words in (
        f"{evictions.AT_ONCE} under way",
        f"again after {preemption.FIRST_BACK_OFF:g} s, {2 * preemption.FIRST_BACK_OFF:g} s",
        f"up to {preemption.LONGEST_BACK_OFF / 60:g} min",
        f"{LABELS:g} a second, after {2 * LABELS:g} at once",
        f"{STATUSES:g} a second, after {2 * STATUSES:g} at once",
        f"{limits.rate:g} a second, after {limits.burst} at once",
    ):
        assert words in section
