"""The resources that we read and write, their paths in the API, and their structs.

Pods, nodes and quotas decode to ``hami.domain.kubernetes.objects``; what only this package needs is
here. The structs have only some fields: writing one back whole would lose all others, so existing
objects are changed by patches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from sys import intern
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from hami.domain.kubernetes.objects import (
    CompositeElasticQuota,
    Container,
    ElasticQuota,
    EnvVar,
    Lean,
    Metadata,
    Node,
    OwnerReference,
    Pod,
    PodGroup,
    PodSpec,
    QuotaTree,
    ResourceQuota,
    Volume,
    VolumeMount,
)
from hami.policy.pods.escapes import may_cover


class HasMetadata(Protocol):
    """Any object that the API server stores."""

    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=HasMetadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Generic[T]):
    """One kind of object: ``group_version`` is ``v1`` or ``group/version``."""

    group_version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool
    decoder: msgspec.json.Decoder[T] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", msgspec.json.Decoder(self.type))

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path: of the collection, an object or its subresource.

        Without a namespace, the path of a namespaced resource means all namespaces.
        """
        parts = ["api" if "/" not in self.group_version else "apis", self.group_version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/" + "/".join(parts)


class LeaseSpec(Lean, frozen=True):
    """Times are RFC 3339 with microseconds; the duration is in seconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Lean, frozen=True):
    metadata: Metadata = Metadata()
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(Lean, frozen=True):
    kind: str = ""
    api_version: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class EventSource(Lean, frozen=True):
    component: str = ""
    host: str = ""


class Event(Lean, frozen=True):
    """A core/v1 event, which every server since 1.0 and HAMi's own role know."""

    metadata: Metadata = Metadata()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = "Normal"
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    source: EventSource = EventSource()
    reporting_component: str = ""
    reporting_instance: str = ""


class Secret(Lean, frozen=True):
    """A Secret; ``data`` is base64."""

    metadata: Metadata = Metadata()
    data: dict[str, str] | None = None
    type: str = ""


class ConfigMap(Lean, frozen=True):
    metadata: Metadata = Metadata()
    data: dict[str, str] | None = None


class Namespace(Lean, frozen=True):
    metadata: Metadata = Metadata()


class DisruptionBudgetSpec(Lean, frozen=True):
    selector: dict[str, Any] | None = None


class DisruptionBudgetStatus(Lean, frozen=True):
    """The status of a PodDisruptionBudget.

    ``disrupted_pods`` were evicted and already count in ``disruptions_allowed``.
    https://kubernetes.io/docs/concepts/workloads/pods/disruptions/
    """

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] | None = None


class DisruptionBudget(Lean, frozen=True):
    metadata: Metadata = Metadata()
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class _ReadLeaseMetadata(Metadata, frozen=True):
    creation_timestamp: str | None = msgspec.field(default=None, name="-created")
    annotations: dict[str, str] | None = msgspec.field(default=None, name="-annotations")
    owner_references: list[OwnerReference] | None = msgspec.field(default=None, name="-owners")

    def __post_init__(self) -> None:
        """Keep one copy of words that thousands of Leases share."""
        labels = {intern(key): intern(text) for key, text in (self.labels or {}).items()}
        msgspec.structs.force_setattr(self, "labels", labels or None)
        msgspec.structs.force_setattr(self, "namespace", intern(self.namespace))


class _ReadLease(Lease, frozen=True):
    """A Lease without its owner, which is half of it and which we never read."""

    metadata: _ReadLeaseMetadata = _ReadLeaseMetadata()


class _ReadMount(VolumeMount, frozen=True):
    name: str = msgspec.field(default="", name="-")


class _ReadContainer(Container, frozen=True):
    """A container without its environment, which is most of a pod and matters at admission alone.

    Of its mounts only those are kept that may lead out of a slice; nothing reads the others.
    """

    env: list[EnvVar] | None = msgspec.field(default=None, name="-")
    volume_mounts: list[_ReadMount] | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.volume_mounts is not None:
            kept = [mount for mount in self.volume_mounts if may_cover(mount.mount_path)]
            msgspec.structs.force_setattr(self, "volume_mounts", kept or None)


class _ReadPodSpec(PodSpec, frozen=True):
    """A pod's spec without its volumes, which only admission reads."""

    containers: list[_ReadContainer] = []  # type: ignore[assignment]  # noqa: RUF012 -- msgspec copies it
    init_containers: list[_ReadContainer] | None = None  # type: ignore[assignment]
    ephemeral_containers: list[_ReadContainer] | None = None  # type: ignore[assignment]
    volumes: list[Volume] | None = msgspec.field(default=None, name="-")


class _ReadPod(Pod, frozen=True):
    spec: _ReadPodSpec = _ReadPodSpec()


PODS: Resource[Pod] = Resource(
    group_version="v1", plural="pods", kind="Pod", type=_ReadPod, namespaced=True
)
NODES = Resource(group_version="v1", plural="nodes", kind="Node", type=Node, namespaced=False)
QUOTAS = Resource(
    group_version="v1",
    plural="resourcequotas",
    kind="ResourceQuota",
    type=ResourceQuota,
    namespaced=True,
)
EVENTS = Resource(group_version="v1", plural="events", kind="Event", type=Event, namespaced=True)
SECRETS = Resource(
    group_version="v1", plural="secrets", kind="Secret", type=Secret, namespaced=True
)
CONFIGMAPS = Resource(
    group_version="v1", plural="configmaps", kind="ConfigMap", type=ConfigMap, namespaced=True
)
NAMESPACES = Resource(
    group_version="v1", plural="namespaces", kind="Namespace", type=Namespace, namespaced=False
)
LEASES = Resource(
    group_version="coordination.k8s.io/v1",
    plural="leases",
    kind="Lease",
    type=Lease,
    namespaced=True,
)
AGENT_LEASES: Resource[Lease] = Resource(
    group_version="coordination.k8s.io/v1",
    plural="leases",
    kind="Lease",
    type=_ReadLease,
    namespaced=True,
)
"""The Leases of node agents, one per node and vendor."""
DISRUPTION_BUDGETS = Resource(
    group_version="policy/v1",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    type=DisruptionBudget,
    namespaced=True,
)
POD_GROUPS = tuple(
    Resource(
        group_version=version, plural="podgroups", kind="PodGroup", type=PodGroup, namespaced=True
    )
    for version in (
        "scheduling.k8s.io/v1alpha2",
        "scheduling.x-k8s.io/v1alpha1",
        "scheduling.volcano.sh/v1beta1",
    )
)
"""The kinds of Kubernetes 1.36, of scheduler-plugins and of Volcano."""
ELASTIC_QUOTAS = Resource(
    group_version="nos.nebuly.com/v1alpha1",
    plural="elasticquotas",
    kind="ElasticQuota",
    type=ElasticQuota,
    namespaced=True,
)
COMPOSITE_QUOTAS = Resource(
    group_version="nos.nebuly.com/v1alpha1",
    plural="compositeelasticquotas",
    kind="CompositeElasticQuota",
    type=CompositeElasticQuota,
    namespaced=True,
)
QUOTA_TREES = Resource(
    group_version="quota.hami.io/v1alpha1",
    plural="quotatrees",
    kind="QuotaTree",
    type=QuotaTree,
    namespaced=False,
)
