"""values.schema.json: every key is described, and one that is not is refused, however deep."""

from __future__ import annotations

import json

import pytest

from docs import chart_settings

from ..kubernetes.chart import CHART, EXAMPLES, example, refusal, rendered, values
from .objects import container, flags, one

SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def resolved(schema):
    reference = schema.get("$ref", "")
    return SCHEMA["definitions"][reference.rpartition("/")[2]] if reference else schema


def closed(schema, path=()):
    """The places that take described keys alone."""
    schema = resolved(schema)
    if schema.get("additionalProperties") is False:
        yield path
    for key, inner in schema.get("properties", {}).items():
        yield from closed(inner, (*path, key))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from closed(schema["additionalProperties"], (*path, "NVIDIA"))


def described(schema, path=()):
    schema = resolved(schema)
    for key, inner in schema.get("properties", {}).items():
        yield (*path, key), inner.get("description", "")
        yield from described(inner, (*path, key))


def at(path, value):
    for key in reversed(path):
        value = {key: value}
    return value


@pytest.mark.parametrize("name", ["", *EXAMPLES])
def test_defaults_and_examples_are_valid(name):
    assert refusal(example(name) if name else {}) == ""


@pytest.mark.parametrize("path", list(closed(SCHEMA)), ids=".".join)
def test_an_unknown_key_is_refused(path):
    assert "nonsense" in refusal(at(path, {"nonsense": 1}))


def test_every_key_is_described():
    keys = dict(described(SCHEMA))
    assert [key for key, text in keys.items() if not text.endswith(".")] == []
    assert len(keys) > 100


def test_every_default_is_a_described_key():
    """Where an object takes described keys alone, its defaults are all of those, so that values.yaml
    shows every value; vendors may leave some out.
    """
    free = {"settings", "vendors", "resources"}
    places = {path for path in closed(SCHEMA) if free.isdisjoint(path)}
    missing = [
        (*path, key)
        for path in places
        if isinstance(found := _reached(values(), path), dict) and found
        for key in _reached_schema(path)["properties"].keys() - found.keys()
    ]
    assert sorted(missing) == [("global",), *sorted(_OPTIONAL)]


_OPTIONAL = {("node", "image", "registry"), ("scheduler", "image", "registry")}
"""For an image of one vendor; image.registry is for all."""


def _reached(value, path):
    for key in path:
        value = value.get(key, {})
    return value


def _reached_schema(path):
    schema = SCHEMA
    for key in path:
        schema = resolved(resolved(schema)["properties"][key])
    return resolved(schema)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(
            {"webhooks": {"pods": {"failurePolicy": "Perhaps"}}}, "failurePolicy", id="a word"
        ),
        pytest.param({"scheduler": {"replicas": 0}}, "replicas", id="none"),
        pytest.param({"scheduler": {"replicas": "2"}}, "replicas", id="a text"),
        pytest.param({"certificate": {"source": "letsencrypt"}}, "source", id="a source"),
        pytest.param({"webhooks": {"url": "http://plain"}}, "url", id="no TLS"),
        pytest.param({"node": {"paths": {"cdi": "relative"}}}, "cdi", id="a path"),
        pytest.param({"vendors": {"ACME": {"enabled": True}}}, "managedResources", id="a vendor"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, said):
    assert said in refusal(given)


# Settings of the commands.


@pytest.mark.parametrize("name", chart_settings.COMMANDS)
def test_a_command_s_settings_are_those_of_the_command(name):
    known = chart_settings.place_of(SCHEMA, name)["properties"]
    assert known == chart_settings.settings_of(name), "run make chart"


@pytest.mark.parametrize(
    ("kind", "workload", "name"),
    [("Deployment", "hami-scheduler", "scheduler"), ("DaemonSet", "hami-monitor", "monitor"),
     ("DaemonSet", "hami-device-plugin-nvidia", "device-plugin")],
)  # fmt: skip
def test_what_the_chart_says_itself_is_no_setting(kind, workload, name):
    told = flags(container(one(rendered(), kind, workload), name)).keys() - {"config"}
    assert told & set(chart_settings.settings_of(name)) == set()
    assert told <= chart_settings.OWNED[name]
