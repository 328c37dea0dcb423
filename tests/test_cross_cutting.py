"""Plugins beside each other: wrappers around every call, registration order, made-up nodes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hami.domain.errors import ConfigError, PluginRejected
from hami.domain.kubernetes.objects import Container, Metadata, Node, Pod, Resources
from hami.domain.requests import DeviceRequest
from hami.hookspecs import HAMI_API, hookimpl
from hami.vendors.registry import Vendors, load_vendors

from .builders import a_plugin, answering
from .installed import rejection

# Cross-cutting plugins.

POD = Pod(metadata=Metadata(name="p", uid="u"))
NODE = Node(metadata=Metadata(name="n1"))
ASKING = Container(name="c", resources=Resources(limits={"acme.com/gpu": "2", "bolt.com/gpu": "3"}))


class Tracing:
    """Wraps one hook of every vendor; sees what goes in and what comes out."""

    HAMI_API = HAMI_API

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    @hookimpl(wrapper=True)
    def hami_parse_request(self, profile, container):
        answer = yield
        self.seen.append((profile.key, answer.count))
        return answer


class Doubling:
    """Changes what the wrapped vendors answer."""

    HAMI_API = HAMI_API

    @hookimpl(wrapper=True)
    def hami_parse_request(self):
        request = yield
        return DeviceRequest(vendor=request.vendor, count=request.count * 2, memory_percent=100)


def four(vendor: str) -> Any:
    return answering(
        "hami_parse_request", DeviceRequest(vendor=vendor, count=4, memory_percent=100)
    )


def test_a_wrapper_encloses_own_hooks_and_defaults_of_every_vendor():
    tracing = Tracing()
    plugins = {
        "acme": a_plugin(four("ACME"), vendors=("ACME",)),
        "bolt": a_plugin(vendors=("BOLT",)),
        "trace": tracing,
    }
    vendors = Vendors.of(plugins)
    assert list(vendors) == ["ACME", "BOLT"]
    assert [vendors[key].parse_request(ASKING, POD).count for key in vendors] == [4, 3]
    assert tracing.seen == [("ACME", 4), ("BOLT", 3)]


def test_a_wrapper_may_change_the_answer():
    vendors = Vendors.of({"acme": a_plugin(), "double": Doubling()})
    assert vendors["ACME"].parse_request(ASKING, POD).count == 4


def test_a_vendors_own_wrapper_encloses_its_own_vendors_alone():
    class Acme(Doubling):
        hami_vendors = staticmethod(a_plugin().hami_vendors)

    vendors = Vendors.of({"acme": Acme(), "bolt": a_plugin(vendors=("BOLT",))})
    counts = {key: vendors[key].parse_request(ASKING, POD).count for key in vendors}
    assert counts == {"ACME": 4, "BOLT": 3}


def test_one_plugins_hook_answers_for_each_of_its_vendors_and_for_no_other():
    def hami_parse_request(profile):
        return DeviceRequest(vendor=profile.key, count=9, memory_percent=100)

    plugins = {
        "acme": a_plugin(hookimpl(hami_parse_request), vendors=("ACME", "ZINC")),
        "bolt": a_plugin(vendors=("BOLT",)),
    }
    vendors = Vendors.of(plugins)
    counts = {key: vendors[key].parse_request(ASKING, POD).count for key in vendors}
    assert counts == {"ACME": 9, "BOLT": 3, "ZINC": 9}


def test_none_is_an_answer_and_does_not_fall_through_to_the_default():
    vendors = Vendors.of({"acme": a_plugin(answering("hami_parse_request", None))})
    assert vendors["ACME"].parse_request(ASKING, POD) is None


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_registration_does_not_matter(install, seed):
    def plugins() -> dict[str, object]:
        made = {
            "acme": a_plugin(four("ACME"), vendors=("ACME",)),
            "bolt": a_plugin(vendors=("BOLT",)),
            "double": Doubling(),
            "trace": Tracing(),
        }
        names = list(made)
        random.Random(seed).shuffle(names)
        return {name: made[name] for name in names}

    install(**plugins())
    for vendors in (load_vendors(), Vendors.of(plugins())):
        counts = [(key, vendors[key].parse_request(ASKING, POD).count) for key in vendors]
        assert counts == [("ACME", 8), ("BOLT", 6)]


def test_the_order_of_registration_does_not_choose_who_is_refused(install):
    for names in (("acme", "bolt"), ("bolt", "acme")):
        install(**{name: a_plugin() for name in names})
        assert rejection().startswith("hami-acme and hami-bolt both carry the vendor 'ACME'")


# Simulated nodes.


def simulating(**annotations: str) -> object:
    return a_plugin(answering("hami_simulated_annotations", annotations), vendors=None)


def test_simulated_annotations_of_all_plugins_come_together_and_the_nodes_own_win():
    node = Node(metadata=Metadata(name="n1", annotations={"b": "own"}))
    vendors = Vendors.of({"one": simulating(a="1", b="1"), "two": simulating(c="2")})
    assert vendors.simulated_annotations(node, {}) == {"a": "1", "c": "2"}


def test_of_two_simulating_plugins_the_later_name_wins_in_any_order():
    one, two = simulating(a="1"), simulating(a="2")
    for plugins in ({"one": one, "two": two}, {"two": two, "one": one}):
        assert Vendors.of(plugins).simulated_annotations(NODE, {}) == {"a": "2"}


def test_a_cross_cutting_wrapper_encloses_simulation_too():
    @hookimpl(wrapper=True)
    def hami_simulated_annotations():
        answers = yield
        return [{**answer, "traced": "yes"} for answer in answers]

    tracing = a_plugin(hami_simulated_annotations, vendors=None)
    vendors = Vendors.of({"mock": simulating(a="1"), "trace": tracing})
    assert vendors.simulated_annotations(NODE, {}) == {"a": "1", "traced": "yes"}


def test_a_simulated_node_and_the_configuration_reach_the_plugin():
    class Echo:
        HAMI_API = HAMI_API

        @hookimpl
        def hami_simulated_annotations(self, config, node):
            return {"told": f"{node.name} {config['speed']}"}

    vendors = Vendors.of({"echo": Echo()})
    assert vendors.simulated_annotations(NODE, {"speed": 3}) == {"told": "n1 3"}


def test_a_config_error_of_a_simulating_plugin_passes():
    error = ConfigError("node n1: no profile h999")
    plugin = a_plugin(answering("hami_simulated_annotations", error), vendors=None)
    with pytest.raises(ConfigError, match="node n1: no profile h999"):
        Vendors.of({"mock": plugin}).simulated_annotations(NODE, {})


@pytest.mark.parametrize("answer", [RuntimeError("boom"), SystemExit(0), 7, None])
def test_a_simulating_plugin_that_fails_is_named(answer):
    plugin = a_plugin(answering("hami_simulated_annotations", answer), vendors=None)
    with pytest.raises(PluginRejected, match=r"plugin 'mock' failed to simulate node n1: "):
        Vendors.of({"mock": plugin}).simulated_annotations(NODE, {})
