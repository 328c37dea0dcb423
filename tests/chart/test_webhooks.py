"""Which pods the API server asks about, and that no label is a way past."""

from __future__ import annotations

import pytest

from ..kubernetes.chart import rendered
from .objects import all_of


def hooks(**pods):
    (found,) = all_of(rendered({"webhooks": {"pods": pods}}), "MutatingWebhookConfiguration")
    return found["webhooks"]


def keys_of(hook):
    rules = hook["namespaceSelector"]["matchExpressions"]
    return [rule["key"] for rule in (*rules, *hook.get("objectSelector", {}).get("matchExpressions", ()))]  # fmt: skip


def test_namespaces_are_left_out_by_name_alone():
    for hook in hooks():
        assert keys_of(hook) == ["kubernetes.io/metadata.name"]
        assert "objectSelector" not in hook


def test_hami_s_label_is_a_way_past_where_it_shall_be():
    pods, ephemeral = hooks(ignoreLabel=True)
    assert keys_of(pods) == ["kubernetes.io/metadata.name", "hami.io/webhook", "hami.io/webhook"]
    assert keys_of(ephemeral) == ["kubernetes.io/metadata.name", "hami.io/webhook"]


def test_others_are_asked_about_on_demand_and_may_pass_meanwhile():
    asks, ephemeral, others = hooks(others={"enabled": True})
    assert [h["failurePolicy"] for h in (asks, ephemeral, others)] == ["Fail", "Fail", "Ignore"]
    (condition,), (opposite,) = asks["matchConditions"], others["matchConditions"]
    assert opposite["expression"] == f"!({condition['expression']})"


@pytest.mark.parametrize(
    ("vendors", "there"),
    [({}, "nvidia.com/gpu"), ({"MOCK": {"enabled": True}}, "mock.hami.io/device")],
)
def test_the_condition_names_the_resources_of_enabled_vendors(vendors, there):
    (hook, _) = all_of(rendered({"vendors": vendors}), "MutatingWebhookConfiguration")[0]["webhooks"]  # fmt: skip
    expression = hook["matchConditions"][0]["expression"]
    assert f'"{there}"' in expression
    assert '"hygon.com/dcunum"' not in expression
    assert '"hami.io/allocation-signature"' in expression
