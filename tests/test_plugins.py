"""The registry: what is installed is loaded, or refused in one sentence that names the remedy."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from hami.domain.errors import ConfigError, PluginRejected
from hami.domain.profile import NodeAnnotations, PodAnnotations, ResourceNames
from hami.hookspecs import HAMI_API, hookimpl
from hami.vendors.registry import Vendors, installed_plugins, load_vendors

from .builders import a_plugin, a_profile, answering
from .installed import Distribution, Point, rejection

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


def test_a_plugin_may_have_any_name(install):
    install(defaults=a_plugin())
    assert list(load_vendors()) == ["ACME"]


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
            "plugin 'acme' of hami-acme: *.py:*: hami_fitt is no hook of API 1 (did you mean hami_fit?); "
            "repair or uninstall hami-acme",
            id="a hook that does not exist",
        ),
        pytest.param(
            a_plugin(**plain("hami_zzz")),
            "plugin 'acme' of hami-acme: *.py:*: hami_zzz is no hook of API 1; "
            "repair or uninstall hami-acme",
            id="a hook that does not exist and is not marked",
        ),
        pytest.param(
            a_plugin(**plain("hami_fit")),
            "plugin 'acme' of hami-acme: *.py:*: hami_fit is not marked with @hookimpl; "
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


# A plugin that cannot be used stops only who needs it.


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(ImportError("gone"), id="it does not import"),
        pytest.param(a_plugin(api=2), id="another API"),
        pytest.param(a_plugin(answering("hami_fitt", None)), id="a hook that does not exist"),
        pytest.param(a_plugin(hami_fit), id="an argument that no hook has"),
    ],
)
def test_the_others_are_loaded_without_it(install, broken):
    install(acme=broken, bolt=a_plugin(vendors=("BOLT",)))
    problems: list[PluginRejected] = []
    assert list(load_vendors(on_broken=problems.append)) == ["BOLT"]
    (problem,) = problems
    assert str(problem).startswith("plugin 'acme' of hami-acme")


def test_one_object_under_two_names_is_loaded_under_the_first(install):
    plugin = a_plugin()
    install(acme=plugin, bolt=plugin)
    problems: list[PluginRejected] = []
    (vendor,) = load_vendors(on_broken=problems.append).values()
    (problem,) = problems
    assert vendor.distribution == "hami-acme"
    assert str(problem).startswith("plugin 'bolt' of hami-bolt does not follow the contract: ")


def test_two_plugins_of_one_name_stop_everybody(install):
    points = [Point("acme", ImportError("gone"), Distribution(name)) for name in ("one", "two")]
    install(*points)
    with pytest.raises(PluginRejected, match="two plugins are named 'acme': one and two"):
        load_vendors(on_broken=lambda _: None)


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
