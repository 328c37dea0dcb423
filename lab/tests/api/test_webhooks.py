"""Admission webhooks: who is asked about what, and what becomes of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from .cluster import a_binding, a_pod
from .webhook_server import ALLOWED, WebhookServer, annotated, denied, patched

ROOT = "/apis/admissionregistration.k8s.io/v1"
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
MAPS = {**PODS, "resources": ["configmaps"]}


class Hooks:
    """Registers webhooks for the test's namespace, and takes them away again."""

    def __init__(self, api, server: WebhookServer) -> None:
        self.api = api
        self.server = server
        self._made: list[str] = []

    async def register(self, sort: str, *webhooks: dict[str, Any], name: str = "") -> None:
        path = f"{ROOT}/{sort}webhookconfigurations"
        name = f"{self.api.namespace}-{name or sort}"
        body = {"metadata": {"name": name}, "webhooks": list(webhooks)}
        created = await self.api.post(path, body)
        assert created.status == 201, created.body
        self._made.append(f"{path}/{name}")
        await self._known(webhooks)

    async def _known(self, webhooks: tuple[dict[str, Any], ...]) -> None:
        """A real server takes a moment to hear of a new webhook: try until it asks."""
        asked = [w for w in webhooks if "CREATE" in w["rules"][0]["operations"]]
        probed = [w for w in asked if w["rules"][0]["resources"][0] in ("pods", "configmaps")]
        for webhook in probed:
            path = webhook["clientConfig"]["url"].rpartition("/")[2]
            plural = webhook["rules"][0]["resources"][0]
            before = len(self.server.requests(path))
            for number in range(200):
                labels = (webhook.get("objectSelector") or {}).get("matchLabels") or {}
                body = a_pod(f"probe{number}", metadata={"labels": labels})
                if plural == "configmaps":
                    body = {"metadata": {"name": f"probe{number}", "labels": labels}}
                await self.api.post(self.api.path(plural), body, dryRun="All")
                if len(self.server.requests(path)) > before:
                    break
                await asyncio.sleep(0.05)
            else:
                pytest.fail(f"the webhook {webhook['name']} is never called")
        self.server.asked.clear()

    def hook(self, path: str = "hook", **changes: Any) -> dict[str, Any]:
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self.api.namespace}}
        config = {"url": f"{self.server.url}/{path}", "caBundle": self.server.authority}
        return {
            "name": f"{path}.test.hami.io", "rules": [PODS], "clientConfig": config,
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
            "namespaceSelector": selector, **changes,
        }  # fmt: skip

    async def close(self) -> None:
        for path in self._made:
            await self.api.delete(path)


@pytest.fixture
async def hooks(api, tmp_path) -> AsyncIterator[Hooks]:
    async with WebhookServer(tmp_path) as server:
        found = Hooks(api, server)
        try:
            yield found
        finally:
            await found.close()


async def test_a_mutating_webhook_changes_the_object(api, hooks):
    hooks.server.responds["hook"] = annotated("by", "hook")
    await hooks.register("mutating", hooks.hook())
    created = await api.pod("p")
    assert created.meta["annotations"] == {"by": "hook"}


async def test_what_it_is_asked(api, hooks):
    hooks.server.responds["hook"] = ALLOWED
    await hooks.register("mutating", hooks.hook())
    await api.pod("p", limits={"nvidia.com/gpumem": 3000})
    [request] = hooks.server.requests("hook")
    expected = {
        "operation": "CREATE", "name": "p", "namespace": api.namespace, "dryRun": False,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "oldObject": None,
    }  # fmt: skip
    assert {key: request[key] for key in expected} == expected
    assert "system:masters" in request["userInfo"]["groups"]
    assert request["options"]["kind"] == "CreateOptions"
    pod = request["object"]
    assert (pod["kind"], pod["apiVersion"]) == ("Pod", "v1")
    # With defaults and rewritten quantities, like everything that others see.
    container = pod["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpumem": "3k"}
    assert container["resources"]["requests"] == {"nvidia.com/gpumem": "3k"}
    assert pod["spec"]["restartPolicy"] == "Always"
    assert pod["spec"]["priority"] == 0
    assert pod["metadata"]["namespace"] == api.namespace
    assert "resourceVersion" not in pod["metadata"]


async def test_what_the_server_makes_up_is_not_there_yet(api, hooks):
    hooks.server.responds["hook"] = ALLOWED
    await hooks.register("mutating", hooks.hook())
    body = a_pod("x")
    body["metadata"] = {"generateName": "g-"}
    await api.created("pods", body)
    [request] = hooks.server.requests("hook")
    metadata = request["object"]["metadata"]
    assert not request.get("name")
    assert metadata["generateName"] == "g-"
    assert not {"name", "uid", "creationTimestamp"} & set(metadata)


@pytest.mark.parametrize("sort", ["mutating", "validating"])
async def test_a_denial_is_the_answer(api, hooks, sort):
    hooks.server.responds["hook"] = denied("container c: 'x' is not a quantity", 422, "Invalid")
    await hooks.register(sort, hooks.hook())
    answer = await api.post(api.path("pods"), a_pod("p"))
    assert answer.status == 422
    assert answer.message == (
        'admission webhook "hook.test.hami.io" denied the request: '
        "container c: 'x' is not a quantity"
    )
    assert answer.body["reason"] == "Invalid"


async def test_a_denial_without_a_code_is_400(api, hooks):
    hooks.server.responds["hook"] = denied("no")
    await hooks.register("validating", hooks.hook())
    assert (await api.post(api.path("pods"), a_pod("p"))).status == 400


async def test_a_denial_without_a_word(api, hooks):
    hooks.server.responds["hook"] = {"allowed": False}
    await hooks.register("validating", hooks.hook())
    answer = await api.post(api.path("pods"), a_pod("p"))
    assert answer.message.endswith("denied the request without explanation")


async def test_warnings_come_with_the_answer(api, hooks):
    hooks.server.responds["hook"] = {"allowed": True, "warnings": ["mind the gap"]}
    await hooks.register("validating", hooks.hook())
    created = await api.pod("p")
    assert created.headers["Warning"] == '299 - "mind the gap"'


async def test_a_validating_webhook_sees_what_the_mutating_ones_made(api, hooks):
    hooks.server.responds |= {"m": annotated("by", "m"), "v": ALLOWED}
    await hooks.register("mutating", hooks.hook("m"))
    await hooks.register("validating", hooks.hook("v"))
    await api.pod("p")
    [request] = hooks.server.requests("v")
    assert request["object"]["metadata"]["annotations"] == {"by": "m"}


async def test_mutating_webhooks_follow_one_another(api, hooks):
    hooks.server.responds |= {"a": annotated("a", "1"), "b": annotated("b", "1")}
    await hooks.register("mutating", hooks.hook("a"), hooks.hook("b"))
    created = await api.pod("p")
    assert created.meta["annotations"] == {"a": "1", "b": "1"}
    [second] = hooks.server.requests("b")
    assert second["object"]["metadata"]["annotations"] == {"a": "1"}


@pytest.mark.parametrize(("policy", "calls"), [("IfNeeded", 2), ("Never", 1)])
async def test_one_that_asks_for_it_is_called_again_after_a_change(api, hooks, policy, calls):
    hooks.server.responds |= {"a": annotated("a", "1"), "b": annotated("b", "1")}
    first = hooks.hook("a", reinvocationPolicy=policy)
    await hooks.register("mutating", first, hooks.hook("b"))
    await api.pod("p")
    assert len(hooks.server.requests("a")) == calls
    assert len(hooks.server.requests("b")) == 1


async def test_nothing_changed_means_nobody_is_called_again(api, hooks):
    hooks.server.responds |= {"a": annotated("a", "1"), "b": ALLOWED}
    first = hooks.hook("a", reinvocationPolicy="IfNeeded")
    await hooks.register("mutating", first, hooks.hook("b"))
    await api.pod("p")
    assert len(hooks.server.requests("a")) == 1


async def test_a_patched_object_is_checked(api, hooks):
    hooks.server.responds["hook"] = patched(
        {"op": "replace", "path": "/spec/restartPolicy", "value": "Often"}
    )
    await hooks.register("mutating", hooks.hook())
    assert (await api.post(api.path("pods"), a_pod("p"))).refusal == (422, "Invalid")


async def test_what_a_patch_adds_gets_its_defaults(api, hooks):
    container = {"name": "x", "image": "b:1", "resources": {"limits": {"a.b/c": "3000"}}}
    hooks.server.responds["hook"] = patched(
        {"op": "add", "path": "/spec/containers/-", "value": container}
    )
    await hooks.register("mutating", hooks.hook())
    added = (await api.pod("p")).body["spec"]["containers"][1]
    assert added["resources"]["requests"] == {"a.b/c": "3k"}
    assert added["terminationMessagePath"] == "/dev/termination-log"


UNREACHABLE = {"url": "https://127.0.0.1:1/hook"}


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
async def test_the_failure_policy_decides_where_nobody_answers(api, hooks, policy, status):
    hooks.server.responds |= {"v": ALLOWED, "gone": ALLOWED}
    config = {**UNREACHABLE, "caBundle": hooks.server.authority}
    gone = hooks.hook(
        "gone", failurePolicy=policy, clientConfig=config, rules=[MAPS | {"operations": ["UPDATE"]}]
    )
    await hooks.register("validating", hooks.hook("v", rules=[MAPS]), gone)
    await api.config_map("cm")
    answer = await api.patch(api.path("configmaps", "cm"), {"data": {"a": "b"}})
    assert answer.status == (200 if status == 201 else 500)
    if status == 500:
        assert answer.refusal == (500, "InternalError")
        assert 'failed calling webhook "gone.test.hami.io"' in answer.message


@pytest.mark.parametrize(
    "respond",
    [
        pytest.param(b"not json", id="no JSON"),
        pytest.param({"allowed": True, "uid": "another"}, id="another request's answer"),
        pytest.param(patched({"op": "remove", "path": "/none"}), id="a patch that does not apply"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_a_failure(api, hooks, respond):
    hooks.server.responds["hook"] = respond
    await hooks.register("mutating", hooks.hook())
    assert (await api.post(api.path("pods"), a_pod("p"))).refusal == (500, "InternalError")


async def test_a_webhook_has_its_time(api, hooks):
    hooks.server.responds["hook"] = ALLOWED
    await hooks.register("validating", hooks.hook(timeoutSeconds=1))

    async def slow() -> dict[str, Any]:
        await asyncio.sleep(5)
        return ALLOWED

    hooks.server.responds["hook"] = lambda request: slow()
    assert (await api.post(api.path("pods"), a_pod("p"))).status == 500


async def test_a_certificate_of_somebody_else_is_not_trusted(api, hooks, tmp_path_factory):
    other = WebhookServer(tmp_path_factory.mktemp("other"))
    hooks.server.responds |= {"v": ALLOWED, "hook": ALLOWED}
    config = {"url": f"{hooks.server.url}/hook", "caBundle": other.authority}
    strange = hooks.hook("hook", clientConfig=config, rules=[MAPS | {"operations": ["UPDATE"]}])
    await hooks.register("validating", hooks.hook("v", rules=[MAPS]), strange)
    await api.config_map("cm")
    answer = await api.patch(api.path("configmaps", "cm"), {"data": {"a": "b"}})
    assert answer.refusal == (500, "InternalError")
    assert hooks.server.requests("hook") == []


async def test_only_the_objects_that_are_selected_are_shown(api, hooks):
    hooks.server.responds["hook"] = ALLOWED
    await hooks.register("validating", hooks.hook(objectSelector={"matchLabels": {"a": "b"}}))
    await api.pod("other", metadata={"labels": {"a": "c"}})
    await api.pod("chosen", metadata={"labels": {"a": "b"}})
    assert [r["name"] for r in hooks.server.requests("hook")] == ["chosen"]


async def test_only_the_namespaces_that_are_selected_are_shown(api, hooks):
    hooks.server.responds |= {"here": ALLOWED, "there": ALLOWED}
    elsewhere = {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}
    there = hooks.hook(
        "there", namespaceSelector=elsewhere, rules=[PODS | {"operations": ["CREATE"]}]
    )
    there["rules"] = [{**PODS, "resources": ["pods/*", "pods"]}]
    await hooks.register("validating", hooks.hook("here"), name="a")
    path = f"{ROOT}/validatingwebhookconfigurations"
    name = f"{api.namespace}-there"
    await api.post(path, {"metadata": {"name": name}, "webhooks": [there]})
    await api.pod("p")
    await api.delete(f"{path}/{name}")
    assert len(hooks.server.requests("here")) == 1
    assert hooks.server.requests("there") == []


async def test_updates_and_deletions_show_what_there_was(api, hooks):
    hooks.server.responds["hook"] = ALLOWED
    rule = {**MAPS, "operations": ["CREATE", "UPDATE", "DELETE"]}
    await hooks.register("validating", hooks.hook(rules=[rule]))
    await api.config_map("cm")
    await api.patch(api.path("configmaps", "cm"), {"data": {"a": "b"}})
    await api.delete(api.path("configmaps", "cm"))
    create, update, delete = hooks.server.requests("hook")
    assert [r["operation"] for r in (create, update, delete)] == ["CREATE", "UPDATE", "DELETE"]
    assert update["object"]["data"] == {"a": "b"}
    assert "data" not in update["oldObject"]
    assert delete["object"] is None
    assert delete["oldObject"]["data"] == {"a": "b"}


async def test_a_binding_is_shown_as_a_binding(api, hooks):
    hooks.server.responds["hook"] = ALLOWED
    rule = {**PODS, "resources": ["pods", "pods/binding"]}
    await hooks.register("validating", hooks.hook(rules=[rule]))
    await api.pod("p")
    await api.post(api.path("pods", "p", "binding"), a_binding("p", annotations={"a": "b"}))
    _, request = hooks.server.requests("hook")
    assert request["subResource"] == "binding"
    assert request["kind"]["kind"] == "Binding"
    assert request["object"]["target"]["name"] == "n1"
    assert request["object"]["metadata"]["annotations"] == {"a": "b"}


async def test_a_rule_without_a_subresource_does_not_mean_it(api, hooks):
    hooks.server.responds["hook"] = ALLOWED
    rule = {**PODS, "operations": ["CREATE", "UPDATE"]}
    await hooks.register("validating", hooks.hook(rules=[rule]))
    await api.pod("p")
    await api.bound("p")
    await api.set_status("p", phase="Running")
    assert [r["operation"] for r in hooks.server.requests("hook")] == ["CREATE"]


async def test_a_dry_run_says_so(api, hooks):
    hooks.server.responds["hook"] = annotated("by", "hook")
    await hooks.register("mutating", hooks.hook())
    created = await api.created("pods", a_pod("p"), dryRun="All")
    assert created.meta["annotations"] == {"by": "hook"}
    [request] = hooks.server.requests("hook")
    assert request["dryRun"] is True


async def test_two_that_write_at_once_both_get_through_a_webhook(api, hooks):
    hooks.server.responds["hook"] = annotated("by", "hook")
    rule = {**MAPS, "operations": ["CREATE", "UPDATE"]}
    await hooks.register("mutating", hooks.hook(rules=[rule]))
    await api.config_map("cm")
    path = api.path("configmaps", "cm")
    answers = await asyncio.gather(*(api.patch(path, {"data": {f"k{i}": "1"}}) for i in range(5)))
    assert [answer.status for answer in answers] == [200] * 5
    assert sorted((await api.get(path)).body["data"]) == [f"k{i}" for i in range(5)]


async def test_a_configuration_gets_its_defaults(api, hooks):
    hooks.server.responds["hook"] = ALLOWED
    hook = hooks.hook()
    del hook["timeoutSeconds"]
    await hooks.register("mutating", hook)
    path = f"{ROOT}/mutatingwebhookconfigurations/{api.namespace}-mutating"
    found = (await api.get(path)).body["webhooks"][0]
    expected = {
        "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10,
        "objectSelector": {}, "reinvocationPolicy": "Never",
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected
    assert found["rules"][0]["scope"] == "*"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"name": "short"}, "webhooks[0].name", id="a name without a domain"),
        pytest.param({"sideEffects": None}, "webhooks[0].sideEffects", id="no word on side effects"),
        pytest.param({"admissionReviewVersions": None}, "webhooks[0].admissionReviewVersions", id="no version"),
        pytest.param({"clientConfig": {}}, "webhooks[0].clientConfig", id="no address"),
        pytest.param({"clientConfig": {"url": "http://a/b"}}, "webhooks[0].clientConfig.url", id="no HTTPS"),
        pytest.param({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds", id="too patient"),
    ],
)  # fmt: skip
async def test_a_configuration_is_checked(api, hooks, change, field):
    path = f"{ROOT}/validatingwebhookconfigurations"
    body = {"metadata": {"name": f"{api.namespace}-bad"}, "webhooks": [hooks.hook() | change]}
    answer = await api.post(path, body)
    assert answer.refusal == (422, "Invalid")
    assert field in answer.fields()
