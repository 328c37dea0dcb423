"""A burst of pods where a node takes one at a time: HAMi's node lock, on a real control plane.

It needs the binaries of ``make test-kubernetes``. All pods wait before kube-scheduler may go on.
The plugin is simulated and does only what the protocol demands (:mod:`benchmarks.lock_plugin`). The
same burst onto the same nodes without locks takes turns with it.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.binding_watch import BindingWatch
from benchmarks.control_plane import ASKS, DEVICES, create, emptied, writes
from benchmarks.rows import Row, ratio
from tests.kubernetes.binaries import binaries
from tests.kubernetes.client import node_path
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.service import Service

NODES, PODS, TURNS = 200, 500, 3
MOST_NODE_PATCHES = 2
BINDS = re.compile(
    r'^hami_scheduler_bind_duration_seconds_count\{.*outcome="(\w+)".*\} (\S+)$', re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """One burst: ``writes`` by ``verb what``, ``binds`` by outcome, summed over all pods."""

    pods_per_s: float
    writes: Counter[str]
    binds: Counter[str]

    def per_pod(self, what: str) -> float:
        return round(
            sum(n for name, n in self.writes.items() if f" {what}" in f" {name}") / PODS, 2
        )


def burst(cluster: Cluster, service: Service) -> Burst:
    scheduler = cluster.plane.processes["kube-scheduler"]
    before = writes(cluster), _binds(service)
    with BindingWatch(cluster.plane, cluster.namespace) as watch:
        scheduler.send_signal(signal.SIGSTOP)
        create(cluster, [f"burst-{number:04}" for number in range(PODS)], ASKS)
        begin = time.monotonic()
        scheduler.send_signal(signal.SIGCONT)
        watch.wait(PODS, seconds=300)
        taken = max(watch.bound.values()) - begin
    return Burst(
        pods_per_s=round(PODS / taken, 1),
        writes=_settled(cluster) - before[0],
        binds=_binds(service) - before[1],
    )


def _binds(service: Service) -> Counter[str]:
    found = BINDS.findall(service.text("/metrics"))
    return Counter({outcome: int(float(count)) for outcome, count in found})


def _settled(cluster: Cluster) -> Counter[str]:
    """The counts once nothing is written any more; events are written late."""
    last = writes(cluster)
    while True:
        time.sleep(1)
        if (now := writes(cluster)) == last:
            return now
        last = now


@contextmanager
def locking(cluster: Cluster) -> Iterator[None]:
    """A context in which every node wants its lock, and a plugin releases it."""
    _announce(cluster, "lock")
    command = [sys.executable, "-m", "benchmarks.lock_plugin", str(cluster.plane.kubeconfig())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            process.terminate()
    _announce(cluster, "simulated")


def _announce(cluster: Cluster, identity: str) -> None:
    for node in cluster.nodes():
        said = {"hami.io/node-identity": f"NVIDIA={identity}", "hami.io/mutex.lock": None}
        path = node_path(node["metadata"]["name"])
        cluster.admin.merge(path, {"metadata": {"annotations": said}})
    time.sleep(1)  # By now every watcher has seen it.


def measure() -> list[Row]:
    """Measure with and without locks.

    Raises:
        Missing: a binary is missing.
    """
    locked: list[Burst] = []
    free: list[Burst] = []
    with (
        tempfile.TemporaryDirectory() as state,
        ControlPlane(binaries(build=False), Path(state), audit=False) as plane,
        Cluster(plane, Path(state)) as cluster,
    ):
        cluster.add_nodes(*(f"node-{number:03}" for number in range(NODES)), devices=DEVICES)
        service = cluster.scheduled()
        for _ in range(TURNS):
            with locking(cluster):
                locked.append(burst(cluster, service))
                emptied(cluster)
            free.append(burst(cluster, service))
            emptied(cluster)
    return _rows(locked, free)


def _rows(locked: list[Burst], free: list[Burst]) -> list[Row]:
    speeds = [turn.pods_per_s for turn in locked]
    others = median(turn.pods_per_s for turn in free)
    what = f"{PODS} pods onto {NODES} nodes, each of which takes one at a time"

    def worst(of: str) -> float:
        return max(turn.per_pod(of) for turn in locked)

    return [
        Row(
            what=f"{what}: pods a second against the same nodes without locks",
            value=ratio(median(speeds), others),
            unit="x",
            seen=f"{', '.join(f'{speed}/s' for speed in speeds)}; without locks {others}/s",
        ),
        Row(
            what="Patches of nodes for each of these pods, of which the plugin's is one",
            value=worst("PATCH nodes"),
            unit="writes",
            most=MOST_NODE_PATCHES,
            seen=", ".join(
                f"{name} {count / PODS:.2f}" for name, count in sorted(locked[-1].writes.items())
            ),
        ),
        Row(
            what="Binds that found the lock taken, for each of these pods",
            value=max(round(turn.binds["refused"] / PODS, 3) for turn in locked),
            unit="binds",
            seen=", ".join(f"{turn.binds['refused']} of {turn.binds.total()}" for turn in locked),
        ),
        Row(
            what="Events for each of these pods",
            value=worst("events"),
            unit="writes",
        ),
    ]
