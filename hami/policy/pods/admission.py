"""What happens to a pod when it is created: the webhook's rules, as a pure function.

The vendors set defaults and environment. Annotations that only the scheduler may write are removed.
A pod that could never run as it stands is denied: an unreadable or impossible request, a way out of
its slices (:mod:`hami.policy.pods.escapes`), a node chosen past the scheduler, a quota that can
never admit it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from hami.domain.admission import Admission, Denied
from hami.domain.allocations import ContainerKind
from hami.domain.kubernetes.objects import Container, EnvVar, Pod, Resources
from hami.domain.requests import Invalid, PodRequest
from hami.domain.scheduling import SchedulingPolicy
from hami.policy.pods.pod_request import parse_pod
from hami.policy.ports import VendorRegistry
from hami.policy.quota import QuotaLedger
from hami.policy.usage import asked_at_least
from hami.wire.allocation import allocation_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """How pods are taken in.

    ``scheduler_name``: the scheduler named in pods that ask for devices; empty: unchanged.
    ``take_default_scheduler``: pods that name ``default-scheduler`` become ours too. ``quota``:
    ``impossible`` denies what no quota could ever admit and leaves the rest waiting; ``deny``
    refuses whatever does not fit now; ``pending`` denies nothing.
    """

    scheduler_name: str = "hami-scheduler"
    take_default_scheduler: bool = True
    quota: Literal["impossible", "deny", "pending"] = "impossible"
    policy: SchedulingPolicy = SchedulingPolicy()


@dataclass(frozen=True, slots=True)
class Admitted:
    """The pod as admission changed it, and what it asks for."""

    pod: Pod
    request: PodRequest


@dataclass(frozen=True, slots=True)
class NotOurs:
    """The pod belongs to another scheduler and stays as it is."""

    text: str


def admit(
    pod: Pod, vendors: VendorRegistry, settings: AdmissionSettings, ledger: QuotaLedger
) -> Admitted | Denied | NotOurs:
    """Apply the rules. Admitting the result again changes nothing."""
    if not pod.spec.containers:
        return Denied("pod has no containers")
    if _belongs_to_another(pod.spec.scheduler_name, settings):
        return NotOurs(f"pod already has a different scheduler: {pod.spec.scheduler_name}")
    stripped = _without(pod, allocation_keys(vendors[key].profile for key in vendors))
    mutated = _let_vendors_admit(stripped, vendors)
    if isinstance(mutated, Denied):
        return mutated
    request = parse_pod(mutated, vendors, settings.policy)
    if isinstance(request, Invalid):
        return Denied(request.text)
    if not request.vendors:
        return Admitted(mutated, request)
    if mutated.spec.node_name:
        return Denied(
            "pod has node assigned: spec.nodeName skips the scheduler that hands out devices; "
            "use spec.nodeSelector"
        )
    if refusal := _quota_refusal(request, vendors, settings, ledger):
        return Denied(refusal)
    if settings.scheduler_name:
        mutated = _with_spec(mutated, scheduler_name=settings.scheduler_name)
    return Admitted(mutated, replace(request, pod=mutated))


def _belongs_to_another(name: str, settings: AdmissionSettings) -> bool:
    if not name or (name == "default-scheduler" and settings.take_default_scheduler):
        return False
    return name != settings.scheduler_name


def _without(pod: Pod, keys: frozenset[str]) -> Pod:
    """The pod without annotations that a tenant may not set."""
    if keys.isdisjoint(pod.annotations):
        return pod
    kept = {key: text for key, text in pod.annotations.items() if key not in keys}
    return _with_annotations(pod, kept)


def _let_vendors_admit(pod: Pod, vendors: VendorRegistry) -> Pod | Denied:
    """Call every vendor on every container, in spec order; each sees what earlier ones set."""
    containers: list[tuple[Container, ContainerKind]] = []
    for original, kind in pod.each_container():
        container = original
        for key in vendors:
            answer = vendors[key].admit(container, pod, kind)
            if isinstance(answer, Denied):
                return answer
            container = _apply_to_container(container, answer)
            pod = _apply_to_pod(pod, answer)
        containers.append((container, kind))
    if all(new is old for (new, _), (old, _) in zip(containers, pod.each_container(), strict=True)):
        return pod
    apps = [c for c, kind in containers if kind is ContainerKind.APP]
    inits = [c for c, kind in containers if kind is not ContainerKind.APP]
    return _with_spec(pod, containers=apps, init_containers=inits or pod.spec.init_containers)


def _apply_to_container(container: Container, answer: Admission) -> Container:
    limits = dict(container.limits) | dict(answer.limits)
    requests = dict(container.requests) | dict(answer.requests)
    if limits != container.limits or requests != container.requests:
        resources = Resources(limits=limits or None, requests=requests or None)
        container = msgspec.structs.replace(container, resources=resources)
    env = [
        EnvVar(name=v.name, value=answer.env[v.name]) if v.name in answer.env else v
        for v in container.env or ()
    ]
    # In place where the variable exists, so that a second admission adds nothing.
    present = {variable.name for variable in env}
    env += [EnvVar(name=n, value=v) for n, v in answer.env.items() if n not in present]
    if env != (container.env or []):
        container = msgspec.structs.replace(container, env=env)
    return container


def _apply_to_pod(pod: Pod, answer: Admission) -> Pod:
    if any(pod.annotations.get(key) != text for key, text in answer.pod_annotations.items()):
        pod = _with_annotations(pod, dict(pod.annotations) | dict(answer.pod_annotations))
    if answer.runtime_class and not pod.spec.runtime_class_name:
        pod = _with_spec(pod, runtime_class_name=answer.runtime_class)
    return pod


def _with_annotations(pod: Pod, annotations: dict[str, str]) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
    return msgspec.structs.replace(pod, metadata=metadata)


def _with_spec(pod: Pod, **changes: Any) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **changes))


def _quota_refusal(
    request: PodRequest, vendors: VendorRegistry, settings: AdmissionSettings, ledger: QuotaLedger
) -> str:
    """The refusals as one text; empty when quota does not deny the pod at creation."""
    gate = None if settings.quota == "pending" else ledger.gate(request.pod)
    if gate is None:
        return ""
    asked = asked_at_least(request.containers, {key: vendors[key].profile for key in vendors})
    refusals = gate.refusals(asked, ignoring_usage=settings.quota == "impossible")
    return "exceeding resource quota: " + "; ".join(map(str, refusals)) if refusals else ""
