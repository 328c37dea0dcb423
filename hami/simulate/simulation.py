"""Every pod through admission, kube-scheduler's filters and ours, one after the other.

Pods that already run are charged first. Each placement is charged before the next pod is looked at,
as the scheduler does with its reservations. The simulation writes nothing and evicts no pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import assert_never

import msgspec

from hami.domain import reasons
from hami.domain.admission import Denied
from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Node, Pod, ResourceQuota
from hami.domain.profile import VendorProfile
from hami.domain.reasons import Rejected
from hami.domain.requests import PodRequest
from hami.domain.units import PodUid
from hami.hookspecs import PluginConfig
from hami.policy.filter.decision import Placed, Refused, decide
from hami.policy.pods.accounting import account_of
from hami.policy.pods.admission import AdmissionSettings, Admitted, NotOurs, admit
from hami.policy.pods.pod_request import parse_pod
from hami.policy.profile.liveness import alive
from hami.policy.quota import QuotaLedger, Refusal
from hami.policy.quota.elastic.objects.validation import QuotaObject
from hami.policy.tables.cluster_table import ClusterTable
from hami.scheduler.bookings.quotas.elastic_objects import ElasticObjects
from hami.simulate.kube_filter import KubeFilter
from hami.simulate.manifests import Manifests
from hami.simulate.result import DeniedPod, NodeDevice, PlacedPod, Simulation, UnplacedPod
from hami.simulate.unread import UnreadRequests, unclaimed_registers
from hami.vendors.registry import Vendors

Progress = Callable[[int, int], None]
"""Called after each pod with the number of pods done and of all pods."""


def no_progress(_done: int, _total: int) -> None:
    """A progress callback that does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How pods are taken in, and the device configuration."""

    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    config: PluginConfig = field(default_factory=lambda: MappingProxyType({}))


def simulate(
    vendors: Vendors,
    manifests: Manifests,
    settings: Settings,
    progress: Progress = no_progress,
) -> Simulation:
    """Place what can be placed, in the order of ``manifests.pods``.

    Raises:
        ConfigError: a node asks for simulated devices that no plugin knows.
    """
    cluster = _Cluster(vendors, manifests, settings)
    pods = [pod for pod in manifests.pods if not pod.finished]
    bound = {p.uid for p in pods if runs(p, vendors, manifests.from_cluster)}
    running = [pod for pod in pods if pod.uid in bound]
    waiting = [pod for pod in pods if pod.uid not in bound]
    for done, pod in enumerate([*running, *waiting], start=1):
        if done <= len(running):
            cluster.take_over(pod)
        else:
            cluster.schedule(pod)
        progress(done, len(running) + len(waiting))
    return cluster.result()


def runs(pod: Pod, vendors: Vendors, from_cluster: Container[PodUid]) -> bool:
    """Whether the pod is bound to a node already, and so uses devices there, known or not.

    A manifest that names a node, without an allocation and without a status from a cluster, is a
    new pod.
    """
    if not pod.spec.node_name:
        return False
    return pod.uid in from_cluster or any(
        profile.pod_annotations.allocated in pod.annotations for profile in vendors.profiles
    )


class _Cluster:
    """The state of one simulation; devices are only taken, never freed."""

    def __init__(self, vendors: Vendors, manifests: Manifests, settings: Settings) -> None:
        self._vendors = vendors
        self._settings = settings
        self._table = ClusterTable(vendors, alive=_alive)
        self._ledger = QuotaLedger(vendors)
        self._placed: list[PlacedPod] = []
        self._running: list[PlacedPod] = []
        self._pending: list[UnplacedPod] = []
        self._denied: list[DeniedPod] = []
        self._refusals: dict[bytes, tuple[int, UnplacedPod]] = {}
        self._warnings: list[str] = []
        self._without_devices = 0
        self._nodes = [self._add_node(node) for node in manifests.nodes]
        self._kube = KubeFilter(self._nodes)
        self._unread = UnreadRequests(vendors)
        self._warnings += unclaimed_registers(self._nodes, vendors)
        for quota in manifests.quotas:
            self._add_quota(quota)
        self._set_elastic(manifests.elastic)

    def take_over(self, pod: Pod) -> None:
        """Charge a pod that runs already, whatever the limits say."""
        self._warnings += self._unread.of_pod(pod)
        found = account_of(pod, self._vendors)
        if found is None:
            self._without_devices += 1
            self._ledger.seen(pod)  # Its CPU and memory count in an elastic quota.
            return
        self._warnings += found.problems
        self._warnings += self._strangers(pod, found.allocation)
        self._table.charge(pod.uid, found.allocation, found.unknown, init_ended=found.init_ended)
        self._ledger.charge(pod, found.running)
        self._running.append(PlacedPod(pod=pod, allocation=found.allocation))

    def schedule(self, pod: Pod) -> None:
        """Decide about a new pod: denied, left out, pending or placed."""
        match admit(pod, self._vendors, self._settings.admission, self._ledger):
            case Admitted(request=request):
                self._warnings += self._unread.of_pod(request.pod)
                self._place(request)
            case Denied() as denied:
                self._denied.append(DeniedPod(pod=pod, message=denied.text))
            case NotOurs() as other:
                self._leave_out(pod, other.text)
            case never:
                assert_never(never)

    def result(self) -> Simulation:
        return Simulation(
            placed=tuple(self._placed),
            running=tuple(self._running),
            pending=tuple(self._pending),
            denied=tuple(self._denied),
            devices=tuple(
                NodeDevice(node=node.name, state=state)
                for node in self._nodes
                for key in self._vendors
                for state in self._table.device_states(node.name, key)
            ),
            without_devices=self._without_devices,
            warnings=tuple(self._warnings),
        )

    def _place(self, request: PodRequest) -> None:
        pod = request.pod
        if not request.vendors:
            self._without_devices += 1
            return
        # Replicas ask alike, and nothing is freed here. So without a placement in between the last
        # answer still holds, and a full cluster costs one look per kind of pod.
        about = pod.metadata
        alike = msgspec.json.encode((pod.namespace, about.labels, about.annotations, pod.spec))
        placements, former = self._refusals.get(alike, (-1, None))
        if former and placements == len(self._placed):
            self._pending.append(replace(former, pod=pod))
            return
        candidates = self._kube.candidates(pod)
        match self._decided(request, candidates.names):
            case Placed(allocation=allocation):
                self._table.charge(pod.uid, allocation)
                self._placed.append(PlacedPod(pod=pod, allocation=allocation))
            case Refused() as refused:
                waiting = self._explain(pod, candidates.refused, refused)
                self._refusals[alike] = (len(self._placed), waiting)
                self._pending.append(waiting)
            case never:
                assert_never(never)

    def _decided(self, request: PodRequest, candidates: Sequence[str]) -> Placed | Refused:
        """Decide, and charge the quotas if the pod is placed; in the service's order."""
        if hopeless := self._ledger.elastic.refusals(self._ledger.claim(request)):
            return _over_quota(candidates, hopeless)
        gate = self._ledger.gate(request.pod)
        outcome = decide(self._table, request, gate, candidates)
        if isinstance(outcome, Refused):
            return outcome
        refusals = self._ledger.reserve(request.pod, outcome.allocation)
        return _over_quota(candidates, refusals) if refusals else outcome

    def _explain(self, pod: Pod, by_kube: Mapping[str, str], ours: Refused) -> UnplacedPod:
        # Nodes that are refused alike share one answer: write each once.
        said = [str(answer) for answer in ours.answers]
        each = ours.answer.tolist()
        texts = dict(by_kube) | dict(zip(ours.candidates, map(said.__getitem__, each), strict=True))
        details = [text for i in dict.fromkeys(each) for text in ours.answers[i].details]
        return UnplacedPod(
            pod=pod,
            reasons={n.name: texts[n.name] for n in self._nodes if n.name in texts},
            message=unavailable(len(self._nodes), texts.values(), details),
        )

    def _leave_out(self, pod: Pod, why: str) -> None:
        request = parse_pod(pod, self._vendors, self._settings.admission.policy)
        if isinstance(request, PodRequest) and not request.vendors:
            self._without_devices += 1
        else:
            self._warnings.append(f"Pod {pod.full_name} is left out: {why}")

    def _add_node(self, node: Node) -> Node:
        """Add a node, with the devices that plugins simulate there; returns the node with them."""
        added = self._vendors.simulated_annotations(node, self._settings.config)
        if added:
            annotations = {**added, **node.annotations}
            metadata = msgspec.structs.replace(node.metadata, annotations=annotations)
            node = msgspec.structs.replace(node, metadata=metadata)
        for problem in self._table.set_node(node):
            self._warnings.append(f"Node {node.name}: {problem}")
        return node

    def _add_quota(self, quota: ResourceQuota) -> None:
        self._warnings += [str(problem) for problem in self._ledger.set_quota(quota)]
        for key in quota.spec.hard or {}:
            if self._vendors.manages(key.removeprefix("requests.")):
                self._warnings.append(
                    f"ResourceQuota {quota.namespace}/{quota.name}: {key} is counted by the API "
                    f"server at creation, which is not simulated; only limits.* keys are"
                )

    def _set_elastic(self, quotas: Iterable[QuotaObject]) -> None:
        objects = ElasticObjects()
        for quota in quotas:
            objects.put(quota)
        leaves, nodes, problems = objects.read(self._ledger.units)
        problems += self._ledger.set_elastic(leaves, nodes, None, lambda _: ())
        self._warnings += [str(problem) for problem in problems]

    def _strangers(self, pod: Pod, allocation: PodAllocation) -> list[str]:
        """Warnings about devices of a running pod that its node does not have."""
        node = allocation.node
        known = {
            (key, state.device.id)
            for key in self._vendors
            for state in self._table.device_states(node, key)
        }
        lost = {(g.vendor, g.device_id) for g in allocation.grants} - known
        return [
            f"Pod {pod.full_name} holds {vendor} device {device}, which node {node} does not have"
            for vendor, device in sorted(lost)
        ]


def _over_quota(candidates: Sequence[str], refusals: Iterable[Refusal]) -> Refused:
    texts = [str(refusal) for refusal in refusals]
    return Refused.everywhere(candidates, Rejected.of(reasons.QUOTA, 1, texts))


def unavailable(nodes: int, reasons: Iterable[str], details: Iterable[str] = ()) -> str:
    """kube-scheduler's summary: how many nodes gave each reason; then each detail once."""
    counts = sorted(f"{count} {text}" for text, count in Counter(reasons).items())
    said = ", ".join(counts) or "no nodes available to schedule pods"
    return " ".join([f"0/{nodes} nodes are available: {said}.", *dict.fromkeys(details)])


_BEGINNING = datetime.fromisoformat("0001-01-01T00:00:00")


def _alive(profile: VendorProfile, node: Node) -> bool:
    """Whether the node's vendor is alive; a manifest has no age, so no handshake is too old."""
    return alive(profile, node, _BEGINNING, absent_is_alive=True)
