"""The embedded cluster as a whole: the real service as a process, killed, restarted, cleaned up."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hami_lab.api import Fault
from hami_lab.cluster import ClusterSettings, EmbeddedCluster, NotInTime, ServiceDied
from hami_lab.cluster.objects import apply
from hami_lab.demo.books import current_picture, the_books_agree
from hami_lab.demo.picture import overcommitted, usages
from hami_lab.demo.steps import a_pod
from hami_lab.shapes import nodes_of
from hami_mock.simulated import DEVICES

from hami.domain.errors import ConfigError
from hami.kube.errors import ApiError
from hami.wire import keys

from .embedded import a_server


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_pods_are_admitted_placed_signed_and_run_and_nothing_is_left_behind():
    async with EmbeddedCluster() as cluster:
        folder, pid = cluster.kubeconfig.parent, cluster.service.pid
        await cluster.add_node("n1", "t4x1")
        await cluster.apply([a_pod("one", gpu=1, gpumem=1000), a_pod("two", gpu=1, gpumem=2000)])
        for pod in await cluster.bound("one", "two"):
            assert pod.spec.scheduler_name == "hami-scheduler"
            assert keys.ALLOCATION_SIGNATURE in pod.annotations
        await cluster.phase("one", "Running")
        found = await current_picture(cluster)
        ((key, usage),) = usages(found).items()
        assert (key[0], usage.slots, usage.memory_mib) == ("n1", 2, 3000)
        assert await the_books_agree(cluster)
        with pytest.raises(ApiError, match="write 500Mi"):
            await cluster.apply(a_pod("typo", gpu=1, gpumem="500M"))
        assert list(cluster.problems) == []
    assert (folder.exists(), is_alive(pid)) == (False, False)


async def test_a_service_that_is_killed_and_started_again_knows_what_runs():
    async with EmbeddedCluster() as cluster:
        await cluster.add_node("n1", "t4x1")
        await cluster.apply(a_pod("one", gpu=1, gpumem=10000))
        await cluster.bound("one")
        held = dict(cluster.pods["default", "one"].annotations)
        await cluster.kill_scheduler()
        with pytest.raises(ApiError, match="failed calling webhook"):
            await cluster.apply(a_pod("nobody", gpu=1, gpumem=1))
        address = cluster.service.extender
        await cluster.restart_scheduler()
        assert cluster.service.extender == address
        await cluster.apply([a_pod("two", gpu=1, gpumem=10000), a_pod("three", gpu=1, gpumem=5000)])
        await cluster.bound("three")
        assert "CardInsufficientMemory" in await cluster.refused("two")
        assert dict(cluster.pods["default", "one"].annotations) == held
        assert overcommitted(await current_picture(cluster)) == []
        assert await the_books_agree(cluster)


async def test_a_burst_with_failing_bindings_ends_with_every_pod_placed_once():
    async with EmbeddedCluster() as cluster:
        await cluster.add_node("n1", "t4x2")
        await cluster.add_node("n2", "a100-40gx1")
        before = cluster.faults.add(Fault(subresource="binding", status=500, times=2))
        after = cluster.faults.add(Fault(subresource="binding", drop="after", times=2))
        names = [f"p{number}" for number in range(12)]
        await cluster.apply([a_pod(name, gpu=1, gpumem=2000) for name in names])
        await cluster.bound(*names)
        assert (before.hits, after.hits) == (2, 2)
        found = await current_picture(cluster)
        assert (len(found.placed), overcommitted(found)) == (12, [])
        assert await the_books_agree(cluster)


async def test_waiting_for_a_service_that_died_says_so_at_once_with_its_last_lines():
    async with EmbeddedCluster() as cluster:
        os.kill(cluster.service.pid, 9)
        with pytest.raises(ServiceDied, match=r"(?s)signal SIGKILL; its last lines:\n.*listening"):
            await cluster.bound("nobody")
        assert isinstance(await cluster.failed(), ServiceDied)


async def test_a_service_that_cannot_start_is_an_error_with_its_own_words():
    with pytest.raises(ServiceDied, match=r"exit code 2; its last lines:\n(.|\n)*bind-timeout"):
        async with EmbeddedCluster(ClusterSettings(flags=["--bind-timeout=soon"])):
            pass


async def test_what_does_not_come_in_time_is_told_with_the_pods_story():
    async with EmbeddedCluster() as cluster:
        await cluster.add_node("n1")
        await cluster.apply(a_pod("p", gpu=1, gpumem=1000))
        await cluster.refused("p")
        with pytest.raises(NotInTime) as caught:
            await cluster.bound("p", timeout=0.2)
    told = str(caught.value)
    assert "pod default/p bound: not within 0.2 s" in told
    assert "PodScheduled=False Unschedulable 0/1 nodes are available" in told
    assert '"pod":"default/p"' in told


async def test_objects_are_changed_by_applying_them_again(tmp_path):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    async with a_server(tmp_path) as (_, client):
        await apply(client, body)
        found = await apply(client, {**body, "metadata": {"name": "c", "labels": {"new": "yes"}}})
        assert found.metadata.labels == {"new": "yes"}
        with pytest.raises(ConfigError, match="knows no Pod in 'v9'"):
            await apply(client, {"apiVersion": "v9", "kind": "Pod", "metadata": {"name": "p"}})


# What becomes of the process when its parent is gone.

PARENT = """
import asyncio, os
from hami_lab.cluster import EmbeddedCluster
async def main():
    async with EmbeddedCluster() as cluster:
        print(cluster.service.pid, flush=True)
        os.kill(os.getpid(), 9)
asyncio.run(main())
"""


async def test_the_service_ends_with_its_parent_however_that_ended(tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    result = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PARENT],
        capture_output=True,
        timeout=60,
        check=False,
        env=environment,
    )
    pid = int(result.stdout)
    for _ in range(500):
        if not is_alive(pid):
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"process {pid} is still there")


# Nodes by a short text.


def test_nodes_are_numbered_by_model():
    made = nodes_of("t4x4:2, a100-40g:migx8,t4x1")
    assert [(n["metadata"]["name"], n["metadata"]["annotations"][DEVICES]) for n in made] == [
        ("t4-1", "t4x4"),
        ("t4-2", "t4x4"),
        ("a100-40g-1", "a100-40g:migx8"),
        ("t4-3", "t4x1"),
    ]


@pytest.mark.parametrize(
    "text", ["", "t4", "t4x", "x4", "t4x4:0", "t4x4:-1", "t4x4:5001", "t4x4:99999999"]
)
def test_a_text_that_is_no_nodes_is_named(text):
    with pytest.raises(ConfigError, match=r"is not <model>x<devices>:<nodes>, for example t4x4:3"):
        nodes_of(text)
