"""Quotas over different resources beside an idle lender, and ReplicaSets that want more than fits."""

from __future__ import annotations

import asyncio

import pytest

from ..world.process import until
from ..world.replicas import Replicas
from .test_elastic import define

GB = 1024
COUNT, MEMORY = "nvidia.com/gpu", "nos.nebuly.com/gpu-memory"
MINS = {"a": {COUNT: 2}, "b": {MEMORY: 20}, "lender": {COUNT: 8, MEMORY: 80}}
WATCHED = 10
"""Seconds; without the rule dozens of pods go in them."""


async def short_of_devices(world):
    """Five, of which each takes one pod; each team wants all of them."""
    await define(world)
    await world.add_nodes("n1", devices=5, memory=10 * GB, slots=1)
    for team, least in MINS.items():
        await world.add_namespace(team)
        await world.server.create(
            {
                "apiVersion": "nos.nebuly.com/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": {"name": "quota", "namespace": team},
                "spec": {"min": least},
            }
        )


@pytest.mark.parametrize("shares", ["floor", "hamilton", "waterfill"])
async def test_they_come_to_rest(world, shares):
    await short_of_devices(world)
    service = await world.service(quota_fair_share=shares)
    async with Replicas(world, service, gpu=1, mem=10 * GB) as replicas:
        await replicas.scale("a", 5)
        await replicas.scale("b", 5)
        await until(
            "each has what it is guaranteed, and every device is used",
            lambda: sorted(map(replicas.bound, "ab")) == [2, 3],
            story=service.last_lines,
        )
        await asyncio.sleep(WATCHED)
        assert sum(replicas.evicted.values()) <= 2, f"{replicas.evicted}\n{service.last_lines()}"
        assert sorted(map(replicas.bound, "ab")) == [2, 3]
    await world.agree(service)
