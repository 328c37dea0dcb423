"""Laws over whole clusters: MIG and shared GPUs beside two vendors that are only data, with quota."""

from __future__ import annotations

import random
from itertools import combinations

from hami_nvidia import plugin
from hami_nvidia.schedule.mig_placement import MIG_INSTANCE
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.allocations import PodAllocation
from hami.domain.devices import Device, Usage
from hami.domain.kubernetes.objects import (
    Container,
    Metadata,
    Node,
    Pod,
    PodSpec,
    ResourceQuota,
    ResourceQuotaSpec,
    Resources,
)
from hami.domain.scheduling import SchedulingPolicy
from hami.policy.filter.decision import Placed, decide, prefilter
from hami.policy.fit.exact import fit_pod
from hami.policy.pods.pod_request import parse_pod
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.policy.quota import QuotaLedger
from hami.policy.tables.cluster_table import ClusterTable
from hami.vendors.registry import Vendors

from ..builders import CORES, COUNT, MEMORY, PERCENT, a_gpu, a_mig_gpu

DATA = """
profiles:
- key: ACME
  resources: {count: acme.com/gpu, memory: acme.com/mem, memory_percentage: acme.com/pct, cores: acme.com/cores}
  node_annotations: {register: acme.com/register}
  pod_annotations: {allocated: acme.com/allocated}
- key: WHOLE
  resources: {count: whole.io/unit}
  whole_device: true
  memory_factor: 256
  node_annotations: {register: whole.io/register}
  pod_annotations: {allocated: whole.io/allocated}
"""


class World:
    """A random but reproducible cluster, its pods and quotas."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.vendors = Vendors.of({"data": ProfileVendor(DATA), "nvidia": plugin})
        self.table = ClusterTable(self.vendors)
        self.ledger = QuotaLedger(self.vendors)
        for number in range(3):
            assert self.table.set_node(self.a_node(f"n{number}")) == ()
        self.names = sorted(self.table.node_names)
        if self.chance(0.7):
            self.ledger.set_quota(self.a_quota())

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def a_node(self, name: str) -> Node:
        pick, many = self.dice.choice, self.dice.randint
        gpus = [
            a_mig_gpu(f"GPU-{i}", index=i, numa=i % 2)
            if self.chance(0.5)
            else a_gpu(
                f"GPU-{i}", memory=pick([20000, 40960]), slots=pick([2, 4]), index=i, numa=i % 2
            )
            for i in range(many(0, 3))
        ]
        acme = [
            Device(id=f"d{i}", vendor="ACME", index=i, memory_mib=pick([4000, 8000]), slots=3)
            for i in range(many(0, 3))
        ]
        whole = [
            Device(id=f"w{i}", vendor="WHOLE", memory_mib=512, cores=pick([0, 100]))
            for i in range(many(0, 2))
        ]
        annotations: dict[str, str] = {}
        for key, devices in (("NVIDIA", gpus), ("ACME", acme), ("WHOLE", whole)):
            if devices:
                annotations |= self.vendors[key].node_annotations(devices)
        return Node(metadata=Metadata(name=name, annotations=annotations))

    def a_quota(self) -> ResourceQuota:
        most = {
            MEMORY: 80000,
            CORES: 300,
            COUNT: 5,
            "acme.com/mem": 16000,
            "acme.com/cores": 150,
            "whole.io/unit": 2,
        }
        hard = {
            f"limits.{r}": str(self.dice.randint(0, n)) for r, n in most.items() if self.chance(0.4)
        }
        return ResourceQuota(
            metadata=Metadata(name="q", namespace="default"), spec=ResourceQuotaSpec(hard=hard)
        )

    def limits(self) -> dict[str, str]:
        pick, asked = self.dice.choice, {}
        if self.chance(0.6):
            asked[COUNT] = pick([1, 1, 2, 3])
            if self.chance(0.5):
                asked[MEMORY] = pick([4000, 10000, 20000])
            if self.chance(0.4):
                asked[PERCENT] = pick([10, 50, 100])
            if self.chance(0.5):
                asked[CORES] = pick([0, 15, 30, 60, 100])
        if self.chance(0.4):
            asked["acme.com/gpu"] = pick([1, 2])
            if self.chance(0.5):
                asked["acme.com/mem"] = pick([1000, 3000, 8000])
            if self.chance(0.3):
                asked["acme.com/pct"] = pick([25, 100])
        if self.chance(0.2):
            asked["whole.io/unit"] = pick([1, 2])
        return {name: str(amount) for name, amount in asked.items()}

    def a_pod(self, number: int) -> Pod:
        def containers(
            prefix: str, most: int, least: int, kinds: list[str | None]
        ) -> list[Container]:
            return [
                Container(
                    name=f"{prefix}{i}",
                    resources=Resources(limits=self.limits()),
                    restart_policy=self.dice.choice(kinds),
                )
                for i in range(self.dice.randint(least, most))
            ]

        choices = {
            "hami.io/gpu-scheduler-policy": [
                "topology-aware",
                "binpack",
                "mutex",
                "numa,binpack",
                "spread,topology-aware",
            ],
            "hami.io/node-scheduler-policy": ["spread"],
            "nvidia.com/vgpu-mode": ["mig", "hami-core"],
            "nvidia.com/numa-bind": ["true"],
        }
        annotations = {k: self.dice.choice(v) for k, v in choices.items() if self.chance(0.25)}
        return Pod(
            metadata=Metadata(name=f"p{number}", namespace="default", uid=f"u{number}", annotations=annotations),
            spec=PodSpec(
                containers=containers("a", 3, 1, [None]),
                init_containers=containers("i", 2, 0, [None, "Always"]),
            ),
        )  # fmt: skip

    def check(self) -> None:
        for name in self.names:
            for key in self.vendors:
                for state in self.table.device_states(name, key):
                    device, used = state.device, state.usage
                    assert 0 <= used.slots <= device.slots
                    if device.mode != "mig":
                        assert used.memory_mib <= device.memory_mib
                        assert used.cores <= device.cores
        for constraint in self.ledger.constraints:
            used = self.ledger.used(constraint.namespace, constraint.name)
            assert all(used[resource] <= limit for resource, limit in constraint.limits.items())


def no_overlap(name: str, own: dict[str, PodAllocation]) -> None:
    """Instances of different pods on one device never share a place."""
    held = [
        (uid, grant.device_id, grant.extra.get(MIG_INSTANCE).placement)
        for uid, allocation in own.items()
        if allocation.node == name
        for grant in allocation.grants
        if grant.extra.get(MIG_INSTANCE)
    ]
    for (pod, device, a), (other, second, b) in combinations(held, 2):
        assert pod == other or device != second or not a.overlaps(b)


@given(st.integers(0, 2**32))
def test_no_sequence_of_pods_takes_more_than_there_is_and_every_refusal_has_its_reasons(seed):
    world, live = World(seed), {}
    for number in range(12):
        if live and world.chance(0.25):
            uid = world.dice.choice(sorted(live))
            world.table.release(uid)
            world.ledger.release(uid)
            del live[uid]
            continue
        if live and world.chance(0.2):
            uid = world.dice.choice(sorted(live))
            world.table.charge(uid, live[uid], init_ended=True)
        pod = world.a_pod(number)
        request = parse_pod(pod, world.vendors, SchedulingPolicy())
        if not request.vendors:
            continue
        gate = world.ledger.gate(pod)
        kept = prefilter(world.table, request, gate, world.names).kept.tolist()
        for name, stays in zip(world.names, kept, strict=True):
            exact = fit_pod(request, world.table.devices(name), world.vendors, gate)
            assert stays or not isinstance(exact, PodAllocation)
        outcome = decide(world.table, request, gate, world.names)
        if not isinstance(outcome, Placed):
            assert set(outcome.reasons) == set(world.names)
            assert all(rejected.counts for rejected in outcome.reasons.values())
            continue
        assert world.ledger.reserve(pod, outcome.allocation) == ()
        world.table.charge(pod.uid, outcome.allocation)
        live[pod.uid] = outcome.allocation
        world.check()
        no_overlap(outcome.allocation.node, live)
    for uid in live:
        world.table.release(uid)
        world.ledger.release(uid)
    for name in world.names:
        for key in world.vendors:
            assert all(
                s.usage == Usage() and not s.grants for s in world.table.device_states(name, key)
            )


@given(st.integers(0, 2**32))
def test_the_order_of_nodes_devices_and_plugins_does_not_matter(seed):
    world = World(seed)
    mixed = World(seed)
    mixed.vendors = Vendors.of({"z": ProfileVendor(DATA), "a": plugin})
    mixed.table = ClusterTable(mixed.vendors)
    nodes = [world.table.devices(name).node for name in world.names]
    for node in random.Random(seed).sample(nodes, len(nodes)):
        annotations: dict[str, str] = {}
        for key in mixed.vendors:
            devices = list(mixed.vendors[key].node_devices(node))
            random.Random(seed).shuffle(devices)
            if devices:
                annotations |= mixed.vendors[key].node_annotations(devices)
        mixed.table.set_node(Node(metadata=Metadata(name=node.name, annotations=annotations)))
    for number in range(6):
        pod = world.a_pod(number)
        answers = []
        for side in (world, mixed):
            request = parse_pod(pod, side.vendors, SchedulingPolicy())
            outcome = decide(side.table, request, side.ledger.gate(pod), side.names)
            if isinstance(outcome, Placed):
                side.table.charge(pod.uid, outcome.allocation)
                side.ledger.charge(pod, outcome.allocation)
                answers.append(outcome)
            else:
                answers.append({name: str(why) for name, why in outcome.reasons.items()})
        assert answers[0] == answers[1]
