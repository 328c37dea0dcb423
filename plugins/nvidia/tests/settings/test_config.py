import pytest
from hami_nvidia import plugin

from hami.domain.errors import ConfigError
from hami.vendors.registry import Vendors

from ..builders import the_vendor


def test_without_a_section_the_names_and_defaults_are_those_of_the_chart():
    (profile,) = Vendors.of({"nvidia": plugin}).profiles
    assert profile.key == "NVIDIA"
    assert profile.resources.all_names == (
        "nvidia.com/gpu",
        "nvidia.com/gpumem",
        "nvidia.com/gpumem-percentage",
        "nvidia.com/gpucores",
        "nvidia.com/priority",
    )
    assert profile.node_annotations.register == "hami.io/node-nvidia-register"
    assert profile.node_annotations.handshake == "hami.io/node-handshake"
    assert profile.pod_annotations.to_allocate == "hami.io/vgpu-devices-to-allocate"
    assert profile.pod_annotations.allocated == "hami.io/vgpu-devices-allocated"
    assert (profile.default_count, profile.default_memory_mib, profile.default_cores) == (1, 0, 0)
    assert (profile.memory_factor, profile.runtime_class) == (1, "")
    assert (profile.liveness, profile.lock, profile.type_match) == (
        "capacity",
        "mutex",
        "substring",
    )


def test_every_key_of_hamis_section_is_accepted():
    profile = the_vendor(
        resourceCountName="acme.com/gpu",
        resourceMemoryName="acme.com/mem",
        resourceMemoryPercentageName="acme.com/pct",
        resourceCoreName="acme.com/cores",
        resourcePriorityName="acme.com/prio",
        overwriteEnv=True,
        defaultMemory=512,
        defaultCores=10,
        defaultGPUNum=2,
        memoryFactor=1024,
        disableCoreLimit=True,
        migProfileAllowlist=[{"models": ["A30"], "profiles": ["1g.6gb", "2g.12gb"]}],
        gpuCorePolicy="force",
        runtimeClassName="nvidia",
        deviceSplitCount=10,
        deviceMemoryScaling=1.5,
        deviceCoreScaling=1,
        preConfiguredDeviceMemory=0,
        libCudaLogLevel="1",
        enableNumaTopology=False,
        somethingNew="later",
    ).profile
    assert profile.resources.count == "acme.com/gpu"
    assert profile.resources.priority == "acme.com/prio"
    assert (profile.default_memory_mib, profile.default_cores, profile.default_count) == (
        512,
        10,
        2,
    )
    assert (profile.memory_factor, profile.runtime_class) == (1024, "nvidia")
    assert (profile.core_policy, profile.overwrite_env) == ("force", True)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        pytest.param({"memoryFactor": 0}, ("memory_factor", 1), id="factor 0 counts MiB"),
        pytest.param({"memoryFactor": None}, ("memory_factor", 1), id="null is the default"),
        pytest.param({"gpuCorePolicy": "default"}, ("core_policy", ""), id="policy default"),
        pytest.param({"defaultGPUNum": 0}, ("default_count", 0), id="no default count"),
    ],
)
def test_a_value_that_means_its_default(section, expected):
    name, value = expected
    assert getattr(the_vendor(**section).profile, name) == value


@pytest.mark.parametrize(
    ("section", "words"),
    [
        pytest.param({"memoryFactor": "x"}, ["nvidia.memoryFactor", "'x'"], id="text as number"),
        pytest.param({"memoryFactor": True}, ["nvidia.memoryFactor", "True"], id="bool as number"),
        pytest.param({"defaultMemory": -1}, ["nvidia.defaultMemory", "-1"], id="negative memory"),
        pytest.param({"defaultCores": 101}, ["nvidia.defaultCores", "101"], id="cores above 100"),
        pytest.param({"defaultGPUNum": 1.5}, ["nvidia.defaultGPUNum", "1.5"], id="half a device"),
        pytest.param({"overwriteEnv": "yes"}, ["nvidia.overwriteEnv", "'yes'"], id="text as bool"),
        pytest.param({"gpuCorePolicy": "on"}, ["nvidia.gpuCorePolicy", "'on'"], id="policy"),
        pytest.param({"resourceCountName": ""}, ["nvidia.resourceCountName", "''"], id="no count"),
        pytest.param({"resourceCoreName": "a b"}, ["nvidia.resourceCoreName", "'a b'"], id="name"),
        pytest.param(
            {"resourceCoreName": "nvidia.com/gpu"}, ["nvidia.com/gpu names two"], id="name twice"
        ),
        pytest.param(
            {"migProfileAllowlist": [{"models": ["A30"], "profiles": ["7g.40gb", "1c.6gb"]}]},
            ["nvidia.migProfileAllowlist.0.profiles", 'invalid MIG profile "1c.6gb"'],
            id="MIG profile without g",
        ),
        pytest.param(
            {"migProfileAllowlist": [{"models": ["A30"], "profiles": ["g.6gb"]}]},
            ['invalid MIG profile "g.6gb"'],
            id="MIG profile without a number",
        ),
        pytest.param(
            {"migProfileAllowlist": [{"models": ["A30"], "profiles": ["1g"]}]},
            ['invalid MIG profile "1g"'],
            id="MIG profile without memory",
        ),
        pytest.param(
            {"migProfileAllowlist": [{"models": [], "profiles": ["1g.6gb"]}]},
            ["nvidia.migProfileAllowlist.0", "must define models and profiles"],
            id="allowlist entry without a model",
        ),
    ],
)
def test_a_bad_value_is_refused_with_its_key_and_value(section, words):
    with pytest.raises(ConfigError) as caught:
        the_vendor(**section)
    for word in words:
        assert word in str(caught.value)


def test_every_bad_key_is_named_at_once():
    with pytest.raises(ConfigError, match=r"memoryFactor.*defaultCores|defaultCores.*memoryFactor"):
        the_vendor(memoryFactor="x", defaultCores=-1)


def test_a_section_that_is_no_mapping_is_refused():
    with pytest.raises(ConfigError, match="nvidia: 'on' is not a section"):
        Vendors.of({"nvidia": plugin}, {"nvidia": "on"})
