"""The chart's definitions: objects as nos' manifests write them, and as ours do.

Only a real server knows schemas and columns.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CHART = Path(__file__).parents[3] / "charts/hami/crds"
NOS, OURS = "/apis/nos.nebuly.com/v1alpha1", "/apis/quota.hami.io/v1alpha1"


@pytest.fixture
async def defined(api):
    """They stay: other tests, and other people's quotas, may be there too."""
    for file in sorted(CHART.glob("*.yaml")):
        definition = yaml.safe_load(file.read_text())
        created = await api.post(CRDS, definition)
        assert created.status in (201, 409), created.body
        name = definition["metadata"]["name"]
        await api.eventually(
            lambda name=name: api.get(f"{CRDS}/{name}"),
            lambda answer: (
                {(c["type"], c["status"]) for c in answer.body["status"].get("conditions") or ()}
                >= {("Established", "True"), ("NamesAccepted", "True")}
            ),
        )
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        await api.eventually(lambda g=group, p=plural: api.get(f"/apis/{g}/v1alpha1/{p}"))
    return api


def a_quota(kind="ElasticQuota", name="q", **spec):
    return {
        "apiVersion": NOS.removeprefix("/apis/"),
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


MIN = {"cpu": "4", "nvidia.com/gpu": 10, "nos.nebuly.com/gpu-memory": "40"}
MAX = {"cpu": "500m", "nvidia.com/gpumem": "10Gi"}


@pytest.mark.parametrize("kind", ["ElasticQuota", "CompositeElasticQuota"])
async def test_a_quota_is_kept_as_it_is_written(defined, kind):
    api = defined
    path = f"{NOS}/namespaces/{api.namespace}/{kind.lower()}s"
    more = {"namespaces": [api.namespace, "b"]} if kind.startswith("Composite") else {}
    created = await api.post(path, a_quota(kind, min=MIN, max=MAX, **more))
    assert created.status == 201, created.body
    assert created.body["spec"] == {"min": MIN, "max": MAX, **more}
    assert created.meta["generation"] == 1


async def test_the_status_is_written_apart_and_holds_no_more_than_nos_had(defined):
    api = defined
    path = f"{NOS}/namespaces/{api.namespace}/elasticquotas"
    assert (await api.post(path, a_quota(min=MIN))).status == 201
    written = await api.patch(
        f"{path}/q/status", {"status": {"used": {"cpu": "1"}}, "spec": {"min": {}}}
    )
    assert written.body["status"] == {"used": {"cpu": "1"}}
    assert written.body["spec"] == {"min": MIN}


async def test_a_tree_of_quotas_belongs_to_the_cluster(defined):
    api = defined
    nodes = [
        {"name": "research", "max": {"nvidia.com/gpu": 8}, "weight": 2},
        {"name": "r1", "parent": "research", "borrowLimit": {"nvidia.com/gpu": "0"}},
        {"name": "r2", "parent": "research", "weight": {"nvidia.com/gpu": 3}},
    ]
    tree = {
        "apiVersion": OURS.removeprefix("/apis/"),
        "kind": "QuotaTree",
        "metadata": {"name": api.namespace},
        "spec": {"nodes": nodes},
    }
    created = await api.post(f"{OURS}/quotatrees", tree)
    assert created.status == 201, created.body
    assert created.body["spec"]["nodes"] == nodes
    await api.delete(f"{OURS}/quotatrees/{api.namespace}")


async def test_short_names_are_nos(defined):
    api = defined
    resources = (await api.get(NOS)).body["resources"]
    short = {r["name"]: r.get("shortNames") for r in resources if "/" not in r["name"]}
    assert short == {"elasticquotas": ["eq", "eqs"], "compositeelasticquotas": ["ceq", "ceqs"]}
    assert {r["name"] for r in resources if "/" in r["name"]} == {
        "elasticquotas/status",
        "compositeelasticquotas/status",
    }


@pytest.mark.parametrize(
    ("plural", "spec", "field"),
    [
        ("elasticquotas", {"min": {"cpu": "4 cores"}}, "spec.min.cpu"),
        ("elasticquotas", {"max": {"cpu": 1.5}}, "spec.max.cpu"),
        ("compositeelasticquotas", {"namespaces": []}, "spec.namespaces"),
    ],
)
async def test_a_real_server_refuses_what_the_schema_does_not_know(defined, plural, spec, field):
    api = defined
    if not api.real:
        pytest.skip("the embedded server checks no schemas")
    kind = {"e": "ElasticQuota", "c": "CompositeElasticQuota"}[plural[0]]
    path = f"{NOS}/namespaces/{api.namespace}/{plural}"
    refused = await api.post(path, a_quota(kind, **spec))
    assert refused.refusal == (422, "Invalid")
    assert field in refused.fields()


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ([{"name": "a b"}], "spec.nodes[0].name"),
        ([{"parent": "a"}], "spec.nodes[0].name"),
        ([{"name": "a"}, {"name": "a"}], "spec.nodes[1]"),
        ([{"name": "a", "min": {"cpu": "x"}}], "spec.nodes[0].min.cpu"),
    ],
)
async def test_a_real_server_refuses_a_tree_that_cannot_be_meant(defined, node, said):
    api = defined
    if not api.real:
        pytest.skip("the embedded server checks no schemas")
    tree = {
        "apiVersion": OURS.removeprefix("/apis/"),
        "kind": "QuotaTree",
        "metadata": {"name": api.namespace},
        "spec": {"nodes": node},
    }
    refused = await api.post(f"{OURS}/quotatrees", tree)
    assert refused.refusal == (422, "Invalid")
    assert said in refused.fields()


async def test_a_real_server_prints_what_is_used_and_guaranteed(defined):
    api = defined
    if not api.real:
        pytest.skip("the embedded server prints names and ages of custom resources")
    path = f"{NOS}/namespaces/{api.namespace}/elasticquotas"
    assert (await api.post(path, a_quota(min={"cpu": "4"}, max={"cpu": "8"}))).status == 201
    await api.patch(f"{path}/q/status", {"status": {"used": {"cpu": "1"}}})
    table = await api.table(path)
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == ["Name", "Used", "Min", "Max", "Age"]
    (row,) = table["rows"]
    assert row["cells"][:4] == ["q", '{"cpu":"1"}', '{"cpu":"4"}', '{"cpu":"8"}']
