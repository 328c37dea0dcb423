"""The registry: what is installed is loaded, or refused in one sentence that names the remedy."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from types import ModuleType
from typing import Any

import pytest

from hami.domain.errors import ConfigError, PluginRejected
from hami.domain.objects import Container, Metadata, Node, Pod, Resources
from hami.domain.profile import NodeAnnotations, PodAnnotations, ResourceNames
from hami.domain.requests import DeviceRequest
from hami.hookspecs import HAMI_API, hookimpl
from hami.plugins import Vendors, installed_plugins, load_vendors

from .builders import a_plugin, a_profile, answering


@dataclass(frozen=True)
class Distribution:
    name: str
    version: str = "1.2.3"


@dataclass(frozen=True)
class Point:
    """An entry point as importlib.metadata shows it; loading gives the object, or raises it."""

    name: str
    found: Any
    dist: Distribution | None
    value: str = "somewhere:plugin"

    def load(self) -> Any:
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found


Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch) -> Install:
    """``install(acme=plugin)``: what is registered, each by ``hami-<name>``."""

    def install(*points: Point, **plugins: Any) -> None:
        named = [
            Point(name, found, Distribution(f"hami-{name}")) for name, found in plugins.items()
        ]
        registered = [*points, *named]

        def entry_points(*, group: str) -> list[Point]:
            return registered if group == "hami.plugins" else []

        monkeypatch.setattr(metadata, "entry_points", entry_points)

    return install


def rejection() -> str:
    with pytest.raises(PluginRejected) as caught:
        load_vendors()
    return str(caught.value)


# What is loaded.


def test_vendors_come_by_key_with_where_they_came_from(install):
    install(zeta=a_plugin(vendors=("BOLT",)), acme=a_plugin(vendors=("ZINC", "ACME")))
    vendors = load_vendors()
    assert [(key, v.distribution, v.version) for key, v in vendors.items()] == [
        ("ACME", "hami-acme", "1.2.3"),
        ("BOLT", "hami-zeta", "1.2.3"),
        ("ZINC", "hami-acme", "1.2.3"),
    ]
    assert [profile.key for profile in vendors.profiles] == list(vendors)
    assert len(vendors) == 3
    assert "TIN" not in vendors


def test_nothing_installed_is_an_empty_registry(install):
    install()
    assert dict(load_vendors()) == {}


def test_a_plugin_may_carry_no_vendor_under_this_configuration(install):
    install(acme=a_plugin(vendors=()), bolt=a_plugin(vendors=("BOLT",)))
    assert list(load_vendors()) == ["BOLT"]


def test_an_entry_point_without_a_distribution_is_known_by_its_value(install):
    install(Point("acme", a_plugin(), None, value="acme_module:plugin"))
    (plugin,) = installed_plugins()
    assert (plugin.distribution, plugin.version) == ("acme_module:plugin", "")


def test_the_plugins_of_this_repository_load_together():
    vendors = load_vendors()
    assert {"NVIDIA", "DCU", "HCU"} <= set(vendors)
    assert all(vendor.profile.key == key for key, vendor in vendors.items())


def test_every_plugin_gets_the_whole_configuration():
    seen = []

    class Asking:
        HAMI_API = HAMI_API

        @hookimpl
        def hami_vendors(self, config):
            seen.append(config)
            return ()

    Vendors.of({"acme": Asking()}, {"acme": {"a": 1}, "bolt": {}})
    assert seen == [{"acme": {"a": 1}, "bolt": {}}]


# What is refused.

BOLTS_NAMES = {
    name: getattr(a_profile("BOLT"), name)
    for name in ("resources", "node_annotations", "pod_annotations")
}


def plain(name: str) -> dict[str, Any]:
    """A function that nobody marked as a hook."""
    return {name: staticmethod(lambda profile: None)}


@hookimpl
def hami_fit(profile, colour):
    """Takes an argument that no hook has."""


@pytest.mark.parametrize(
    ("plugin", "sentence"),
    [
        pytest.param(
            ImportError("No module named 'acme'"),
            "plugin 'acme' of hami-acme (somewhere:plugin) does not import: "
            "ImportError: No module named 'acme'; repair or uninstall hami-acme",
            id="an import error",
        ),
        pytest.param(
            SystemExit(3),
            "plugin 'acme' of hami-acme (somewhere:plugin) does not import: "
            "SystemExit: 3; repair or uninstall hami-acme",
            id="a plugin that ends the program when it is imported",
        ),
        pytest.param(
            SystemExit(),
            "plugin 'acme' of hami-acme (somewhere:plugin) does not import: "
            "SystemExit; repair or uninstall hami-acme",
            id="an error without a text",
        ),
        pytest.param(
            SyntaxError("invalid syntax\n  x = \n"),
            "plugin 'acme' of hami-acme (somewhere:plugin) does not import: "
            "SyntaxError: invalid syntax x =; repair or uninstall hami-acme",
            id="an error of several lines becomes one",
        ),
        pytest.param(
            AttributeError("module 'acme' has no attribute 'plugin'"),
            "plugin 'acme' of hami-acme (somewhere:plugin) does not import: "
            "AttributeError: module 'acme' has no attribute 'plugin'; repair or uninstall hami-acme",
            id="an entry point that names nothing",
        ),
        pytest.param(
            a_plugin(api=2),
            "plugin 'acme' of hami-acme speaks API 2, this hami speaks API 1; "
            "install a version of hami-acme that fits",
            id="another API",
        ),
        pytest.param(
            a_plugin(api=None),
            "plugin 'acme' of hami-acme: the object of class Plugin has no HAMI_API; its entry "
            "point must name an object that says HAMI_API = 1: repair or uninstall hami-acme",
            id="no API",
        ),
        pytest.param(
            ModuleType("acme"),
            "plugin 'acme' of hami-acme: the module acme has no HAMI_API; its entry point must "
            "name an object that says HAMI_API = 1: repair or uninstall hami-acme",
            id="an entry point that names a module and no object in it",
        ),
        pytest.param(
            a_plugin(api="1"),
            "plugin 'acme' of hami-acme: the object of class Plugin says HAMI_API = '1'; its entry "
            "point must name an object that says HAMI_API = 1: repair or uninstall hami-acme",
            id="an API that is a text",
        ),
        pytest.param(
            a_plugin(api=True),
            "plugin 'acme' of hami-acme: the object of class Plugin says HAMI_API = True; its "
            "entry point must name an object that says HAMI_API = 1: repair or uninstall hami-acme",
            id="an API that is a yes",
        ),
        pytest.param(
            a_plugin(answering("hami_fitt", None)),
            "plugin 'acme' of hami-acme does not follow the contract: "
            "unknown hook 'hami_fitt' in plugin *; repair or uninstall hami-acme",
            id="a hook that does not exist",
        ),
        pytest.param(
            a_plugin(**plain("hami_fitt")),
            "plugin 'acme' of hami-acme: hami_fitt is no hook of API 1; "
            "repair or uninstall hami-acme",
            id="a hook that does not exist and is not marked",
        ),
        pytest.param(
            a_plugin(**plain("hami_fit")),
            "plugin 'acme' of hami-acme: hami_fit is not marked with @hookimpl; "
            "repair or uninstall hami-acme",
            id="a hook that is not marked",
        ),
        pytest.param(
            a_plugin(hami_fit),
            "plugin 'acme' of hami-acme does not follow the contract: Plugin 'acme' for hook "
            "'hami_fit'*'colour'*; repair or uninstall hami-acme",
            id="an argument that no hook has",
        ),
        pytest.param(
            a_plugin(vendors=RuntimeError("boom")),
            "plugin 'acme' of hami-acme failed to name its vendors: RuntimeError: boom; "
            "repair or uninstall hami-acme",
            id="its vendors cannot be had",
        ),
        pytest.param(
            a_plugin(vendors=SystemExit(0)),
            "plugin 'acme' of hami-acme failed to name its vendors: SystemExit: 0; "
            "repair or uninstall hami-acme",
            id="naming its vendors ends the program",
        ),
        pytest.param(
            a_plugin(vendors=7),
            "plugin 'acme' of hami-acme failed to name its vendors: "
            "TypeError: 'int' object is not iterable; repair or uninstall hami-acme",
            id="its vendors are no sequence",
        ),
        pytest.param(
            a_plugin(vendors=(7,)),
            "plugin 'acme' of hami-acme returned 7 as a vendor; "
            "hami_vendors returns VendorProfile values",
            id="its vendors are no profiles",
        ),
        pytest.param(
            a_plugin(vendors=("ACME", "ACME")),
            "hami-acme carries the vendor 'ACME' twice; repair it",
            id="one key twice in one plugin",
        ),
        pytest.param(
            a_plugin(vendors=(a_profile("ACME"), a_profile("Acme", **BOLTS_NAMES))),
            "vendor ACME of hami-acme and vendor Acme of hami-acme differ by case alone, and paths "
            "and CDI names do not; rename one of them in its plugin, or uninstall one",
            id="one key in lower case twice in one plugin",
        ),
        pytest.param(
            a_plugin(vendors=(a_profile(memory_factor=0, max_count=0),)),
            "plugin 'acme' of hami-acme: vendor 'ACME': memory_factor is 0, not at least 1; max_count "
            "is 0, not at least 1; correct it in the device configuration, or repair or uninstall "
            "hami-acme",
            id="a profile that cannot be",
        ),
        pytest.param(
            a_plugin(vendors=(replace(a_profile(), key=["ACME"]),)),
            "plugin 'acme' of hami-acme: vendor ['ACME']: key is ['ACME'], not a text; correct it "
            "in the device configuration, or repair or uninstall hami-acme",
            id="a key that is no key",
        ),
        pytest.param(
            a_plugin(answering("hami_fit", None), vendors=None),
            "plugin 'acme' of hami-acme implements hami_fit but carries no vendor; "
            "add hami_vendors or mark it @hookimpl(wrapper=True)",
            id="an answer that belongs to no vendor",
        ),
    ],
)
def test_a_plugin_that_cannot_be_used_is_refused(install, plugin, sentence):
    install(acme=plugin)
    found = rejection()
    assert "\n" not in found
    position = 0
    for part in sentence.split("*"):
        assert part in found[position:], found
        position = found.index(part, position) + len(part)
    assert found.startswith(sentence.split("*")[0])
    assert found.endswith(sentence.split("*")[-1])


ACMES_RESOURCES = a_profile().resources
ACMES_ALLOCATED = a_profile().pod_annotations.allocated


@pytest.mark.parametrize(
    ("bolt", "sentence"),
    [
        pytest.param(
            a_profile("ACME"),
            "hami-acme and hami-bolt both carry the vendor 'ACME'; uninstall one of them",
            id="one key",
        ),
        pytest.param(
            a_profile("BOLT", resources=ACMES_RESOURCES),
            "vendor ACME of hami-acme and vendor BOLT of hami-bolt both claim the resource "
            "'acme.com/gpu'; rename it in the configuration of one, or uninstall one of them",
            id="one resource name",
        ),
        pytest.param(
            a_profile("BOLT", resources=ResourceNames(count="b/b", memory=ACMES_RESOURCES.count)),
            "vendor ACME of hami-acme and vendor BOLT of hami-bolt both claim the resource "
            "'acme.com/gpu'; rename it in the configuration of one, or uninstall one of them",
            id="the count of one is the memory of the other",
        ),
        pytest.param(
            a_profile("BOLT", resources=ResourceNames(count="b/b", priority="acme.com/pri")),
            "vendor ACME of hami-acme and vendor BOLT of hami-bolt both claim the resource "
            "'acme.com/pri'; rename it in the configuration of one, or uninstall one of them",
            id="a resource that no quota counts",
        ),
        pytest.param(
            a_profile("BOLT", pod_annotations=PodAnnotations(allocated=ACMES_ALLOCATED)),
            "vendor ACME of hami-acme and vendor BOLT of hami-bolt both claim the annotation "
            "'acme.com/allocated'; rename it in the configuration of one, or uninstall one of them",
            id="one pod annotation",
        ),
        pytest.param(
            a_profile(
                "BOLT",
                pod_annotations=PodAnnotations(to_allocate=ACMES_ALLOCATED, allocated="b"),
            ),
            "vendor ACME of hami-acme and vendor BOLT of hami-bolt both claim the annotation "
            "'acme.com/allocated'; rename it in the configuration of one, or uninstall one of them",
            id="the plan of one is the record of the other",
        ),
        pytest.param(
            a_profile(
                "BOLT",
                pod_annotations=PodAnnotations(allocated="b", also_written=(ACMES_ALLOCATED,)),
            ),
            "vendor ACME of hami-acme and vendor BOLT of hami-bolt both claim the annotation "
            "'acme.com/allocated'; rename it in the configuration of one, or uninstall one of them",
            id="what one writes besides is the record of the other",
        ),
        pytest.param(
            a_profile("BOLT", node_annotations=NodeAnnotations(register="acme.com/register")),
            "vendor ACME of hami-acme and vendor BOLT of hami-bolt both claim the annotation "
            "'acme.com/register'; rename it in the configuration of one, or uninstall one of them",
            id="one node annotation",
        ),
        pytest.param(
            a_profile(
                "BOLT",
                node_annotations=NodeAnnotations(
                    register="bolt.com/register", handshake="acme.com/register"
                ),
            ),
            "vendor ACME of hami-acme and vendor BOLT of hami-bolt both claim the annotation "
            "'acme.com/register'; rename it in the configuration of one, or uninstall one of them",
            id="the handshake of one is the register of the other",
        ),
        pytest.param(
            a_profile("acme", **BOLTS_NAMES),
            "vendor ACME of hami-acme and vendor acme of hami-bolt differ by case alone, and paths "
            "and CDI names do not; rename one of them in its plugin, or uninstall one",
            id="one key in lower case",
        ),
    ],
)
def test_two_plugins_that_clash_are_refused(install, bolt, sentence):
    install(acme=a_plugin(), bolt=a_plugin(vendors=(bolt,)))
    assert rejection() == sentence


def test_a_name_that_the_configuration_spoils_is_refused():
    with pytest.raises(PluginRejected) as caught:
        load_vendors({"hygon": {"resourceCountName": "a b c"}})
    assert str(caught.value) == (
        "plugin 'hygon' of hami-hygon: vendor 'DCU': resources.count is 'a b c': an extended "
        "resource has a domain, as in example.com/device; correct it in the device configuration, "
        "or repair or uninstall hami-hygon"
    )


def test_two_plugins_of_one_name_are_refused(install):
    install(
        Point("acme", a_plugin(), Distribution("acme-fork")),
        Point("acme", a_plugin(vendors=("BOLT",)), Distribution("hami-acme"), value="other:plugin"),
    )
    found = rejection()
    assert found.startswith("two plugins are named 'acme': ")
    assert found.endswith("; uninstall one of them")
    assert "hami-acme" in found
    assert "acme-fork" in found


def test_one_object_under_two_names_is_refused(install):
    plugin = a_plugin()
    install(acme=plugin, bolt=plugin)
    found = rejection()
    assert found.startswith("plugin 'bolt' of hami-bolt does not follow the contract: ")
    assert found.endswith("; repair or uninstall hami-bolt")


def test_a_section_that_makes_no_sense_keeps_its_own_message(install):
    install(acme=a_plugin(vendors=ConfigError("section acme: slots: -1 is negative; use 1")))
    with pytest.raises(ConfigError, match=r"section acme: slots: -1 is negative; use 1"):
        load_vendors()


def test_the_cause_of_an_import_error_is_kept_for_the_log(install):
    error = ImportError("gone")
    install(acme=error)
    with pytest.raises(PluginRejected) as caught:
        load_vendors()
    assert caught.value.__cause__ is error


# What the registry knows.


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        pytest.param("acme.com/gpu", True, id="fix: the count"),
        pytest.param("acme.com/mem", True, id="memory"),
        pytest.param("acme.com/cores", True, id="cores"),
        pytest.param("bolt.com/mem", True, id="another vendor's memory"),
        pytest.param("acme.com/pri", False, id="no quota counts priorities"),
        pytest.param("tin.com/gpu", False, id="a vendor that is not there"),
        pytest.param("cpu", False, id="a resource of Kubernetes"),
        pytest.param("", False, id="no name"),
    ],
)
def test_manages(resource, expected):
    vendors = Vendors.of({"acme": a_plugin(vendors=("ACME", "BOLT"))})
    assert vendors.manages(resource) is expected


def test_no_name_is_managed_for_a_vendor_without_memory_and_cores():
    profile = a_profile(resources=ResourceNames(count="acme.com/gpu"))
    vendors = Vendors.of({"acme": a_plugin(vendors=(profile,))})
    assert not vendors.manages("")


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
