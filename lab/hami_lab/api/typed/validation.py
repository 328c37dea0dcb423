"""What is wrong with an object's values: the 422 answers, field by field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from hami_lab.api.objects.refusals import Cause
from hami_lab.api.typed.quantities import LARGEST, parse

Json = dict[str, Any]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PERCENT = re.compile(r"\d{1,9}%", re.ASCII)
_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_QUOTA = _STANDARD | {
    "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
    "persistentvolumeclaims", "services.nodeports", "services.loadbalancers", "requests.storage",
    *(f"{kind}.{name}" for kind in ("requests", "limits") for name in _STANDARD),
}  # fmt: skip
_MOST_ANNOTATION_BYTES = 256 * 1024

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)

Check = Callable[[Json], Iterator[Cause]]


def problems(storage: tuple[str, str], body: Json) -> list[Cause]:
    """Everything that is wrong with an object, in the order of its fields."""
    found = list(of_metadata(storage, body["metadata"]))
    if check := _CHECKS.get(storage):
        found += check(body)
    return found


def of_metadata(storage: tuple[str, str], metadata: Json) -> Iterator[Cause]:
    """What is wrong with an object's name, labels, annotations and finalizers."""
    name = metadata.get("name") or ""
    if not name:
        yield Cause.required("metadata.name", "name or generateName is required")
    elif storage in _LABEL_NAMES:
        yield from _label_name("metadata.name", name)
    elif storage[0] == "rbac.authorization.k8s.io":
        if name in (".", "..") or "/" in name or "%" in name:
            yield Cause.invalid("metadata.name", name, "may not contain '/'")
    else:
        yield from _subdomain("metadata.name", name)
    yield from labels("metadata.labels", metadata.get("labels"))
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from _qualified("metadata.annotations", key.lower())
    size = sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items())
    if size > _MOST_ANNOTATION_BYTES:
        yield Cause(
            "metadata.annotations",
            f"Too long: may not be more than {_MOST_ANNOTATION_BYTES} bytes",
            reason="FieldValueTooLong",
        )
    for finalizer in metadata.get("finalizers") or ():
        yield from _qualified("metadata.finalizers", finalizer)


_LABEL_NAMES = frozenset({("", "namespaces"), ("", "services")})


def _subdomain(field: str, value: str) -> Iterator[Cause]:
    if len(value) > 253:
        yield Cause.invalid(field, value, "must be no more than 253 bytes")
    if not _SUBDOMAIN.fullmatch(value):
        yield Cause.invalid(field, value, _SUBDOMAIN_RULE)


def _label_name(field: str, value: str) -> Iterator[Cause]:
    if len(value) > 63:
        yield Cause.invalid(field, value, "must be no more than 63 bytes")
    if not _LABEL.fullmatch(value):
        yield Cause.invalid(field, value, _LABEL_RULE)


def labels(field: str, found: Json | None) -> Iterator[Cause]:
    for key, value in (found or {}).items():
        yield from _qualified(field, key)
        if len(value) > 63:
            yield Cause.invalid(field, value, "must be no more than 63 bytes")
        if value and not _QUALIFIED.fullmatch(value):
            yield Cause.invalid(field, value, _VALUE_RULE)


def _qualified(field: str, key: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        yield Cause.invalid(field, key, f"prefix part {_SUBDOMAIN_RULE}")
    if not name:
        yield Cause.invalid(field, key, "name part must be non-empty")
    elif not _QUALIFIED.fullmatch(name):
        yield Cause.invalid(field, key, _KEY_RULE)
    if len(name) > 63:
        yield Cause.invalid(field, key, "name part must be no more than 63 bytes")


def _selector(field: str, selector: Json | None) -> Iterator[Cause]:
    """A LabelSelector; None selects nothing or everything, as the field has it."""
    yield from labels(f"{field}.matchLabels", (selector or {}).get("matchLabels"))
    for number, each in enumerate((selector or {}).get("matchExpressions") or ()):
        at = f"{field}.matchExpressions[{number}]"
        match each.get("operator") or "", each.get("values") or ():
            case "In" | "NotIn", ():
                detail = "must be specified when `operator` is 'In' or 'NotIn'"
                yield Cause.required(f"{at}.values", detail)
            case "In" | "NotIn", _:
                pass
            case "Exists" | "DoesNotExist", values:
                if values:
                    detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    yield Cause.forbidden(f"{at}.values", detail)
            case operator, _:
                yield Cause.invalid(f"{at}.operator", operator, "not a valid selector operator")
        yield from _qualified(f"{at}.key", each.get("key") or "")


def _workload(body: Json) -> Iterator[Cause]:
    yield from _selector("spec.selector", (body.get("spec") or {}).get("selector"))


def _pod(body: Json) -> Iterator[Cause]:
    yield from pod_spec("spec", body.get("spec") or {})


def pod_spec(at: str, spec: Json) -> Iterator[Cause]:
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(field) or ()):
            yield from _container(f"{at}.{field}[{number}]", container, names)
    if not spec.get("containers"):
        yield Cause.required(f"{at}.containers")
    policy = spec.get("restartPolicy")
    if policy not in ("Always", "OnFailure", "Never"):
        yield _unsupported(f"{at}.restartPolicy", policy, "Always", "Never", "OnFailure")
    yield from labels(f"{at}.nodeSelector", spec.get("nodeSelector"))
    if node := spec.get("nodeName"):
        yield from _subdomain(f"{at}.nodeName", node)


def _container(at: str, container: Json, names: set[str]) -> Iterator[Cause]:
    name = container.get("name") or ""
    if not name:
        yield Cause.required(f"{at}.name")
    elif name in names:
        yield Cause.duplicate(f"{at}.name", name)
    else:
        yield from _label_name(f"{at}.name", name)
    names.add(name)
    if not container.get("image"):
        yield Cause.required(f"{at}.image")
    for number, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield Cause.required(f"{at}.env[{number}].name")
    yield from _resources(f"{at}.resources", container.get("resources") or {})


def _resources(at: str, resources: Json) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, value in limits.items():
        yield from _entry(f"{at}.limits[{name}]", name, value)
    for name, value in requests.items():
        yield from _entry(f"{at}.requests[{name}]", name, value)
        yield from _against_limit(at, name, value, limits)


def _entry(at: str, name: str, value: str) -> Iterator[Cause]:
    if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        yield Cause.invalid(at, name, "must be a standard resource type or fully qualified")
        yield Cause.invalid(at, name, "must be a standard resource for containers")
    amount = parse(value).value
    if amount < 0:
        yield Cause.invalid(at, value, "must be greater than or equal to 0")
    # kube-apiserver looks at thousandths in 64 bits: what overflows is no integer either.
    elif name not in _STANDARD and (amount.denominator != 1 or amount * 1000 > LARGEST):
        yield Cause.invalid(at, value, "must be an integer")


def _against_limit(at: str, name: str, value: str, limits: Json) -> Iterator[Cause]:
    overcommits = name in _STANDARD
    limit = limits.get(name)
    if limit is None:
        if not overcommits:
            detail = "Limit must be set for non overcommitable resources"
            yield Cause.required(f"{at}.limits", detail)
    elif not overcommits and parse(value).value != parse(limit).value:
        detail = f"must be equal to {name} limit of {limit}"
        yield Cause.invalid(f"{at}.requests", value, detail)
    elif overcommits and parse(value).value > parse(limit).value:
        detail = f"must be less than or equal to {name} limit of {limit}"
        yield Cause.invalid(f"{at}.requests", value, detail)


def _unsupported(at: str, value: Any, *supported: str) -> Cause:
    listed = ", ".join(f'"{each}"' for each in supported)
    return Cause(
        at,
        f'Unsupported value: "{value or ""}": supported values: {listed}',
        reason="FieldValueNotSupported",
    )


def _node(body: Json) -> Iterator[Cause]:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    for number, taint in enumerate(spec.get("taints") or ()):
        at = f"spec.taints[{number}]"
        yield from _qualified(f"{at}.key", taint.get("key") or "")
        if taint.get("effect") not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            yield _unsupported(
                f"{at}.effect", taint.get("effect"), "NoSchedule", "PreferNoSchedule", "NoExecute"
            )
    for field in ("capacity", "allocatable"):
        for name, value in (status.get(field) or {}).items():
            if parse(value).value < 0:
                at = f"status.{field}[{name}]"
                yield Cause.invalid(at, value, "must be greater than or equal to 0")


def _quota(body: Json) -> Iterator[Cause]:
    hard, status = (body.get("spec") or {}).get("hard") or {}, body.get("status") or {}
    yield from _quota_entries("spec.hard", hard)
    yield from _quota_entries("status.hard", status.get("hard") or {})
    yield from _quota_entries("status.used", status.get("used") or {})


def _quota_entries(at: str, entries: Json) -> Iterator[Cause]:
    for name, value in entries.items():
        field = f"{at}[{name}]"
        if "/" not in name and name not in _QUOTA and "hugepages-" not in name:
            yield Cause.invalid(field, name, "must be a standard resource type or fully qualified")
            yield Cause.invalid(field, name, "must be a standard resource for quota")
        if parse(value).value < 0:
            yield Cause.invalid(field, value, "must be greater than or equal to 0")


def _lease(body: Json) -> Iterator[Cause]:
    spec = body.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield Cause.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        detail = "must be greater than or equal to 0"
        yield Cause.invalid("spec.leaseTransitions", transitions, detail)


def _budget(body: Json) -> Iterator[Cause]:
    spec = body.get("spec") or {}
    for field in ("minAvailable", "maxUnavailable"):
        value = spec.get(field)
        if isinstance(value, int) and value < 0:
            detail = "must be greater than or equal to 0"
            yield Cause.invalid(f"spec.{field}", value, detail)
        elif isinstance(value, str) and not _PERCENT.fullmatch(value):
            detail = "a valid percent string must be a numeric string followed by an ending '%'"
            yield Cause.invalid(f"spec.{field}", value, detail)
    if "minAvailable" in spec and "maxUnavailable" in spec:
        detail = "minAvailable and maxUnavailable cannot be both set"
        yield Cause.invalid("spec", spec["maxUnavailable"], detail)
    yield from _selector("spec.selector", spec.get("selector"))


def _event(body: Json) -> Iterator[Cause]:
    about = (body.get("involvedObject") or {}).get("namespace") or ""
    own = body["metadata"].get("namespace") or ""
    # An event about what has no namespace is kept in one of these.
    allowed = (about,) if about else ("default", "kube-system")
    if own not in allowed:
        detail = "does not match event.namespace"
        yield Cause.invalid("involvedObject.namespace", about, detail)


def _webhooks(body: Json) -> Iterator[Cause]:
    seen: set[str] = set()
    for number, webhook in enumerate(body.get("webhooks") or ()):
        at = f"webhooks[{number}]"
        name = webhook.get("name") or ""
        if name.count(".") < 2 or not _SUBDOMAIN.fullmatch(name):
            detail = "should be a domain with at least three segments separated by dots"
            yield Cause.invalid(f"{at}.name", name, detail)
        if name in seen:
            yield Cause.duplicate(f"{at}.name", name)
        seen.add(name)
        for selector in ("namespaceSelector", "objectSelector"):
            yield from _selector(f"{at}.{selector}", webhook.get(selector))
        if not webhook.get("admissionReviewVersions"):
            detail = "must specify one of v1, v1beta1"
            yield Cause.required(f"{at}.admissionReviewVersions", detail)
        if webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            yield _unsupported(
                f"{at}.sideEffects", webhook.get("sideEffects"), "None", "NoneOnDryRun"
            )
        client = webhook.get("clientConfig") or {}
        if bool(client.get("url")) == bool(client.get("service")):
            detail = "exactly one of url or service is required"
            yield Cause.required(f"{at}.clientConfig", detail)
        elif client.get("url") and not client["url"].startswith("https://"):
            detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
            yield Cause.invalid(f"{at}.clientConfig.url", client["url"], detail)
        if not 1 <= webhook.get("timeoutSeconds", 10) <= 30:
            detail = "the timeout value must be between 1 and 30 seconds"
            yield Cause.invalid(f"{at}.timeoutSeconds", webhook["timeoutSeconds"], detail)
        if webhook.get("matchConditions"):
            detail = "this server evaluates no CEL; use rules and selectors"
            yield Cause.forbidden(f"{at}.matchConditions", detail)


def _crd(body: Json) -> Iterator[Cause]:
    spec = body.get("spec") or {}
    names = spec.get("names") or {}
    for field, value in (
        ("spec.group", spec.get("group")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
    ):
        if not value:
            yield Cause.required(field)
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        yield _unsupported("spec.scope", spec.get("scope"), "Cluster", "Namespaced")
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if body["metadata"].get("name") != wanted:
        detail = f'must be spec.names.plural+"."+spec.group: {wanted}'
        yield Cause.invalid("metadata.name", body["metadata"].get("name"), detail)
    for number, version in enumerate(spec.get("versions") or ()):
        if not _LABEL.fullmatch(version.get("name") or ""):
            yield Cause.invalid(f"spec.versions[{number}].name", version.get("name"), _LABEL_RULE)
    stored = [v for v in spec.get("versions") or () if v.get("storage")]
    if len(stored) != 1:
        detail = "must have exactly one version marked as storage version"
        yield Cause.invalid("spec.versions", spec.get("versions"), detail)


_WORKLOADS = ("daemonsets", "deployments", "replicasets", "statefulsets")
_CHECKS: Mapping[tuple[str, str], Check] = MappingProxyType(
    {
        ("", "pods"): _pod,
        ("", "nodes"): _node,
        ("", "resourcequotas"): _quota,
        ("", "events"): _event,
        **{("apps", name): _workload for name in _WORKLOADS},
        ("batch", "jobs"): _workload,
        ("coordination.k8s.io", "leases"): _lease,
        ("policy", "poddisruptionbudgets"): _budget,
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _webhooks,
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): _webhooks,
        ("apiextensions.k8s.io", "customresourcedefinitions"): _crd,
    }
)
