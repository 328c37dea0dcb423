"""What a node's settings are, and who has the last word."""

from __future__ import annotations

from pathlib import Path

import pytest
from hami_nvidia.settings.node_settings import NodeSettings, node_settings
from hami_nvidia.settings.options import NODE_OPTIONS

from hami.domain.errors import ConfigError
from hami.domain.options import OptionKind


def settings(section=None, *entries, node=None):
    config = {"nvidia": section or {}, "nodeconfig": list(entries), "node": node or {"name": "n"}}
    return node_settings(config)


def test_nothing_configured_is_the_defaults_of_hamis_chart():
    assert node_settings({}) == NodeSettings()
    found = NodeSettings()
    assert (found.split_count, found.memory_scaling, found.log_level) == (10, 1.0, "1")
    assert (found.mode, found.list_strategies) == ("hami-core", ("envvar",))
    assert found.library_dir == Path("/usr/local/vgpu")


@pytest.mark.parametrize(
    ("section", "field", "expected"),
    [
        pytest.param({"deviceSplitCount": 4}, "split_count", 4, id="a count"),
        pytest.param({"deviceMemoryScaling": 2}, "memory_scaling", 2.0, id="a whole number is a scale"),
        pytest.param({"libCudaLogLevel": 3}, "log_level", "3", id="a level written as a number"),
        pytest.param({"libCudaLogLevel": ""}, "log_level", "", id="no level"),
        pytest.param({"migStrategy": "mixed"}, "mig_strategy", "mixed", id="a strategy"),
        pytest.param({"deviceListStrategy": "envvar, cdi-cri"}, "list_strategies", ("envvar", "cdi-cri"), id="a list as text"),
        pytest.param({"deviceListStrategy": ["volume-mounts"]}, "list_strategies", ("volume-mounts",), id="a list"),
        pytest.param({"imexChannelIDs": ["0"]}, "imex_channels", (0,), id="a channel"),
        pytest.param({"imexChannelIDs": []}, "imex_channels", (), id="no channel"),
        pytest.param({"hookPath": "/opt/hami"}, "library_dir", Path("/opt/hami/vgpu"), id="a path"),
        pytest.param({"library": ""}, "library", None, id="an empty path is none"),
        pytest.param({"deviceSplitCount": None}, "split_count", 10, id="null is the default"),
        pytest.param({"knownMigGeometries": []}, "split_count", 10, id="keys of nobody are ignored"),
        pytest.param({"split_count": 3}, "split_count", 10, id="a field's name is no key"),
        pytest.param({"disableHealthChecks": 13}, "disable_health_checks", "13", id="one XID as a number"),
    ],
)  # fmt: skip
def test_a_key_of_the_section_is_read(section, field, expected):
    assert getattr(settings(section), field) == expected


@pytest.mark.parametrize(
    ("section", "told"),
    [
        pytest.param({"deviceSplitCount": 0}, "nvidia.deviceSplitCount (--device-split-count): 0: ", id="a count of none"),
        pytest.param({"deviceMemoryScaling": float("nan")}, "nvidia.deviceMemoryScaling (--device-memory-scaling): nan", id="no number"),
        pytest.param({"hookPath": "usr/local"}, "nvidia.hookPath (--hook-path): 'usr/local': the path must be absolute", id="a relative path"),
        pytest.param({"hookPath": "/usr/../etc"}, "must be absolute, without '..'", id="a path with dots"),
        pytest.param({"migStrategy": "some"}, "'none', 'single' or 'mixed'", id="an unknown strategy"),
        pytest.param({"deviceListStrategy": ["envvar", "magic"]}, "'magic': Input should be 'envvar'", id="an unknown list strategy"),
        pytest.param({"deviceListStrategy": []}, "names no strategy", id="no list strategy"),
        pytest.param({"deviceDiscoveryStrategy": "tegra"}, "Tegra has no NVML and is not supported", id="Tegra"),
        pytest.param({"imexChannelIDs": [1]}, "must be [] or [0]", id="another channel"),
        pytest.param({"contextReserveMiB": "1 GiB"}, "contextReserveMiB (--context-reserve-mib): '1 GiB': write a whole number of MiB, or auto", id="a reserve in words"),
        pytest.param({"contextReserveMiB": -1}, "nvidia.contextReserveMiB (--context-reserve-mib): -1", id="a reserve below 0"),
        pytest.param({"contextReserveMiB": True}, "nvidia.contextReserveMiB (--context-reserve-mib): True", id="a switch is no reserve"),
        pytest.param({"cdiKind": "gpu"}, "nvidia.cdiKind (--cdi-kind): 'gpu'", id="no kind"),
        pytest.param({"enableNumaTopology": "yes"}, "nvidia.enableNumaTopology: 'yes'", id="a text is no switch"),
        pytest.param([], "nvidia: [] is not a section", id="no section"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_key(section, told):
    with pytest.raises(ConfigError) as error:
        node_settings({"nvidia": section})
    assert told in str(error.value)


# The per-node configuration.


@pytest.mark.parametrize(
    ("entry", "field", "expected"),
    [
        pytest.param({"operatingmode": "mig"}, "mode", "mig", id="the mode"),
        pytest.param({"OperatingMode": "mig"}, "mode", "mig", id="in any spelling"),
        pytest.param({"devicesplitcount": 3}, "split_count", 3, id="HAMi's golden: split count"),
        pytest.param({"devicememoryscaling": 0.8}, "memory_scaling", 0.8, id="HAMi's golden: memory scaling"),
        pytest.param({"devicecorescaling": 1.4}, "core_scaling", 1.4, id="HAMi's golden: core scaling"),
        pytest.param({"libcudaloglevel": "3"}, "log_level", "3", id="HAMi's golden: log level"),
        pytest.param({"preconfigureddevicememory": 4096}, "preconfigured_memory_mib", 4096, id="memory that NVML cannot tell"),
        pytest.param({"migstrategy": "single"}, "mig_strategy", "single", id="the MIG strategy"),
        pytest.param({"filterdevices": {"uuid": ["GPU-a"], "index": [1]}}, "filter_uuids", {"GPU-a"}, id="filtered by UUID"),
        pytest.param({"FilterDevices": {"UUID": [], "Index": [1, 2]}}, "filter_indexes", {1, 2}, id="filtered by index"),
        pytest.param({"healthRecovery": 60}, "health_recovery", 60.0, id="a key that is ours alone"),
        pytest.param({"enablegetpreferredallocation": True}, "split_count", 5, id="the agent's own key"),
        pytest.param({"devicesplitcount": 0}, "split_count", 5, id="a count of 0 was not set"),
        pytest.param({"devicememoryscaling": 0.0}, "memory_scaling", 2.0, id="a scale of 0 was not set"),
        pytest.param({"operatingmode": ""}, "mode", "hami-core", id="an empty mode was not set"),
        pytest.param({"libcudaloglevel": ""}, "log_level", "4", id="an empty level was not set"),
        pytest.param({"filterdevices": {"uuid": [], "index": []}}, "filter_uuids", {"GPU-x"}, id="an empty filter was not set"),
        pytest.param({"enablenumatopology": False}, "numa_topology", False, id="false turns off what is on"),
        pytest.param({"preconfigureddevicememory": 0}, "preconfigured_memory_mib", 0, id="0 takes away what is set"),
        pytest.param({"contextreservemib": 0}, "context_reserve_mib", 0, id="a reserve of 0 is meant"),
        pytest.param({"contextReserveMiB": "auto"}, "context_reserve_mib", None, id="a figure of the section is left again"),
    ],
)  # fmt: skip
def test_an_entry_overrides_the_section(entry, field, expected):
    section = {
        "deviceSplitCount": 5,
        "deviceMemoryScaling": 2.0,
        "libCudaLogLevel": "4",
        "enableNumaTopology": True,
        "preConfiguredDeviceMemory": 1024,
        "contextReserveMiB": 512,
        "filterDevices.uuid": ["GPU-x"],
    }
    assert getattr(settings(section, {"name": "n"} | entry), field) == expected


def test_the_later_entry_wins():
    first, second = {"name": "n", "devicesplitcount": 3}, {"name": "n", "devicesplitcount": 7}
    assert settings({}, first, second).split_count == 7
    assert settings({}, second, first).split_count == 3


def test_a_filter_is_replaced_as_a_whole():
    first = {"name": "n", "filterdevices": {"uuid": ["GPU-a"]}}
    second = {"selector": {"pool": "b"}, "filterdevices": {"index": [2]}}
    found = settings({}, first, second)
    assert (found.filter_uuids, found.filter_indexes) == (frozenset(), frozenset({2}))


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        pytest.param({"name": "w", "devicesplitcount": -1}, "node configuration, entry 'w': deviceSplitCount", id="a count"),
        pytest.param({"name": "w", "operatingmode": "mps"}, "'mps': Input should be 'hami-core' or 'mig'", id="a mode that nobody has"),
        pytest.param({"name": "w", "filterdevices": {"index": ["a"]}}, "filterDevices.index: 'a'", id="an index"),
        pytest.param({"name": "w", "filterdevices": 3}, "filterDevices.uuid: 3", id="no filter"),
        pytest.param("w", "'w' is not an entry", id="no entry"),
    ],
)  # fmt: skip
def test_a_wrong_entry_is_named(entry, told):
    with pytest.raises(ConfigError) as error:
        settings({}, entry)
    assert told in str(error.value)


def test_the_node_says_its_name_and_identity():
    found = settings(node={"name": "worker-1", "identity": "lock", "labels": {}})
    assert (found.node_name, found.identity) == ("worker-1", "lock")


# The options.


@pytest.mark.parametrize("option", NODE_OPTIONS, ids=lambda option: option.key)
def test_every_option_reaches_the_settings(option):
    """A value of its kind under its key changes something, or is the resource's name."""
    section = {option.key: another(option)}
    assert option.key == "resourceCountName" or node_settings({"nvidia": section}) != NodeSettings()


def another(option):
    """A legal value that is not the default."""
    if option.choices:
        return next(c for c in option.choices if c not in (option.default, "tegra"))
    special = {
        "deviceListStrategy": ["cdi-cri"],
        "imexChannelIDs": ["0"],
        "contextReserveMiB": "512",
        "cdiAnnotationPrefix": "example.com/",
        "cdiKind": "example.com/gpu",
        "disableHealthChecks": "all",
        "enableHealthChecks": "13",
    }
    if option.key in special:
        return special[option.key]
    return {
        OptionKind.SWITCH: option.default != "true",
        OptionKind.INTEGER: 7,
        OptionKind.NUMBER: 7.5,
        OptionKind.TEXT: "/somewhere/else",
    }[option.kind]


def test_flags_and_variables_are_claimed_once():
    flags = [flag for option in NODE_OPTIONS for flag in option.flags]
    variables = [variable for option in NODE_OPTIONS for variable in option.variables]
    assert len(flags) == len(set(flags))
    assert len(variables) == len(set(variables))
    assert all(flag.startswith("--") for flag in flags)
    assert {option.section for option in NODE_OPTIONS} == {"nvidia"}
    assert len({option.key for option in NODE_OPTIONS}) == len(NODE_OPTIONS)


def test_defaults_in_the_help_are_the_defaults():
    """As far as the help's text is the value itself."""
    for option in NODE_OPTIONS:
        if option.kind is OptionKind.SWITCH:
            section = {option.key: option.default == "true"}
            assert node_settings({"nvidia": section}) == NodeSettings(), option.key
        elif option.choices or option.default.startswith("/"):
            same = node_settings({"nvidia": {option.key: option.default}})
            assert same == NodeSettings(), option.key
