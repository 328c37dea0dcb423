"""A vendor out of a YAML text: what it may say, and what is wrong with what it must not."""

from __future__ import annotations

import pytest

from hami.domain.errors import ConfigError
from hami.domain.profile import Column, ModeRules, ResourceNames
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.vendors.registry import Vendors

SMALLEST = """
profiles:
- key: ACME
  resources: {count: acme.com/gpu}
  node_annotations: {register: acme.com/register}
  pod_annotations: {allocated: acme.com/allocated}
"""
SECTION = "config_section: acme\n" + SMALLEST


def profile_of(text: str, config=None):
    return Vendors.of({"acme": ProfileVendor(text)}, config or {})["ACME"].profile


def test_the_smallest_one_takes_the_defaults():
    profile = profile_of(SMALLEST)
    assert profile.resources == ResourceNames(count="acme.com/gpu")
    assert (profile.register_codec, profile.memory_factor, profile.default_count) == ("json", 1, 0)
    assert (profile.liveness, profile.lock, profile.type_match) == ("always", "mutex", "substring")
    assert profile.node_annotations.cordon == "hami.io/device-cordon"


def test_every_kind_of_field_can_be_said():
    text = SMALLEST + (
        "  memory_factor: 256\n"
        "  whole_device: true\n"
        "  cores_excess: refuse\n"
        "  modes:\n"
        "    mig: {prefilter: [health, cordon], several_slices_per_device: true}\n"
    )
    profile = profile_of(text)
    assert (profile.memory_factor, profile.whole_device, profile.cores_excess) == (256, True, "refuse")  # fmt: skip
    assert profile.rules("mig") == ModeRules(
        prefilter=frozenset({Column.HEALTH, Column.CORDON}), several_slices_per_device=True
    )


def test_two_texts_alike_make_equal_profiles():
    assert profile_of(SMALLEST) == profile_of(SMALLEST)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("profiles: [", ["acme.yaml", "not YAML"], id="no YAML"),
        pytest.param("", ["acme.yaml"], id="nothing"),
        pytest.param("- 1", ["acme.yaml"], id="no mapping"),
        pytest.param("{}", ["acme.yaml", "profiles", "required"], id="no profiles"),
        pytest.param("profiles: []", ["acme.yaml", "profiles", "at least 1"], id="an empty list of profiles"),
        pytest.param("profiles: [7]", ["acme.yaml", "profiles.0", "7"], id="a profile that is none"),
        pytest.param(SMALLEST + "profile: 1", ["acme.yaml", "profile", "Extra"], id="an unknown section"),
        pytest.param(SMALLEST + "  memory_faktor: 2", ["acme.yaml", "memory_faktor"], id="an unknown field"),
        pytest.param(SMALLEST + "  modes: {mig: {prefilters: []}}", ["acme.yaml", "prefilters"], id="an unknown field within"),
        pytest.param(SMALLEST + "  memory_factor: a lot", ["acme.yaml", "profiles.0.memory_factor", "'a lot'"], id="a field of another kind"),
        pytest.param(SMALLEST + "  liveness: maybe", ["acme.yaml", "liveness", "'maybe'", "handshake"], id="a word that is none of the choices"),
        pytest.param(SMALLEST.replace("  resources: {count: acme.com/gpu}\n", ""), ["acme.yaml", "profiles.0.resources", "required"], id="no resources"),
        pytest.param(SMALLEST.replace("count: acme.com/gpu", ""), ["acme.yaml", "resources.count", "required"], id="no count"),
    ],
)  # fmt: skip
def test_a_text_that_says_something_else_is_refused_by_name(text, names):
    with pytest.raises(ConfigError) as caught:
        ProfileVendor(text, "acme.yaml")
    message = str(caught.value)
    assert [name for name in names if name not in message] == [], message


@pytest.mark.parametrize(
    ("config", "resources", "factor"),
    [
        pytest.param({}, ResourceNames(count="acme.com/gpu"), 1, id="no section"),
        pytest.param({"acme": None}, ResourceNames(count="acme.com/gpu"), 1, id="an empty section"),
        pytest.param({"bolt": {"memoryFactor": 2}}, ResourceNames(count="acme.com/gpu"), 1, id="another vendor's section"),
        pytest.param({"acme": {"memoryFactor": 2}}, ResourceNames(count="acme.com/gpu"), 2, id="the factor"),
        pytest.param({"acme": {"resourceCountName": "a/b"}}, ResourceNames(count="a/b"), 1, id="the count"),
        pytest.param({"acme": {"resourceMemoryName": "a/m", "resourceCoreName": "a/c"}}, ResourceNames(count="acme.com/gpu", memory="a/m", cores="a/c"), 1, id="memory and cores"),
        pytest.param({"acme": {"overwriteEnv": True}}, ResourceNames(count="acme.com/gpu"), 1, id="HAMi's other keys are ignored"),
    ],
)  # fmt: skip
def test_the_device_configuration_overrides(config, resources, factor):
    profile = profile_of(SECTION, config)
    assert (profile.resources, profile.memory_factor) == (resources, factor)


def test_a_text_without_a_section_is_not_overridden():
    assert profile_of(SMALLEST, {"acme": {"memoryFactor": 2}}).memory_factor == 1


def test_only_the_first_profile_is_overridden():
    second = SMALLEST.replace("ACME", "BOLT").replace("acme", "bolt").replace("profiles:\n", "")
    vendors = Vendors.of({"acme": ProfileVendor(SECTION + second)}, {"acme": {"memoryFactor": 2}})
    assert {p.key: p.memory_factor for p in vendors.profiles} == {"ACME": 2, "BOLT": 1}


@pytest.mark.parametrize(
    ("section", "names"),
    [
        pytest.param({"memoryFactor": "two"}, ["section acme", "memoryFactor", "'two'"], id="a word for a number"),
        pytest.param({"memoryFactor": 0}, ["section acme", "memoryFactor", "0"], id="a factor of 0"),
        pytest.param({"resourceCountName": 7}, ["section acme", "resourceCountName", "7"], id="a number for a name"),
        pytest.param([1], ["section acme", "[1]"], id="no mapping"),
    ],
)  # fmt: skip
def test_a_section_that_makes_no_sense_is_refused_by_name(section, names):
    with pytest.raises(ConfigError) as caught:
        Vendors.of({"acme": ProfileVendor(SECTION)}, {"acme": section})
    message = str(caught.value)
    assert [name for name in names if name not in message] == [], message
    assert ": :" not in message
