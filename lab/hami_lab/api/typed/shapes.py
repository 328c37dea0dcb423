"""The types of what people send: a wrong one is 400, before anything looks at the values.

Only the parts that this server reads; what is not named here is stored as it came.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Json = dict[str, Any]
MicroTime = Annotated[
    str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")
]
Time = Annotated[
    str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")
]
Texts = dict[str, str] | None


class Shape(msgspec.Struct, kw_only=True, rename="camel"):
    """Base of the shapes below; unknown fields pass."""


class Owner(Shape):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(Shape):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Texts = None
    annotations: Texts = None
    finalizers: list[str] | None = None
    owner_references: list[Owner] | None = None


class Thing(Shape):
    metadata: Metadata | None = None


class Expression(Shape):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] | None = None


class LabelSelector(Shape):
    match_labels: Texts = None
    match_expressions: list[Expression] | None = None


class EnvVar(Shape):
    name: str = ""
    value: str | None = None
    value_from: Json | None = None


class Resources(Shape):
    limits: Json | None = None
    requests: Json | None = None


class SecurityContext(Shape):
    privileged: bool | None = None


class Container(Shape):
    name: str = ""
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[EnvVar] | None = None
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: list[Json] | None = None
    volume_mounts: list[Json] | None = None
    security_context: SecurityContext | None = None


class Toleration(Shape):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class Gate(Shape):
    name: str = ""


class PodSpec(Shape):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_name: str | None = None
    node_selector: Texts = None
    affinity: Json | None = None
    tolerations: list[Toleration] | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[Gate] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    restart_policy: str | None = None
    runtime_class_name: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    host_network: bool | None = None
    service_account_name: str | None = None
    overhead: Json | None = None
    volumes: list[Json] | None = None


class Condition(Shape):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class PodStatus(Shape):
    phase: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[Json] | None = None
    init_container_statuses: list[Json] | None = None
    nominated_node_name: str | None = None


class Pod(Thing):
    spec: PodSpec | None = None
    status: PodStatus | None = None


class Template(Thing):
    spec: PodSpec | None = None


class WorkloadSpec(Shape):
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    selector: LabelSelector | None = None
    template: Template | None = None


class Workload(Thing):
    spec: WorkloadSpec | None = None


class Taint(Shape):
    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpec(Shape):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(Shape):
    capacity: Json | None = None
    allocatable: Json | None = None
    conditions: list[Condition] | None = None


class Node(Thing):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class NamespaceSpec(Shape):
    finalizers: list[str] | None = None


class NamespaceStatus(Shape):
    phase: str | None = None


class Namespace(Thing):
    spec: NamespaceSpec | None = None
    status: NamespaceStatus | None = None


class ScopeExpression(Shape):
    scope_name: str
    operator: str
    values: list[str] | None = None


class ScopeSelector(Shape):
    match_expressions: list[ScopeExpression] | None = None


class QuotaSpec(Shape):
    hard: Json | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class QuotaStatus(Shape):
    hard: Json | None = None
    used: Json | None = None


class Quota(Thing):
    spec: QuotaSpec | None = None
    status: QuotaStatus | None = None


class LeaseSpec(Shape):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: int | None = None


class Lease(Thing):
    spec: LeaseSpec | None = None


class Event(Thing):
    """In the words of the core group; events.k8s.io is translated first."""

    involved_object: Json | None = None
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    count: int | None = None
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: MicroTime | None = None
    source: Json | None = None
    series: Json | None = None
    action: str | None = None
    reporting_component: str | None = None
    reporting_instance: str | None = None


class Budget(Shape):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None


class DisruptionBudget(Thing):
    spec: Budget | None = None


class ConfigMap(Thing):
    data: Texts = None


class Secret(Thing):
    data: Texts = None
    string_data: Texts = None
    type: str | None = None


class PriorityClass(Thing):
    value: int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


class Rule(Shape):
    api_groups: list[str] | None = None
    api_versions: list[str] | None = None
    operations: list[str] | None = None
    resources: list[str] | None = None
    scope: str | None = None


class WebhookService(Shape):
    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: int | None = None


class WebhookClient(Shape):
    url: str | None = None
    service: WebhookService | None = None
    ca_bundle: str | None = None


class Webhook(Shape):
    name: str = ""
    client_config: WebhookClient | None = None
    rules: list[Rule] | None = None
    failure_policy: str | None = None
    match_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    side_effects: str | None = None
    timeout_seconds: int | None = None
    admission_review_versions: list[str] | None = None
    reinvocation_policy: str | None = None
    match_conditions: list[Json] | None = None


class WebhookConfiguration(Thing):
    webhooks: list[Webhook] | None = None


class CrdNames(Shape):
    plural: str = ""
    kind: str = ""
    singular: str | None = None
    list_kind: str | None = None
    short_names: list[str] | None = None
    categories: list[str] | None = None


class CrdVersion(Shape):
    name: str = ""
    served: bool = False
    storage: bool = False
    subresources: Json | None = None
    schema: Json | None = None


class CrdSpec(Shape):
    group: str = ""
    scope: str = ""
    names: CrdNames | None = None
    versions: list[CrdVersion] | None = None


class Crd(Thing):
    spec: CrdSpec | None = None


class BindingTarget(Shape):
    kind: str | None = None
    name: str | None = None


class Binding(Thing):
    target: BindingTarget | None = None


class Preconditions(Shape):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Shape):
    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    dry_run: list[str] | None = None


class Eviction(Thing):
    delete_options: DeleteOptions | None = None
