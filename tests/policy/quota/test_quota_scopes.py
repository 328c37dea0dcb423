"""Which pods a ResourceQuota counts: Kubernetes' scopes, as its own quota understands them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hami.domain.kubernetes.objects import (
    Container,
    Metadata,
    Pod,
    PodSpec,
    ResourceQuota,
    Resources,
)
from hami.policy.quota import QuotaLedger, read_quota

from ..builders import a_grant, an_allocation, the_vendors


def a_pod(name: str = "p", containers: Any = ({},), **spec: Any) -> Pod:
    """A pod by fields of its spec; containers by their resources."""
    return Pod(
        metadata=Metadata(name=name, namespace="default", uid=name),
        spec=PodSpec(containers=[Container(resources=Resources(**c)) for c in containers], **spec),
    )


def scoped(*scopes: str, expressions: Any = (), **hard: str) -> ResourceQuota:
    """A quota as the API server sends it."""
    spec = {
        "hard": hard or {"limits.acme.com/mem": "1000"},
        "scopes": list(scopes) or None,
        "scopeSelector": {"matchExpressions": list(expressions)} if expressions else None,
    }
    return msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, ResourceQuota)


def by_class(operator: str, *values: str, scope: str = "PriorityClass") -> dict[str, Any]:
    return {"scopeName": scope, "operator": operator, "values": list(values) or None}


def affinity(kind: str, *terms: dict[str, Any], preferred: bool = False) -> dict[str, Any]:
    if preferred:
        weighted = [{"weight": 1, "podAffinityTerm": term} for term in terms]
        return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


CPU = {"requests": {"cpu": "100m"}}


@pytest.mark.parametrize(
    ("quota", "pod", "expected"),
    [
        pytest.param(scoped(), a_pod(), True, id="no scope: every pod"),
        pytest.param(scoped("Terminating"), a_pod(active_deadline_seconds=60), True, id="terminating: it has a deadline"),
        pytest.param(scoped("Terminating"), a_pod(active_deadline_seconds=0), True, id="a deadline of 0 is one"),
        pytest.param(scoped("Terminating"), a_pod(active_deadline_seconds=-1), False, id="a negative one is none"),
        pytest.param(scoped("Terminating"), a_pod(), False, id="no deadline"),
        pytest.param(scoped("NotTerminating"), a_pod(), True, id="not terminating: no deadline"),
        pytest.param(scoped("NotTerminating"), a_pod(active_deadline_seconds=60), False, id="not terminating: a deadline"),
        pytest.param(scoped("BestEffort"), a_pod(), True, id="best effort: no compute asked"),
        pytest.param(scoped("BestEffort"), a_pod(containers=[{"limits": {"acme.com/gpu": "1"}}]), True, id="devices are no compute"),
        pytest.param(scoped("BestEffort"), a_pod(containers=[CPU]), False, id="cpu asked"),
        pytest.param(scoped("BestEffort"), a_pod(containers=[{}, {"limits": {"memory": "1Gi"}}]), False, id="memory limited in one container"),
        pytest.param(scoped("BestEffort"), a_pod(containers=[{"requests": {"cpu": "0"}}]), True, id="cpu 0 is none"),
        pytest.param(scoped("BestEffort"), a_pod(init_containers=[Container(resources=Resources(**CPU))]), False, id="an init container's counts"),
        pytest.param(scoped("NotBestEffort"), a_pod(containers=[CPU]), True, id="not best effort: cpu asked"),
        pytest.param(scoped("NotBestEffort"), a_pod(), False, id="not best effort: nothing asked"),
        pytest.param(scoped("Terminating", "BestEffort"), a_pod(active_deadline_seconds=1), True, id="both scopes match"),
        pytest.param(scoped("Terminating", "BestEffort"), a_pod(containers=[CPU], active_deadline_seconds=1), False, id="one of two is not enough"),
        pytest.param(scoped("PriorityClass"), a_pod(priority_class_name="high"), True, id="some priority class"),
        pytest.param(scoped("PriorityClass"), a_pod(), False, id="no priority class"),
        pytest.param(scoped(expressions=[by_class("In", "high", "low")]), a_pod(priority_class_name="low"), True, id="one of these classes"),
        pytest.param(scoped(expressions=[by_class("In", "high")]), a_pod(priority_class_name="low"), False, id="another class"),
        pytest.param(scoped(expressions=[by_class("In", "high")]), a_pod(), False, id="no class is in no list"),
        pytest.param(scoped(expressions=[by_class("NotIn", "high")]), a_pod(priority_class_name="low"), True, id="none of these classes"),
        pytest.param(scoped(expressions=[by_class("NotIn", "high")]), a_pod(priority_class_name="high"), False, id="not in, but it is"),
        pytest.param(scoped(expressions=[by_class("NotIn", "high")]), a_pod(), True, id="not in: no class will do"),
        pytest.param(scoped(expressions=[by_class("Exists")]), a_pod(priority_class_name="low"), True, id="exists"),
        pytest.param(scoped(expressions=[by_class("DoesNotExist")]), a_pod(), True, id="does not exist"),
        pytest.param(scoped(expressions=[by_class("DoesNotExist")]), a_pod(priority_class_name="low"), False, id="does not exist, but it does"),
        pytest.param(scoped(expressions=[by_class("Exists", scope="BestEffort")]), a_pod(containers=[CPU]), False, id="any scope may stand in the selector"),
        pytest.param(scoped("NotBestEffort", expressions=[by_class("In", "high")]), a_pod(containers=[CPU], priority_class_name="high"), True, id="scopes and selector together"),
        pytest.param(scoped("NotBestEffort", expressions=[by_class("In", "high")]), a_pod(priority_class_name="high"), False, id="the selector alone is not enough"),
        pytest.param(scoped("CrossNamespacePodAffinity"), a_pod(), False, id="no affinity"),
        pytest.param(scoped("CrossNamespacePodAffinity"), a_pod(affinity=affinity("podAffinity", {"topologyKey": "zone"})), False, id="affinity within the namespace"),
        pytest.param(scoped("CrossNamespacePodAffinity"), a_pod(affinity=affinity("podAffinity", {"namespaces": ["other"]})), True, id="affinity to another namespace"),
        pytest.param(scoped("CrossNamespacePodAffinity"), a_pod(affinity=affinity("podAntiAffinity", {"namespaceSelector": {}})), True, id="an empty selector means all namespaces"),
        pytest.param(scoped("CrossNamespacePodAffinity"), a_pod(affinity=affinity("podAffinity", {"namespaces": ["other"]}, preferred=True)), True, id="a preference counts too"),
        pytest.param(scoped("CrossNamespacePodAffinity"), a_pod(affinity=affinity("podAffinity", {"namespaces": [], "namespaceSelector": None})), False, id="empty and null name no namespace"),
        pytest.param(scoped("CrossNamespacePodAffinity"), a_pod(affinity={"podAffinity": None, "nodeAffinity": {}}), False, id="null affinity"),
    ],
)  # fmt: skip
def test_fix_scopes_are_honoured(quota, pod, expected):
    constraint, problems = read_quota(quota, the_vendors())
    assert problems == ()
    assert constraint.scopes.match(pod) is expected


def test_being_deleted_is_not_terminating():
    constraint, _ = read_quota(scoped("Terminating"), the_vendors())
    metadata = Metadata(name="p", uid="p", deletion_timestamp="2026-01-02T03:04:05Z")
    assert not constraint.scopes.match(Pod(metadata=metadata))


def test_an_unknown_scope_is_reported_and_counts_every_pod():
    constraint, problems = read_quota(scoped("Sometimes", "BestEffort"), the_vendors())
    assert [str(problem) for problem in problems] == [
        "ResourceQuota default/q: scopes: 'Sometimes' is no known scope; the quota counts all pods"
    ]
    assert constraint.scopes.match(a_pod())


def test_only_pods_in_scope_are_charged_and_refused():
    ledger = QuotaLedger(the_vendors())
    ledger.set_quota(scoped(expressions=[by_class("In", "low")]))
    low, high = a_pod("low", priority_class_name="low"), a_pod("high", priority_class_name="high")
    big = an_allocation("n1", a_grant(memory=700))
    assert ledger.gate(high) is None
    assert not ledger.reserve(high, big)
    assert ledger.used("default", "q") == {"acme.com/mem": 0}
    assert not ledger.reserve(low, big)
    assert ledger.reserve(a_pod("low2", priority_class_name="low"), big)
    assert ledger.used("default", "q") == {"acme.com/mem": 700}


def test_a_quota_that_changes_its_scope_counts_anew():
    ledger = QuotaLedger(the_vendors())
    ledger.set_quota(scoped("Terminating"))
    ledger.charge(a_pod("runs"), an_allocation("n1", a_grant(memory=10)))
    ledger.charge(a_pod("ends", active_deadline_seconds=9), an_allocation("n1", a_grant(memory=5)))
    assert ledger.used("default", "q") == {"acme.com/mem": 5}
    ledger.set_quota(scoped("NotTerminating"))
    assert ledger.used("default", "q") == {"acme.com/mem": 10}
    ledger.release("runs")
    ledger.release("ends")
    assert ledger.used("default", "q") == {"acme.com/mem": 0}


def test_a_pod_that_comes_into_scope_is_charged_as_it_is_now():
    ledger = QuotaLedger(the_vendors())
    ledger.set_quota(scoped("Terminating"))
    big = an_allocation("n1", a_grant(memory=700))
    assert not ledger.reserve(a_pod("p"), big)
    assert not ledger.reserve(a_pod("p", active_deadline_seconds=9), big)
    assert ledger.used("default", "q") == {"acme.com/mem": 700}
    assert not ledger.reserve(a_pod("p"), big)
    assert ledger.used("default", "q") == {"acme.com/mem": 0}


def test_what_a_pod_held_out_of_scope_is_no_room_for_it_in_scope():
    ledger = QuotaLedger(the_vendors())
    ledger.set_quota(scoped("Terminating"))
    big = an_allocation("n1", a_grant(memory=700))
    assert not ledger.reserve(a_pod("p"), big)
    assert not ledger.reserve(a_pod("other", active_deadline_seconds=9), big)
    assert ledger.reserve(a_pod("p", active_deadline_seconds=9), big)
