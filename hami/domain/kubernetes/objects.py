"""The Kubernetes objects we read, with only the fields we read.

The API server's JSON decodes straight into these msgspec structs (8 µs for a 10 KB pod). Unknown
fields are ignored; ``null`` and "absent" mean the same. Quantities stay text, as the API server
sends them; ``hami.domain.kubernetes.quantity`` gives them a meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from hami.domain.allocations import ContainerKind
from hami.domain.units import PodUid

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Lean(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of the structs below: immutable, camelCase on the wire.

    Decoded JSON has no cycles, so the garbage collector need not visit these objects.
    """


class OwnerReference(Lean, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Lean, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: PodUid = PodUid("")
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Resources(Lean, frozen=True):
    """A container's ``resources``; values are quantity texts."""

    limits: dict[str, str] | None = None
    requests: dict[str, str] | None = None


class EnvVar(Lean, frozen=True):
    name: str
    value: str = ""


class SecurityContext(Lean, frozen=True):
    privileged: bool | None = None


class VolumeMount(Lean, frozen=True):
    """Where a container sees a volume; ``name`` is the volume's."""

    name: str = ""
    mount_path: str = ""


class VolumeDevice(Lean, frozen=True):
    """A raw block volume, which the container sees as a device file."""

    device_path: str = ""


class Container(Lean, frozen=True):
    name: str = ""
    resources: Resources | None = None
    env: list[EnvVar] | None = None
    security_context: SecurityContext | None = None
    restart_policy: str | None = None
    volume_mounts: list[VolumeMount] | None = None
    volume_devices: list[VolumeDevice] | None = None

    @property
    def limits(self) -> Mapping[str, str]:
        return (self.resources.limits if self.resources else None) or _NOTHING

    @property
    def requests(self) -> Mapping[str, str]:
        return (self.resources.requests if self.resources else None) or _NOTHING

    @property
    def privileged(self) -> bool:
        return bool(self.security_context and self.security_context.privileged)

    def quantity(self, resource: str) -> str | None:
        """The text for ``resource``: the limit, else the request, else None."""
        asked = self.resources
        if not resource or asked is None:
            return None
        text = asked.limits.get(resource) if asked.limits else None
        if text is None and asked.requests:
            text = asked.requests.get(resource)
        return text


class Toleration(Lean, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SchedulingGate(Lean, frozen=True):
    name: str = ""


class HostPath(Lean, frozen=True):
    path: str = ""


class Volume(Lean, frozen=True):
    name: str = ""
    host_path: HostPath | None = None


class SchedulingGroup(Lean, frozen=True):
    """The pod's PodGroup, in Kubernetes 1.36's own API.

    https://kubernetes.io/docs/concepts/workloads/pods/scheduling-group/
    """

    pod_group_name: str = ""


class PodSpec(Lean, frozen=True):
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    ephemeral_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    scheduler_name: str = ""
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None
    affinity: dict[str, Any] | None = None
    runtime_class_name: str | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    overhead: dict[str, str] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None


class ContainerStateTerminated(Lean, frozen=True):
    exit_code: int = 0


class ContainerState(Lean, frozen=True):
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Lean, frozen=True):
    """A container's state as kubelet reports it.

    ``container_id`` is empty until the container was created for the first time.
    """

    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    state: ContainerState | None = None


class PodStatus(Lean, frozen=True):
    phase: str = ""
    start_time: str | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(Lean, frozen=True):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None

    @property
    def uid(self) -> PodUid:
        return self.metadata.uid

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def full_name(self) -> str:
        """``namespace/name``, as people write it."""
        return f"{self.namespace}/{self.metadata.name}"

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations or _NOTHING

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or _NOTHING

    @property
    def finished(self) -> bool:
        """The pod has ended (Succeeded or Failed) and uses nothing any more."""
        return self.status is not None and self.status.phase in ("Succeeded", "Failed")

    def each_container(self) -> Iterator[tuple[Container, ContainerKind]]:
        """Every container in spec order, init containers first, as HAMi orders its slots."""
        for container in self.spec.init_containers or ():
            sidecar = container.restart_policy == "Always"
            yield container, ContainerKind.SIDECAR if sidecar else ContainerKind.INIT
        for container in self.spec.containers:
            yield container, ContainerKind.APP

    @property
    def init_finished(self) -> bool:
        """Every plain init container has ended with exit 0, so its devices are free again."""
        if not self.spec.init_containers:
            return False
        plain = {c.name for c, kind in self.each_container() if kind is ContainerKind.INIT}
        statuses = (self.status.init_container_statuses if self.status else None) or ()
        ended = {
            s.name
            for s in statuses
            if s.state and s.state.terminated and s.state.terminated.exit_code == 0
        }
        return bool(plain) and plain <= ended

    def may_have_started(self, containers: Collection[str]) -> bool:
        """Whether one of these containers may have run, judged by what kubelet has reported."""
        status = self.status
        if status is None or status.phase != "Pending":
            return True
        if not status.start_time:
            return False  # kubelet writes it before it looks at an image.
        shown = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
        return any(
            all(s.name != name for s in shown)
            or any(s.container_id for s in shown if s.name == name)
            for name in containers
        )


class GangPolicy(Lean, frozen=True):
    min_count: int = 1


class GroupPolicy(Lean, frozen=True):
    """A PodGroup's policy: exactly one of the two; ``basic`` pods need not run together."""

    basic: dict[str, Any] | None = None
    gang: GangPolicy | None = None


class PodGroupSpec(Lean, frozen=True):
    min_member: int | None = None
    scheduling_policy: GroupPolicy | None = None


class PodGroup(Lean, frozen=True):
    """A PodGroup of Kubernetes (``scheduling_policy``) or of others (``min_member``).

    The others are scheduler-plugins' coscheduling and Volcano.
    """

    metadata: Metadata = Metadata()
    spec: PodGroupSpec = PodGroupSpec()

    @property
    def min_count(self) -> int | None:
        """How many of the group's pods run together or not at all; None when it is not set."""
        policy = self.spec.scheduling_policy
        if policy is not None and policy.gang is not None:
            return policy.gang.min_count
        if policy is not None and policy.basic is not None:
            return 0
        return self.spec.min_member


class Taint(Lean, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Lean, frozen=True):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(Lean, frozen=True):
    allocatable: dict[str, str] | None = None
    capacity: dict[str, str] | None = None


class Node(Lean, frozen=True):
    metadata: Metadata = Metadata()
    spec: NodeSpec | None = None
    status: NodeStatus | None = None

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations or _NOTHING

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or _NOTHING

    @property
    def allocatable(self) -> Mapping[str, str] | None:
        """The node's allocatable resources; None where a hand-written manifest has none."""
        return self.status.allocatable if self.status else None


class ScopeRequirement(Lean, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class ScopeSelector(Lean, frozen=True):
    match_expressions: list[ScopeRequirement] | None = None


class ResourceQuotaSpec(Lean, frozen=True):
    hard: dict[str, str] | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Lean, frozen=True):
    hard: dict[str, str] | None = None
    used: dict[str, str] | None = None


class ResourceQuota(Lean, frozen=True):
    metadata: Metadata = Metadata()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus | None = None

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"

    @property
    def name(self) -> str:
        return self.metadata.name


Written = dict[str, str | int | float]
"""Quantities as custom resources keep them: ``10`` stays a number and ``"10"`` a text."""


class _Quota(Lean, frozen=True):
    """The fields that every namespaced quota object has."""

    metadata: Metadata = Metadata()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or _NOTHING

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations or _NOTHING


class ElasticQuotaSpec(Lean, frozen=True):
    min: Written | None = None
    max: Written | None = None


class Condition(Lean, frozen=True):
    """One condition of an object, ``metav1.Condition``."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class ElasticQuotaStatus(Lean, frozen=True):
    used: Written | None = None
    conditions: list[Condition] | None = None


class ElasticQuota(_Quota, frozen=True):
    """``nos.nebuly.com/v1alpha1``: what one namespace is guaranteed, and the most it may use."""

    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus | None = None


class CompositeElasticQuotaSpec(Lean, frozen=True):
    namespaces: list[str] | None = None
    min: Written | None = None
    max: Written | None = None


class CompositeElasticQuota(_Quota, frozen=True):
    """``nos.nebuly.com/v1alpha1``: one quota for several namespaces, whichever it is created in."""

    spec: CompositeElasticQuotaSpec = CompositeElasticQuotaSpec()
    status: ElasticQuotaStatus | None = None


class QuotaTreeNode(Lean, frozen=True):
    name: str = ""
    parent: str = ""
    min: Written | None = None
    max: Written | None = None
    weight: Written | int | None = None
    borrow_limit: Written | None = None
    lend_limit: Written | None = None


class QuotaTreeSpec(Lean, frozen=True):
    nodes: list[QuotaTreeNode] | None = None


class QuotaTree(Lean, frozen=True):
    """``quota.hami.io/v1alpha1``, cluster-scoped: quotas arranged in groups."""

    metadata: Metadata = Metadata()
    spec: QuotaTreeSpec = QuotaTreeSpec()

    @property
    def name(self) -> str:
        return self.metadata.name
