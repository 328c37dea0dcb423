"""Elastic quotas in a scrape, with a recount that notices when the books are wrong."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from hami.kube.pace import Turns
from hami.policy.quota.elastic import ElasticBook, Leaf, Member
from hami.scheduler.bookings.quotas.elastic_levels import all_levels, levels_of
from hami.scheduler.exposition.scrape import Scrape
from hami.scheduler.metrics import Metrics

from ..builders import Cluster, a_node, a_pod, an_elastic_quota, granted
from ..readonly.test_api_elastic import MEM, lending
from .test_metrics import read, scraped


async def shown(cluster: Cluster, name: str, resource: str = MEM) -> dict[tuple[str, str], float]:
    """By kind and namespace."""
    found = {}
    for line in await scraped(cluster):
        labels = dict(line.labels)
        if line.name == name and labels["resource"] == resource:
            assert set(labels) == {"quota", "namespace", "resource", "kind"}
            found[labels["kind"].removesuffix("ElasticQuota"), labels["namespace"]] = line.value
    return found


A, B = ("", "a"), ("", "b")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hami_quota_used", {A: 1000, B: 3000}),
        ("hami_quota_reserved", {A: 1500, B: 3000}),
        ("hami_quota_min", {A: 4000, B: 2000}),
        ("hami_quota_max", {B: 3500}),
        ("hami_quota_borrowed", {A: 0, B: 1000}),
        ("hami_quota_lent", {A: 1000, B: 0}),
        ("hami_quota_guaranteed_overquota", {A: 1666, B: 833}),
        ("hami_quota_ledger_drift", {A: 0, B: 0}),
    ],
)
async def test_each_quota_is_shown(name, expected):
    cluster = lending()
    cluster.reserve(a_pod("a-2", mem=500, namespace="a"))
    assert await shown(cluster, name) == expected


async def test_a_quota_of_each_kind_may_have_the_same_name():
    cluster = Cluster()
    cluster.limits(an_elastic_quota("a", 10), an_elastic_quota("a", 20, None, "x", "y"))
    assert await shown(cluster, "hami_quota_min") == {("", "a"): 10, ("Composite", "a"): 20}


async def test_all_quotas_at_once_have_the_levels_that_each_has():
    cluster = lending()
    cluster.limits(
        an_elastic_quota("c", 3, 8, resource="cpu"), an_elastic_quota("d", 0, 700, "x", "y")
    )
    book = cluster.state.ledger.elastic
    each = {leaf.key: list(levels_of(book, leaf)) for leaf in book.leaves}
    assert [len(levels) for levels in each.values()] == [1, 1, 1, 1]
    assert await all_levels(book, Turns()) == each


async def test_cpu_is_in_cores():
    cluster = Cluster()
    cluster.limits(an_elastic_quota("a", 3, resource="cpu"))
    assert await shown(cluster, "hami_quota_min", "cpu") == {A: 3}
    quota = an_elastic_quota("a", 3, resource="cpu")
    quota.spec.min["cpu"] = "1500m"
    cluster = Cluster()
    cluster.limits(quota)
    assert await shown(cluster, "hami_quota_min", "cpu") == {A: 1.5}


async def test_the_recount_notices_what_was_booked_wrongly(monkeypatch):
    cluster = lending()
    used = ElasticBook.used
    wrong = {"b": 7, "a": 0}

    def booked(book: ElasticBook, leaf: Leaf):
        return {r: n + wrong[leaf.namespace] * (r == MEM) for r, n in used(book, leaf).items()}

    monkeypatch.setattr(ElasticBook, "used", booked)
    assert await shown(cluster, "hami_quota_ledger_drift") == {A: 0, B: 7}


async def test_the_recount_sees_a_pod_that_was_not_booked():
    cluster = lending()
    book = cluster.state.ledger.elastic
    member = book.member("uid-b-b-1")
    assert isinstance(member, Member)
    # Behind the book's back, as a bug would.
    book._accounts.members[member.uid] = replace(member, vector={MEM: 2010, "cpu": 1})
    assert await shown(cluster, "hami_quota_ledger_drift") == {A: 0, B: -10}
    assert await shown(cluster, "hami_quota_ledger_drift", "cpu") == {B: -0.001}


async def test_quotas_that_come_and_go_during_a_scrape_do_not_harm_it():
    cluster = Cluster(a_node("n1", devices=1))
    stop = False

    async def change():
        number = 0
        while not stop:
            number += 1
            which = an_elastic_quota(f"n{number % 7}", number)
            (cluster.state.elastic.put if number % 3 else cluster.state.elastic.remove)(which)
            cluster.state.quota_objects.arrange()
            cluster.sees(
                granted(
                    a_pod(f"p{number % 40}", mem=1, namespace=f"n{number % 7}"), "n1", "n1-d0:1"
                )
            )
            await asyncio.sleep(0)

    changing = asyncio.create_task(change())
    scrape = Scrape(cluster.state, Metrics(), leading=lambda: True)
    for _ in range(20):
        lines = read(b"".join([piece async for piece in scrape.pieces()]))
        assert {line.value for line in lines if line.name == "hami_quota_ledger_drift"} <= {0}
    stop = True
    await changing
