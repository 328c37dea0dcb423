"""A world in which gangs ask for devices, as kube-scheduler asks for their pods."""

from __future__ import annotations

from typing import Any

import msgspec

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import (
    Metadata,
    Node,
    Pod,
    PodGroup,
    PodGroupSpec,
    Toleration,
)
from hami.domain.scheduling import SchedulingPolicy
from hami.policy.filter.gangs import SCHEDULER_PLUGINS
from hami.policy.pods.pod_request import parse_pod
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.cluster.endings import expire
from hami.scheduler.cluster.feeds import PodFeed
from hami.scheduler.decide.overstayed import make_way, reserve, rest_of
from hami.scheduler.pending.pending_pods import Refusal

from ..builders import Cluster, a_pod, granted

TTL = 300.0


def member(name: str, group: str = "g", **asks: Any) -> Pod:
    pod = a_pod(name, **asks)
    labels = {"scheduling.x-k8s.io/pod-group": group}
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels)
    )


def tolerating(pod: Pod) -> Pod:
    """Nobody knows whether it is offered the same nodes as others."""
    spec = msgspec.structs.replace(pod.spec, tolerations=[Toleration(key="gpu", operator="Exists")])
    return msgspec.structs.replace(pod, spec=spec)


class Gangs:
    """A state, and the questions that kube-scheduler asks of it."""

    def __init__(self, *nodes: Node, ttl: float = TTL) -> None:
        self.ttl = ttl
        self.cluster = Cluster(*nodes)
        self.state = self.cluster.state
        self._feed = PodFeed(self.state)

    def sees(self, *pods: Pod) -> None:
        for pod in pods:
            self._feed.changed(pod, None)

    def gone(self, pod: Pod) -> None:
        self._feed.gone(pod)

    def filter(self, pod: Pod, *candidates: str) -> str:
        """The node; empty when it is refused."""
        policy = SchedulingPolicy()
        request = parse_pod(pod, self.state.vendors, policy)
        names = list(candidates) or list(self.state.nodes)
        outcome = reserve(self.state, request, names, policy)  # type: ignore[arg-type]
        if isinstance(outcome, PodAllocation):
            return outcome.node
        self.state.pending.refused(pod, names, Refusal(at=0.0, outcome=outcome))
        rest_of(self.state, pod)
        self.said = "; ".join({str(answer) + "".join(answer.details) for answer in outcome.answers})
        return ""

    def bind(self, pod: Pod) -> None:
        """As the informer shows it."""
        held = self.state.reservations[pod.uid]
        held.phase = Phase.BOUND
        slots = [f"{grant.device_id}:{grant.memory_mib}" for grant in held.allocation.grants]
        self.sees(granted(pod, held.allocation.node, *slots))

    def least(self, number: int, group: str = "g") -> None:
        spec = PodGroupSpec(min_member=number)
        about = Metadata(name=group, namespace="default")
        self.state.groups.group_changed(SCHEDULER_PLUGINS, PodGroup(metadata=about, spec=spec))

    @property
    def held(self) -> set[str]:
        return {each.pod.name for each in self.state.reservations.values()}

    def passes(self, seconds: float) -> None:
        self.cluster.clock.now += seconds

    def sweep(self) -> set[str]:
        """Who gave way."""
        gone = make_way(self.state, self.ttl, SchedulingPolicy())
        expire(self.state, self.ttl)
        return {each.pod.name for each in gone}


def three(world: Gangs, **asks: Any) -> list[Pod]:
    pods = [member(f"m{number}", **({"mem": 3000} | asks)) for number in range(3)]
    world.sees(*pods)
    return pods
