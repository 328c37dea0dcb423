"""Tokens of service accounts, whose they are, and what RBAC lets them do."""

from __future__ import annotations

import pytest

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def an_account(api, name: str = "sa") -> str:
    """A service account; its name as a user."""
    made = await api.post(api.path("serviceaccounts"), {"metadata": {"name": name}})
    assert made.status == 201, made
    return f"system:serviceaccount:{api.namespace}:{name}"


async def a_token(api, name: str = "sa", **spec) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    made = await api.post(api.path("serviceaccounts", name, "token"), body)
    assert made.status == 201, made
    assert made.body["kind"] == "TokenRequest"
    return made.body["status"]["token"]


async def whose(api, token: str, **spec) -> dict:
    answer = await api.post(TOKEN_REVIEWS, {"spec": {"token": token, **spec}})
    assert answer.status == 201, answer
    assert answer.body["kind"] == "TokenReview"
    return answer.body["status"]


async def may(api, user: str, verb: str, resource: str, *, groups=(), **about) -> bool:
    attributes = {"namespace": api.namespace, "verb": verb, "resource": resource, **about}
    spec = {"user": user, "groups": list(groups), "resourceAttributes": attributes}
    answer = await api.post(ACCESS_REVIEWS, {"spec": spec})
    assert answer.status == 201, answer
    assert answer.body["kind"] == "SubjectAccessReview"
    return answer.body["status"]["allowed"]


async def a_role(api, *rules: dict, **subject) -> None:
    """A role, bound to a subject."""
    base = f"{RBAC}/namespaces/{api.namespace}"
    role = await api.post(f"{base}/roles", {"metadata": {"name": "r"}, "rules": list(rules)})
    assert role.status == 201, role
    if subject["kind"] != "ServiceAccount":
        subject["apiGroup"] = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "r"},
        "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
    }
    bound = await api.post(f"{base}/rolebindings", binding)
    assert bound.status == 201, bound


async def test_a_token_is_its_account_s(api):
    user = await an_account(api)
    status = await whose(api, await a_token(api))
    assert status["authenticated"] is True
    assert status["user"]["username"] == user
    assert set(status["user"]["groups"]) == {
        "system:serviceaccounts",
        f"system:serviceaccounts:{api.namespace}",
        "system:authenticated",
    }


async def test_what_is_no_token_is_nobody_s(api):
    status = await whose(api, "nonsense")
    assert not status.get("authenticated")
    assert status["user"] == {}
    assert status["error"]


async def test_a_token_of_an_account_that_is_gone_is_nobody_s(api):
    await an_account(api)
    token = await a_token(api)
    await api.delete(api.path("serviceaccounts", "sa"))
    # A real server believes a token for some seconds after it has seen it.
    assert not (await whose(api, token)).get("authenticated")


async def test_a_token_for_others_is_not_for_the_api_server(api):
    await an_account(api)
    token = await a_token(api, audiences=["vault"])
    assert not (await whose(api, token)).get("authenticated")


async def test_a_review_without_a_token_is_refused(api):
    answer = await api.post(TOKEN_REVIEWS, {"spec": {}})
    assert answer.refusal == (400, "BadRequest")


async def test_a_token_is_good_for_ten_minutes_at_least(api):
    await an_account(api)
    answer = await api.post(
        api.path("serviceaccounts", "sa", "token"), {"spec": {"expirationSeconds": 5}}
    )
    assert answer.refusal == (422, "Invalid")


async def test_a_review_cannot_be_read(api):
    assert (await api.get(TOKEN_REVIEWS)).status == 405


RESIZE = {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["update"]}


async def test_a_right_comes_from_a_role_and_its_binding(api):
    user = await an_account(api)
    asked = ("update", "pods")
    assert not await may(api, user, *asked, subresource="resize", name="p")
    await a_role(api, RESIZE, kind="ServiceAccount", name="sa", namespace=api.namespace)

    async def allowed():
        return await may(api, user, *asked, subresource="resize", name="p")

    await api.eventually(allowed, bool)
    assert not await may(api, user, *asked, name="p"), "pods/resize is not pods"
    assert not await may(api, user, "delete", "pods", subresource="resize", name="p")
    assert not await may(api, user, *asked, subresource="resize", name="p", namespace="default")


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        pytest.param({**RESIZE, "resources": ["*"]}, True, id="all resources"),
        pytest.param({**RESIZE, "resources": ["*/resize"]}, True, id="a subresource of all"),
        pytest.param({**RESIZE, "verbs": ["*"]}, True, id="all verbs"),
        pytest.param({**RESIZE, "resourceNames": ["p"]}, True, id="by name"),
        pytest.param({**RESIZE, "resourceNames": ["q"]}, False, id="by another name"),
        pytest.param({**RESIZE, "resources": ["pods"]}, False, id="the pod alone"),
        pytest.param({**RESIZE, "apiGroups": ["apps"]}, False, id="another group"),
    ],
)
async def test_what_a_rule_covers(api, rule, allowed):
    group = f"team-{api.namespace}"
    # The second one says that the server has seen both.
    both = [rule, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
    await a_role(api, *both, kind="Group", name=group)

    async def seen():
        return await may(api, "u", "get", "configmaps", groups=[group])

    await api.eventually(seen, bool)
    found = await may(api, "u", "update", "pods", groups=[group], subresource="resize", name="p")
    assert found is allowed


async def test_the_cluster_s_owners_may_everything(api):
    assert await may(api, "u", "update", "pods", groups=["system:masters"], subresource="resize")


async def test_a_question_about_nobody_or_nothing_is_refused(api):
    about = {"verb": "get", "resource": "pods"}
    for spec in ({"resourceAttributes": about}, {"user": "u"}):
        answer = await api.post(ACCESS_REVIEWS, {"spec": spec})
        assert answer.refusal == (422, "Invalid"), answer
