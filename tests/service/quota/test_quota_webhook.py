"""What the API server is answered about elastic quotas; the rules have tests of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from hami.domain.kubernetes.objects import CompositeElasticQuota, ElasticQuota, QuotaTree
from hami.kube.errors import ApiError
from hami.policy.quota.elastic.objects.validation import QuotaObject
from hami.policy.quota.elastic.units import Units
from hami.scheduler.web.quota_webhook import PATHS, QuotaWebhook
from hami.vendors.registry import load_vendors
from hami.wire.admission import AdmissionReview
from hami.wire.bodies import BadBody

from ..web.http_builders import a_public_app, calling
from ..web.test_webhook import Counted, a_review

VENDORS = load_vendors()
TYPES = {t.__name__: t for t in (ElasticQuota, CompositeElasticQuota, QuotaTree)}
NOS, OURS = "nos.nebuly.com", "quota.hami.io"


def a_quota(kind: str = "ElasticQuota", name: str = "q", **parts: Any) -> dict[str, Any]:
    group = OURS if kind == "QuotaTree" else NOS
    spec = parts.pop("spec", {"min": {"nvidia.com/gpu": 2}})
    namespace = {} if kind == "QuotaTree" else {"namespace": "ml"}
    metadata = {"name": name, **namespace, **parts}
    return {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def asking(quota: Any, old: Any = None, **request: Any) -> bytes:
    kind = quota["kind"] if isinstance(quota, dict) else "ElasticQuota"
    asked = {
        "kind": {
            "group": OURS if kind == "QuotaTree" else NOS,
            "version": "v1alpha1",
            "kind": kind,
        },
        "operation": "UPDATE" if old is not None else "CREATE",
        "oldObject": old,
        "namespace": "" if kind == "QuotaTree" else "ml",
        **request,
    }
    return a_review(quota, **asked)


class World:
    def __init__(self, *others: dict[str, Any], fails: ApiError | None = None) -> None:
        self.listed = 0
        self.counted = Counted()
        self._fails = fails
        self._others = [msgspec.convert(o, TYPES[o["kind"]]) for o in others]
        self.webhook = QuotaWebhook(
            others=self._list,
            units=lambda: Units.of(VENDORS),
            metrics=self.counted,
        )

    async def _list(self) -> Sequence[QuotaObject]:
        self.listed += 1
        if self._fails:
            raise self._fails
        return self._others

    async def review(self, body: bytes) -> dict[str, Any]:
        answer = await self.webhook.review(body)
        assert isinstance(answer, AdmissionReview)
        response: dict[str, Any] = json.loads(msgspec.json.encode(answer))["response"]
        assert response["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
        return response

    async def refusal(self, body: bytes) -> str:
        response = await self.review(body)
        assert not response["allowed"]
        return str(response["status"]["message"])


@pytest.mark.parametrize("kind", ["ElasticQuota", "CompositeElasticQuota", "QuotaTree"])
async def test_a_quota_like_no_other_is_allowed(kind):
    spec = {
        "ElasticQuota": {"min": {"nvidia.com/gpu": 2}},
        "CompositeElasticQuota": {"namespaces": ["a", "b"]},
        "QuotaTree": {"nodes": [{"name": "research"}]},
    }[kind]
    world = World()
    assert await world.review(asking(a_quota(kind, spec=spec))) == {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "allowed": True,
    }
    assert world.counted.outcomes == ["allowed"]


async def test_a_second_quota_of_a_namespace_is_denied_in_nos_words():
    world = World(a_quota(name="first"))
    body = asking(a_quota(name="second"))
    assert await world.refusal(body) == (
        'only 1 ElasticQuota per namespace is allowed - ElasticQuota "first" already exists in '
        'namespace "ml"'
    )
    assert (await world.review(body))["status"]["code"] == 403
    assert world.counted.outcomes == ["denied", "denied"]


async def test_the_request_says_which_namespace_it_is():
    quota = a_quota(name="second")
    del quota["metadata"]["namespace"]
    world = World(a_quota(name="first"))
    assert "only 1 ElasticQuota" in await world.refusal(asking(quota))
    assert (await world.review(asking(quota, namespace="elsewhere")))["allowed"]


async def test_every_problem_is_named():
    spec = {"min": {"cpu": "-1", "nvidia.com/gpu": "4"}, "max": {"nvidia.com/gpu": "2"}}
    text = await World().refusal(asking(a_quota(spec=spec)))
    assert "spec.min[cpu]" in text
    assert "spec.max[nvidia.com/gpu]: 2 is less than min, 4" in text


async def test_what_is_odd_but_harmless_is_a_warning():
    quota = a_quota(labels={"quota.hami.io/parent": "nobody"})
    response = await World().review(asking(quota))
    assert response["allowed"]
    assert response["warnings"] == [
        'there is no node "nobody" in any QuotaTree; until there is, it hangs on the root'
    ]


BROKEN = {"min": {"cpu": "2"}, "max": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        pytest.param({"finalizers": ["x/y"]}, True, id="a finalizer"),
        pytest.param({"annotations": {"quota.hami.io/reserved": "{}"}}, True, id="our annotation"),
        pytest.param({"labels": {"team": "a"}}, True, id="a label"),
        pytest.param({"labels": {"quota.hami.io/parent": "a"}}, False, id="its parent"),
        pytest.param({"labels": {"quota.hami.io/weight": "3"}}, False, id="its weight"),
        pytest.param({"annotations": {"quota.hami.io/borrow-limit": "{}"}}, False, id="its limit"),
        pytest.param({"spec": BROKEN | {"max": {"cpu": "1500m"}}}, False, id="what it says"),
        pytest.param(
            {"spec": {}, "deletionTimestamp": "2026-01-01T00:00:00Z"}, True, id="on its way out"
        ),
    ],
)
async def test_a_quota_from_before_is_judged_when_what_it_says_changes(change, allowed):
    world = World()
    changed = a_quota(**({"spec": BROKEN} | change))
    response = await world.review(asking(changed, old=a_quota(spec=BROKEN)))
    assert response["allowed"] is allowed
    assert world.listed == (0 if allowed else 1), "the API server is asked where it matters"


async def test_an_update_is_not_compared_with_itself():
    world = World(a_quota())
    changed = a_quota(spec={"min": {"nvidia.com/gpu": 3}})
    assert (await world.review(asking(changed, old=a_quota())))["allowed"]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"operation": "DELETE", "object": None}, id="a deletion"),
        pytest.param({"operation": "CONNECT"}, id="a connection"),
        pytest.param({"operation": "UPDATE", "subResource": "status"}, id="its status"),
        pytest.param({"kind": {"group": "", "kind": "Pod"}}, id="a pod"),
        pytest.param({"kind": {"group": "x.io", "kind": "ElasticQuota"}}, id="somebody else's"),
    ],
)
async def test_what_is_not_asked_for_passes(request_):
    world = World(a_quota(name="first"))
    assert (await world.review(asking(a_quota(spec=BROKEN), **request_)))["allowed"]
    assert world.listed == 0


async def test_what_cannot_be_read_is_denied():
    response = await World().review(asking(a_quota(spec={"min": [1]})))
    assert response["status"]["code"] == 400
    assert "the ElasticQuota cannot be read" in response["status"]["message"]


async def test_without_the_other_quotas_nothing_is_allowed():
    error = ApiError("no route", call="LIST elasticquotas")
    response = await World(fails=error).review(asking(a_quota()))
    assert (response["allowed"], response["status"]["code"]) == (False, 500)
    assert response["status"]["message"].startswith("internal error: the quotas cannot be listed:")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"kind": "AdmissionReview"}'])
async def test_what_is_no_review_has_no_answer(body):
    world = World()
    assert isinstance(await world.webhook.review(body), BadBody)
    assert world.counted.outcomes == ["error"]


@pytest.mark.parametrize("path", PATHS)
async def test_it_is_served_where_nos_had_it_and_for_trees(path):
    app = a_public_app(quota_webhook=World(a_quota(name="first")).webhook)
    async with calling(app) as client:
        async with client.post(path, data=asking(a_quota())) as answer:
            assert (answer.status, (await answer.json())["response"]["allowed"]) == (200, False)
        async with client.post(path, data=b"{") as answer:
            assert (answer.status, answer.content_type) == (400, "text/plain")
        async with client.get(path) as answer:
            assert answer.status == 405


async def test_a_bug_is_a_500_so_that_the_failure_policy_decides(logged):
    class Broken:
        async def review(self, body: bytes) -> AdmissionReview:
            raise ZeroDivisionError("division by zero")

    app = a_public_app(quota_webhook=Broken())
    async with calling(app) as client, client.post(PATHS[0], data=b"{}") as answer:
        assert answer.status == 500
    assert [entry["route"] for entry in logged] == ["validate"]
