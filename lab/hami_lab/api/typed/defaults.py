"""What kube-apiserver fills in, and what it takes out, when an object is written."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from hami_lab.api.typed.quantities import Amount, parse

Json = dict[str, Any]

NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_EVICTED_AFTER_SECONDS = 300
_NODE_INFO = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
    "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip


def fill(storage: tuple[str, str], body: Json) -> None:
    """Defaults of the resource's type; called on every write, so it must not change its own."""
    prune(storage, body)
    if default := _DEFAULTS.get(storage):
        default(body)


def prune(storage: tuple[str, str], body: Json) -> None:
    """Leave out what is empty, as Go's types do: a map whose last entry went is not there."""
    _without_empty(body["metadata"])
    if storage[0] not in _TYPED:
        return
    for field in ("spec", "status"):
        if isinstance(part := body.get(field), dict):
            _without_empty(part, keep=("securityContext", "hard", "selector"))
    if storage == ("", "pods"):
        for field in ("initContainers", "containers"):
            for container in body.get("spec", {}).get(field) or ():
                _without_empty(container, keep=("resources", "securityContext"))
                _without_empty(container.get("resources") or {})


_TYPED = frozenset({"", "apps", "batch", "policy", "coordination.k8s.io"})


def _without_empty(part: Json, *, keep: tuple[str, ...] = ()) -> None:
    empty = [k for k, v in part.items() if v is None or (v in ({}, []) and k not in keep)]
    for field in empty:
        del part[field]


def begin(storage: tuple[str, str], body: Json) -> None:
    """What a new object starts with, whatever its maker wrote there."""
    match storage:
        case ("", "pods"):
            begin_pod(body)
        case ("", "namespaces"):
            body["spec"] = {"finalizers": ["kubernetes"]}
            body["status"] = {"phase": "Active"}
            name = body["metadata"].get("name", "")
            labels = body["metadata"].get("labels") or {}
            body["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": name}
        case ("", "resourcequotas") | ("apps", _):
            body["status"] = {}
        case ("policy", "poddisruptionbudgets"):
            numbers = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
            body["status"] = dict.fromkeys(numbers, 0)
        case ("batch", "jobs"):
            body["status"] = {}
            _job_selector(body)
        case _:
            pass


def begin_pod(body: Json) -> None:
    spec = body["spec"]
    status: Json = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": body["metadata"].get("creationTimestamp"),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    status["qosClass"] = quality_of_service(spec)
    body["status"] = status


def _tolerates(toleration: Json, key: str) -> bool:
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in (
        "NoExecute",
        None,
        "",
    )


def _pod(body: Json) -> None:
    fill_pod_spec(body.setdefault("spec", {}))
    for condition in (body.get("status") or {}).get("conditions") or ():
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)


def fill_pod_spec(spec: Json) -> None:
    """Defaults of a pod or of a workload's template."""
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            _container(container)
    _default(spec, "restartPolicy", "Always")
    _default(spec, "terminationGracePeriodSeconds", 30)
    _default(spec, "dnsPolicy", "ClusterFirst")
    _default(spec, "securityContext", {})
    _default(spec, "schedulerName", "default-scheduler")
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def fill_pod_admission(spec: Json) -> None:
    """What the pod's admission adds to a new pod, but not to a workload's template."""
    _default(spec, "serviceAccountName", "default")
    _default(spec, "serviceAccount", spec["serviceAccountName"])
    _default(spec, "enableServiceLinks", value=True)
    tolerate(spec)


def tolerate(spec: Json) -> None:
    """Every pod stays for five minutes on a node that fails, unless it says otherwise."""
    tolerations = spec.setdefault("tolerations", [])
    for key in (NOT_READY, _UNREACHABLE):
        if not any(_tolerates(each, key) for each in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _EVICTED_AFTER_SECONDS,
                }
            )


def _container(container: Json) -> None:
    resources = container.setdefault("resources", {})
    if isinstance(limits := resources.get("limits"), dict) and limits:
        requests = resources.get("requests") or {}
        resources["requests"] = {**limits, **requests}
    _default(container, "terminationMessagePath", "/dev/termination-log")
    _default(container, "terminationMessagePolicy", "File")
    image = str(container.get("image") or "")
    tag = image.rpartition("/")[2].partition(":")[2]
    latest = tag in ("", "latest") and "@" not in image
    _default(container, "imagePullPolicy", "Always" if latest else "IfNotPresent")
    for port in container.get("ports") or ():
        _default(port, "protocol", "TCP")


def _default(parent: Json, field: str, value: object) -> None:
    if parent.get(field) in (None, ""):
        parent[field] = value


def quality_of_service(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort, by CPU and memory alone."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    guaranteed, any_set = True, False
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = _compute(resources.get("limits")), _compute(resources.get("requests"))
        any_set = any_set or bool(limits) or bool(requests)
        guaranteed = guaranteed and len(limits) == 2 and limits == requests
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _compute(entries: Any) -> dict[str, Amount]:
    found = {name: parse(v) for name, v in (entries or {}).items() if name in ("cpu", "memory")}
    return {name: amount for name, amount in found.items() if amount.value > 0}


def _node(body: Json) -> None:
    body.setdefault("spec", {})
    status = body.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status.setdefault("nodeInfo", dict.fromkeys(_NODE_INFO, ""))
    # Clients read allocatable; without a kubelet it is the capacity.
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _quota(body: Json) -> None:
    body.setdefault("spec", {})
    body.setdefault("status", {})


def _event(body: Json) -> None:
    body.setdefault("source", {})
    for field in ("firstTimestamp", "lastTimestamp", "eventTime"):
        body.setdefault(field, None)
    for field in ("reportingComponent", "reportingInstance"):
        if body.get(field) is None:
            body[field] = ""


def _webhooks(body: Json) -> None:
    for webhook in body.get("webhooks") or ():
        _default(webhook, "failurePolicy", "Fail")
        _default(webhook, "matchPolicy", "Equivalent")
        _default(webhook, "namespaceSelector", {})
        _default(webhook, "objectSelector", {})
        _default(webhook, "timeoutSeconds", 10)
        for rule in webhook.get("rules") or ():
            _default(rule, "scope", "*")
        service = (webhook.get("clientConfig") or {}).get("service")
        if service:
            _default(service, "port", 443)


def _mutating_webhooks(body: Json) -> None:
    _webhooks(body)
    for webhook in body.get("webhooks") or ():
        _default(webhook, "reinvocationPolicy", "Never")


def _priority_class(body: Json) -> None:
    body.setdefault("value", 0)
    _default(body, "preemptionPolicy", "PreemptLowerPriority")


def _secret(body: Json) -> None:
    _default(body, "type", "Opaque")
    if texts := body.pop("stringData", None):
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        body["data"] = {**(body.get("data") or {}), **encoded}


def _deployment(body: Json) -> None:
    spec = body.setdefault("spec", {})
    _default(spec, "replicas", 1)
    _default(
        spec,
        "strategy",
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
    )
    _default(spec, "revisionHistoryLimit", 10)
    _default(spec, "progressDeadlineSeconds", 600)
    _template(spec)


def _replicated(body: Json) -> None:
    spec = body.setdefault("spec", {})
    _default(spec, "replicas", 1)
    _template(spec)


def _job(body: Json) -> None:
    spec = body.setdefault("spec", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    _default(spec, "parallelism", 1)
    _default(spec, "backoffLimit", 6)
    _default(spec, "completionMode", "NonIndexed")
    _default(spec, "suspend", value=False)
    _template(spec)


def _job_selector(body: Json) -> None:
    """A job's pods are told apart by the job's uid, as kube-apiserver does it."""
    metadata, spec = body["metadata"], body["spec"]
    if spec.get("selector"):
        return
    labels = {
        "batch.kubernetes.io/controller-uid": metadata["uid"],
        "batch.kubernetes.io/job-name": metadata.get("name", ""),
        "controller-uid": metadata["uid"],
        "job-name": metadata.get("name", ""),
    }
    template = spec.setdefault("template", {}).setdefault("metadata", {})
    template["labels"] = {**(template.get("labels") or {}), **labels}
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": metadata["uid"]}}


def _template(spec: Json) -> None:
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    fill_pod_spec(template.setdefault("spec", {}))


_DEFAULTS: Mapping[tuple[str, str], Callable[[Json], None]] = MappingProxyType(
    {
        ("", "pods"): _pod,
        ("", "nodes"): _node,
        ("", "resourcequotas"): _quota,
        ("", "events"): _event,
        ("", "secrets"): _secret,
        ("apps", "deployments"): _deployment,
        ("apps", "replicasets"): _replicated,
        ("apps", "statefulsets"): _replicated,
        ("batch", "jobs"): _job,
        ("scheduling.k8s.io", "priorityclasses"): _priority_class,
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _mutating_webhooks,
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): _webhooks,
    }
)
