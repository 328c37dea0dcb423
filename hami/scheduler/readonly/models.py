"""What the read-only API answers: the shapes that its OpenAPI description shows.

Memory is in MiB, compute in percent of one device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

PodPhase = Literal["waiting", "reserved", "binding", "bound"]


def _json_name(name: str) -> str:
    """camelCase; units keep their spelling, and ``more`` becomes ``continue``."""
    return "continue" if name == "more" else to_camel(name).replace("Mib", "MiB")


class Shape(BaseModel):
    """Base of all shapes: immutable, camelCase in JSON."""

    model_config = ConfigDict(alias_generator=_json_name, frozen=True, populate_by_name=True)


class Amount(Shape):
    """What there is, and what of it is used."""

    slots: int
    used_slots: int
    memory_mib: int
    used_memory_mib: int
    cores: int
    used_cores: int


class DeviceView(Amount):
    """A device; ``known`` is false while a pod runs on it whose allocation cannot be read."""

    node: str
    id: str
    vendor: str
    index: int
    model: str
    mode: str
    numa: int
    healthy: bool
    cordoned: bool
    known: bool
    pods: Sequence[str] = Field(default=(), description="namespace/name")


class NodeView(Shape):
    """A node by its vendors; ``vendors`` is empty for a node without devices."""

    name: str
    unschedulable: bool
    devices: int
    vendors: Mapping[str, Amount]


class NodeDetail(NodeView):
    inventory: Sequence[DeviceView]


class GrantView(Shape):
    id: str
    vendor: str
    memory_mib: int
    cores: int
    extra: Mapping[str, Any]


class ContainerView(Shape):
    name: str
    kind: Literal["init", "sidecar", "app"]
    devices: Sequence[GrantView]


class PodView(Shape):
    """A pod that holds devices or waits for them; ``node`` is empty while it waits."""

    namespace: str
    name: str
    uid: str
    phase: PodPhase
    node: str
    containers: Sequence[ContainerView]


class QuotaAmount(Shape):
    """One limit; ``left`` is negative when the limit was lowered below the present usage."""

    hard: int
    used: int
    left: int


class CountedByKubernetes(Shape):
    """A ``requests.`` key, which the API server counts at creation; its own quantities."""

    hard: str
    used: str


class QuotaView(Shape):
    """One ResourceQuota object; the keys are those of ``spec.hard``."""

    namespace: str
    name: str
    limits: Mapping[str, QuotaAmount]
    counted_by_kubernetes: Mapping[str, CountedByKubernetes]


Capacity = Literal["in-quota", "over-quota", ""]


class ElasticAmount(Shape):
    """One resource of an elastic quota, in ``unit``; an empty unit is a plain count.

    ``used`` counts running pods, like ``status.used``; null where ``min`` does not name the
    resource. ``reserved`` counts all pods. ``guaranteed_over_quota`` is what the quota may use
    beyond ``min`` before others may take it back. ``left`` is the most that one more pod may have
    now without evictions; null where no rule limits it.
    """

    unit: str
    min: int
    max: int | None
    used: int | None
    reserved: int
    borrowed: int
    lent: int
    guaranteed_over_quota: int
    left: int | None


class ElasticPod(Shape):
    """A pod that an elastic quota counts.

    ``victim_of`` is the pod for which it was or is to be evicted. ``gone``: it has left, and what
    it held waits for that pod.
    """

    namespace: str
    name: str
    uid: str
    node: str
    priority: int
    running: bool
    preemptible: bool
    capacity: Capacity
    holds: Mapping[str, int]
    victim_of: str = ""
    gone: bool = False


class ElasticQuotaView(Shape):
    """One ElasticQuota or CompositeElasticQuota; ``parent`` is its group in a QuotaTree."""

    kind: Literal["ElasticQuota", "CompositeElasticQuota"]
    namespace: str
    name: str
    namespaces: Sequence[str]
    parent: str
    resources: Mapping[str, ElasticAmount]
    pods: Sequence[ElasticPod] | None = Field(default=None, description="With ?pods=true only.")


class PoolAmount(Shape):
    """One resource of all elastic quotas together; ``free`` is what the quotas may still use."""

    unit: str
    used: int
    free: int


class AskedAmount(Shape):
    """The least that a pod asks of its quota, and the most that it may have now."""

    unit: str
    asked: int
    left: int | None


class VictimView(Shape):
    """A pod that is evicted for another; ``gone``: it has left."""

    namespace: str
    name: str
    node: str
    gone: bool


class ElasticWhy(Shape):
    """What elastic quota and preemption say about a pod.

    ``quota`` is the quota that counts it, if any. ``refusals`` are the rules that it would break
    now. ``victims`` are evicted for it. ``not_evicted`` says, by kind of plan, why no pod is.
    ``again`` is when a pod's protected time ends, in RFC 3339. ``capacity`` and ``victim_of`` are
    about a pod that runs.
    """

    quota: str = ""
    asks: Mapping[str, AskedAmount] = Field(default_factory=dict)
    refusals: Sequence[str] = ()
    victims: Sequence[VictimView] = ()
    not_evicted: Mapping[str, str] = Field(default_factory=dict)
    again: str = ""
    capacity: Capacity = ""
    victim_of: str = ""


class RefusedNodes(Shape):
    """Nodes that refused for the same reason; ``examples`` are the first few."""

    reason: str
    nodes: int
    examples: Sequence[str]


class WhyView(Shape):
    """Where a pod stands, in one sentence and in detail.

    ``at`` is when the pod was last refused, in RFC 3339. ``woken``: we have touched it since, and
    kube-scheduler is about to try it again.
    """

    namespace: str
    name: str
    uid: str
    phase: PodPhase | Literal["ended", "unmanaged"]
    message: str
    node: str = ""
    containers: Sequence[ContainerView] = ()
    at: str = ""
    woken: bool = False
    reasons: Sequence[RefusedNodes] = ()
    details: Sequence[str] = ()
    quotas: Sequence[QuotaView] = ()
    problems: Sequence[str] = ()
    elastic: ElasticWhy | None = None


class VendorSummary(Amount):
    devices: int
    healthy: int


class SummaryView(Shape):
    leading: bool
    nodes: int
    vendors: Mapping[str, VendorSummary]
    pods: Mapping[PodPhase, int]
    quotas: int


class NodePage(Shape):
    """A page of nodes; ``continue`` is the next request's parameter, empty on the last page."""

    items: Sequence[NodeView]
    more: str = ""


class DevicePage(Shape):
    items: Sequence[DeviceView]
    more: str = ""


class PodPage(Shape):
    items: Sequence[PodView]
    more: str = ""


class QuotaPage(Shape):
    items: Sequence[QuotaView]
    more: str = ""


class ElasticQuotaPage(Shape):
    """A page of elastic quotas; ``pool`` is of all quotas, on every page."""

    items: Sequence[ElasticQuotaView]
    pool: Mapping[str, PoolAmount]
    more: str = ""
