"""One decision: prefilter, rank and exact fit of one pod on a whole cluster, in process."""

from __future__ import annotations

import gc
import itertools
import random
import time
from collections.abc import Mapping

import msgspec

from benchmarks.rows import Row, ms, p50, p99, ratio
from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Device, Grant
from hami.domain.kubernetes.objects import Container, Metadata, Node, Pod, PodSpec, Resources
from hami.domain.requests import Invalid
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, PodUid, VendorKey
from hami.policy.filter.decision import Placed, decide
from hami.policy.pods.pod_request import parse_pod
from hami.policy.quota import QuotaLedger
from hami.policy.tables.cluster_table import ClusterTable
from hami.policy.tables.node_names import NameBlock
from hami.vendors.registry import Vendors, load_vendors

DEVICES_PER_NODE = 8
SLICES_PER_NODE = 4
NVIDIA = VendorKey("NVIDIA")
MOST_MS, MOST_GROWTH = 2.0, 12.0

ASKS: Mapping[str, Mapping[str, str]] = {
    "memory and cores": {
        "nvidia.com/gpu": "1",
        "nvidia.com/gpumem": "8000",
        "nvidia.com/gpucores": "10",
    },
    "30 % of memory": {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "30"},
    "4 whole devices": {"nvidia.com/gpu": "4", "nvidia.com/gpucores": "100"},
    "refused by every node": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "90000"},
}


def a_cluster(vendors: Vendors, nodes: int) -> ClusterTable:
    """A cluster of ``nodes`` x 8 devices, 4 slices a node at random, the same in every run."""
    table = ClusterTable(vendors)
    for number in range(nodes):
        devices = [
            Device(
                id=DeviceId(f"GPU-{number}-{index}"),
                vendor=NVIDIA,
                index=index,
                model="NVIDIA-NVIDIA H100 80GB HBM3",
                slots=10,
                memory_mib=MemoryMiB(81559),
                numa=index // 4,
                mode="hami-core",
            )
            for index in range(DEVICES_PER_NODE)
        ]
        annotations = dict(vendors[NVIDIA].node_annotations(devices))
        table.set_node(Node(metadata=Metadata(name=f"node-{number:05}", annotations=annotations)))
    dice = random.Random(0)
    for number in range(nodes * SLICES_PER_NODE):
        node, index = dice.randrange(nodes), dice.randrange(DEVICES_PER_NODE)
        grant = Grant(
            device_id=DeviceId(f"GPU-{node}-{index}"),
            vendor=NVIDIA,
            memory_mib=MemoryMiB(4096),
            cores=CorePercent(5),
        )
        container = ContainerAllocation(name="main", kind=ContainerKind.APP, grants=(grant,))
        allocation = PodAllocation(node=f"node-{node:05}", containers=(container,))
        table.charge(PodUid(f"pod-{number}"), allocation)
    return table


def time_decisions(vendors: Vendors, table: ClusterTable, ask: str, runs: int) -> list[float]:
    """Seconds from the pod to the decision, for each of ``runs`` pods."""
    names = list(table.node_names)
    ledger = QuotaLedger(vendors)
    taken: list[float] = []
    for number in range(runs):
        container = Container(name="main", resources=Resources(limits=dict(ASKS[ask])))
        pod = Pod(
            metadata=Metadata(name=f"new-{number}", uid=PodUid(f"new-{number}")),
            spec=PodSpec(containers=[container]),
        )
        # As kube-scheduler sends them, another node first each time.
        start = number * 997 % len(names)
        sent = msgspec.json.encode(names[start:] + names[:start])
        begin = time.perf_counter()
        candidates = NameBlock.read(sent)
        assert candidates is not None
        request = parse_pod(pod, vendors, SchedulingPolicy())
        assert not isinstance(request, Invalid)
        outcome = decide(table, request, ledger.gate(pod), candidates)
        taken.append(time.perf_counter() - begin)
        assert isinstance(outcome, Placed) is not (ask == "refused by every node")
    return taken


def measure() -> list[Row]:
    """Each request at 5000 nodes, and the first one over ten times the nodes."""
    vendors = load_vendors()
    taken: dict[tuple[int, str], list[float]] = {}
    sizes = {500: 400, 5000: 400, 50_000: 60}
    first = next(iter(ASKS))
    for nodes, runs in sizes.items():
        table = a_cluster(vendors, nodes)
        gc.collect()
        gc.freeze()
        for ask in ASKS if nodes == 5000 else [first]:
            taken[nodes, ask] = time_decisions(vendors, table, ask, runs)
        gc.unfreeze()
    rows = [
        Row(
            what=f"Decision in process, 5000 nodes, {ask}, p50",
            value=round(p50(taken[5000, ask]) * 1000, 2),
            unit="ms",
            most=MOST_MS,
            seen=f"p99 {ms(p99(taken[5000, ask]))}",
        )
        for ask in ASKS
    ]
    for few, many in itertools.pairwise(sizes):
        less, more = p50(taken[few, first]), p50(taken[many, first])
        rows.append(
            Row(
                what=f"Decision in process, {many} nodes against {few}, p50",
                value=ratio(more, less),
                unit="x",
                most=MOST_GROWTH,
                seen=f"{ms(more)}, {ms(less)}",
            )
        )
    return rows
