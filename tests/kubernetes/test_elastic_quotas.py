"""Elastic quotas on a real API server: the chart's definitions, its webhook, the scheduler's rights.

What the definitions say and refuse is in lab/tests/api/test_elastic_quotas.py.
"""

from __future__ import annotations

import base64

import pytest

from .chart import rendered
from .client import Refused, pods_path
from .elastic import CRDS, MEMORY, NOS, OURS, Team, a_quota, definitions, quotas, served
from .objects import a_pod
from .processes import until
from .proxy import Proxy
from .release import PATHS

QUANTITY = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


@pytest.fixture
def validated(defined):
    """The chart's webhook in front of a scheduler."""
    service = defined.service()
    authority = defined.plane.authority.certificate.read_bytes()
    hooks = {
        "certificate": {"source": "secret", "caBundle": base64.b64encode(authority).decode()},
        "webhooks": {"url": service.webhook.removesuffix("/webhook")},
    }
    (configuration,) = [
        thing for thing in rendered(hooks) if thing["kind"] == "ValidatingWebhookConfiguration"
    ]
    path = PATHS[configuration["kind"]]
    defined.admin.create(path, configuration)

    def asked(plural, body):
        """kube-apiserver takes webhooks up a little later."""
        try:
            defined.admin.create(f"{plural}?dryRun=All", body)
        except Refused as error:
            return "denied the request" in error.message
        return False

    namespace = defined.namespace
    bad = {"min": {"cpu": "2"}, "max": {"cpu": "1"}}
    tree = {
        "apiVersion": "quota.hami.io/v1alpha1", "kind": "QuotaTree", "metadata": {"name": "t"},
        "spec": {"nodes": [{"name": "a", **bad}]},
    }  # fmt: skip
    for where, body in (
        (quotas(namespace), a_quota(**bad)),
        (
            quotas(namespace, plural="compositeelasticquotas"),
            a_quota(kind="CompositeElasticQuota", namespaces=["a"], **bad),
        ),
        (f"{OURS}/quotatrees", tree),
    ):
        until(f"the webhook of {where} is called", lambda w=where, b=body: asked(w, b))
    yield defined
    defined.admin.delete(f"{path}/{configuration['metadata']['name']}")


def refusal(cluster, path, body):
    with pytest.raises(Refused) as found:
        cluster.admin.create(path, body)
    return found.value.message.split("denied the request: ")[-1]


def test_quotas_that_contradict_each_other_or_themselves_are_denied(validated):
    cluster, ns = validated, validated.namespace
    cluster.admin.create(quotas(ns), a_quota("first", min={"cpu": "4"}))
    assert refusal(cluster, quotas(ns), a_quota("second")) == (
        f'only 1 ElasticQuota per namespace is allowed - ElasticQuota "first" already exists in '
        f'namespace "{ns}"'
    )
    composites = quotas("default", plural="compositeelasticquotas")
    composite = a_quota("both", kind="CompositeElasticQuota", namespaces=[ns, f"{ns}-b"])
    cluster.admin.create(composites, composite)
    assert refusal(cluster, composites, {**composite, "metadata": {"name": "again"}}).startswith(
        "a namespace can belong to only 1 CompositeElasticQuota: namespace "
    )
    cluster.admin.delete(quotas(ns, "first"))
    assert refusal(cluster, quotas(ns), a_quota("third")) == (
        f'the CompositeElasticQuota "default/both" already defines quotas for namespace "{ns}"'
    )
    cluster.admin.delete(f"{composites}/both")
    cluster.admin.create(quotas(ns), a_quota("third"))
    with pytest.raises(Refused, match="less than min"):
        cluster.admin.merge(
            quotas(ns, "third"), {"spec": {"min": {"cpu": "2"}, "max": {"cpu": "1"}}}
        )
    tree = {
        "apiVersion": "quota.hami.io/v1alpha1",
        "kind": "QuotaTree",
        "metadata": {"name": ns},
        "spec": {"nodes": [{"name": f"{ns}-a", "parent": f"{ns}-b"}, {"name": f"{ns}-b"}]},
    }
    cluster.admin.create(f"{OURS}/quotatrees", tree)
    circle = [{"name": f"{ns}-a", "parent": f"{ns}-b"}, {"name": f"{ns}-b", "parent": f"{ns}-a"}]
    with pytest.raises(Refused, match="is a circle"):
        cluster.admin.merge(f"{OURS}/quotatrees/{ns}", {"spec": {"nodes": circle}})


def test_the_scheduler_has_the_rights_that_elastic_quota_takes(defined):
    """The chart's, which docs/scheduler.md lists, and no more."""
    cluster, ns = defined, defined.namespace
    hami = cluster.plane.client("hami")
    try:
        composites = quotas(ns, plural="compositeelasticquotas")
        of_a_model = "nvidia.com/gpumem@A100"
        cluster.admin.create(quotas(ns), a_quota(min={"cpu": "4", of_a_model: "20000"}))
        cluster.admin.create(composites, a_quota(kind="CompositeElasticQuota", namespaces=["x"]))
        for path in (quotas(ns, "q"), f"{composites}/q"):
            hami.merge(path, {"metadata": {"annotations": {"quota.hami.io/reserved": "{}"}}})
            used = {"cpu": "1", of_a_model: "10000"}
            done = hami.merge(f"{path}/status", {"status": {"used": used}})
            assert done["status"] == {"used": used}
            with pytest.raises(Refused, match="cannot delete"):
                hami.delete(path)
        for path in (f"{NOS}/elasticquotas", f"{NOS}/compositeelasticquotas", f"{OURS}/quotatrees",
                     "/apis/policy/v1/poddisruptionbudgets"):  # fmt: skip
            assert isinstance(hami.list(path), list)
        with pytest.raises(Refused, match="cannot create"):
            hami.create(quotas(ns), a_quota("mine"))
        cluster.add_pod(a_pod("p"))
        hami.merge(pods_path(ns, "p"), {"metadata": {"labels": {"nos.nebuly.com/capacity": "over-quota"}}})  # fmt: skip
        with pytest.raises(Refused, match="cannot delete"):
            hami.delete(pods_path(ns, "p"))
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        hami.create(f"{pods_path(ns, 'p')}/eviction", eviction)
        until("the pod is gone", lambda: not cluster.admin.exists(pods_path(ns, "p")))
    finally:
        hami.close()


def test_nos_own_definition_serves_us_as_well(undefined):
    """Without columns, with a conversion webhook that nobody answers; as nos' chart has it."""
    (ours,) = [d for d in definitions() if d["metadata"]["name"].startswith("elasticquotas")]
    (version,) = ours["spec"]["versions"]
    amounts = {"type": "object", "additionalProperties": QUANTITY}
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"min": amounts, "max": amounts}},
            "status": {"type": "object", "properties": {"used": amounts}},
        },
    }
    theirs = {
        **ours,
        "spec": {
            **ours["spec"],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {
                        "service": {
                            "namespace": "nos-system", "name": "nos-webhook-service",
                            "path": "/convert",
                        },
                    },
                    "conversionReviewVersions": ["v1"],
                },
            },
            "versions": [
                {key: version[key] for key in ("name", "served", "storage", "subresources")}
                | {"schema": {"openAPIV3Schema": schema}}
            ],
        },
    }  # fmt: skip
    cluster, admin = undefined, undefined.admin
    path = quotas(cluster.namespace)
    admin.create(CRDS, theirs)
    name = f"{CRDS}/{ours['metadata']['name']}"
    hami = cluster.plane.client("hami")
    try:
        served(cluster, path)
        admin.create(path, a_quota(min={"cpu": "4"}))
        done = hami.merge(f"{path}/q/status", {"status": {"used": {"cpu": "1"}}})
        assert (done["spec"], done["status"]) == ({"min": {"cpu": "4"}}, {"used": {"cpu": "1"}})
        # As Helm does, which leaves it alone; and as kubectl replace -f does, which does not.
        with pytest.raises(Refused) as found:
            admin.create(CRDS, ours)
        assert found.value.status == 409
        metadata = {**ours["metadata"], "resourceVersion": admin.get(name)["metadata"]["resourceVersion"]}  # fmt: skip
        admin.call("PUT", name, {**ours, "metadata": metadata})
        assert admin.get(name)["spec"]["conversion"] == {"strategy": "None"}
        assert admin.get(f"{path}/q")["spec"] == {"min": {"cpu": "4"}}
    finally:
        hami.close()


def test_a_raised_min_is_claimed_at_once_also_while_nobody_led(defined):
    """kube-scheduler comes back to a refused pod after five minutes, unless it is woken."""
    cluster = defined
    cluster.add_nodes("n1", devices="t4x2")
    service = cluster.service()
    with Proxy(service.url) as proxy:
        cluster.kube_scheduler(proxy.url)
        Team(cluster, "idle", 40)
        rich, poor = Team(cluster, "rich", 0), Team(cluster, "poor", 0)
        for number in range(2):
            rich.runs(number, gpu=1, mem=10 * 1024)
        path = quotas(poor.namespace, "quota")
        first = poor.asks(0, gpu=1, mem=10 * 1024)
        poor.waits(first)
        cluster.admin.merge(path, {"spec": {"min": {MEMORY: 10}}})
        poor.comes_in(first)
        second = poor.asks(1, gpu=1, mem=10 * 1024)
        poor.waits(second)
        service.kill()
        cluster.admin.merge(path, {"spec": {"min": {MEMORY: 20}}})
        service.start()
        proxy.upstream = service.url
        poor.comes_in(second)
        assert rich.bound() == []
        cluster.agrees(service)
