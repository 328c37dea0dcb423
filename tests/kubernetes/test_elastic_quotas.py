"""Elastic quotas on a real API server: the chart's definitions, its webhook, the scheduler's rights.

What the definitions say and refuse is in tests/api/test_elastic_quotas.py.
"""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
import yaml

from .chart import CHART, rendered
from .client import Refused, pods_path
from .objects import a_pod
from .processes import until
from .release import PATHS

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NOS, OURS = "/apis/nos.nebuly.com/v1alpha1", "/apis/quota.hami.io/v1alpha1"
QUANTITY = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


def definitions():
    return [yaml.safe_load(file.read_text()) for file in sorted((CHART / "crds").glob("*.yaml"))]


def quotas(namespace, name="", plural="elasticquotas"):
    return f"{NOS}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def a_quota(name="q", kind="ElasticQuota", **spec):
    return {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.fixture
def undefined(cluster):
    """Neither definitions nor quotas, before and after; other tests may leave some."""

    def remove():
        names = [definition["metadata"]["name"] for definition in definitions()]
        for name in names:
            with suppress(Refused):
                cluster.admin.delete(f"{CRDS}/{name}")
        for name in names:
            until(f"{name} is gone", lambda name=name: not cluster.admin.exists(f"{CRDS}/{name}"))

    remove()
    yield cluster
    remove()


def served(cluster, *paths):
    """A new definition's resource answers 404 at first, and then 429 for a moment."""
    for path in paths:
        until(f"{path} is served", lambda path=path: cluster.admin.get(path), passing=(Refused,))


@pytest.fixture
def defined(undefined):
    """The chart's definitions."""
    for definition in definitions():
        undefined.admin.create(CRDS, definition)
    composites = quotas("default", plural="compositeelasticquotas")
    served(undefined, quotas("default"), composites, f"{OURS}/quotatrees")
    return undefined


@pytest.fixture
def validated(defined):
    """The chart's webhook in front of a scheduler."""
    service = defined.service()
    authority = defined.plane.authority.certificate.read_bytes()
    hook = {
        "caBundle": base64.b64encode(authority).decode(),
        "url": service.webhook.removesuffix("/webhook"),
    }
    (configuration,) = [
        thing
        for thing in rendered({"elasticQuota": {"webhook": hook}})
        if thing["kind"] == "ValidatingWebhookConfiguration"
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
        cluster.admin.create(quotas(ns), a_quota(min={"cpu": "4"}))
        cluster.admin.create(composites, a_quota(kind="CompositeElasticQuota", namespaces=["x"]))
        for path in (quotas(ns, "q"), f"{composites}/q"):
            hami.merge(path, {"metadata": {"annotations": {"quota.hami.io/reserved": "{}"}}})
            done = hami.merge(f"{path}/status", {"status": {"used": {"cpu": "1"}}})
            assert done["status"] == {"used": {"cpu": "1"}}
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
