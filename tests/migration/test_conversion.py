"""HAMi's values and what becomes of them: the table is whole, and nothing is dropped silently."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hami.migration import rules
from hami.migration.conversion import convert
from hami.migration.keys import ABSENT, Verdict
from hami.migration.table import DIFFERENCES, hami_keys
from tests.migration.values_2_10 import IMAGE, RECORDED

CHART = Path(__file__).parents[2] / "charts/hami"


def recorded():
    found = {}
    for line in RECORDED.strip().splitlines():
        name, _, default = line.partition(" ")
        if name.endswith((".image", ".imageNew")) and " " in default:
            registry, repository, tag = default.split()
            usual = [registry, repository, tag.strip('"'), "IfNotPresent", []]
            found |= {f"{name}.{part}": one for part, one in zip(IMAGE.split(), usual, strict=True)}
        else:
            found[name] = ABSENT if default == "-" else yaml.safe_load(default)
    return found


def nested(**flat):
    """``a__b=1`` is ``{"a": {"b": 1}}``."""
    made = {}
    for name, value in flat.items():
        put(made, name.replace("__", "."), value)
    return made


def put(made, name, value):
    *above, last = name.split(".")
    place = made
    for part in above:
        place = place.setdefault(part, {})
    place[last] = value


def said(values):
    return {one.key: (str(one.verdict), one.text) for one in convert(values).findings}


# The table.


def test_the_table_has_every_key_of_hamis_and_no_other():
    table = {name: key.default for name, key in hami_keys().items()}
    assert {name for name in recorded() if name not in table} == set(), "missing"
    assert {name for name in table if name not in recorded()} == set(), "invented"


@pytest.mark.parametrize("name", sorted(recorded()))
def test_a_key_has_hamis_default_and_says_what_becomes_of_it(name):
    key = hami_keys()[name]
    assert key.default == recorded()[name]
    assert key.verdict in (Verdict.SAME, Verdict.TRANSLATED, Verdict.NO_EFFECT)
    assert len(key.text) > 3


def test_hamis_own_defaults_change_nothing():
    values = {}
    for name, default in recorded().items():
        if default != ABSENT:
            put(values, name, default)
    conversion = convert(values)
    assert conversion.values == {}
    assert {one.verdict for one in conversion.findings} == {Verdict.DEFAULT}
    assert conversion.differences == DIFFERENCES


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda one: one.key)
def test_a_difference_is_of_a_key_of_hamis(difference):
    assert difference.key in recorded()


# One value.

CASES = [
    ("global__imageRegistry", "r.example.com", {"image": {"registry": "r.example.com"}, "kubeScheduler": {"image": {"registry": "r.example.com"}}}, "translated"),
    ("global__imagePullSecrets", ["a"], {"image": {"pullSecrets": [{"name": "a"}]}}, "translated"),
    ("global__imageTag", "v2.9.0", {}, "no effect"),
    ("global__managedNodeSelectorEnable", True, {}, "no effect"),
    ("fullnameOverride", "gpus", {}, "not honoured"),
    ("schedulerName", "gpu-scheduler", {"scheduler": {"name": "gpu-scheduler"}}, "same"),
    ("legacyMetrics", True, {"metrics": {"legacyNames": True}}, "same"),
    ("legacyMetrics", "true", {"metrics": {"legacyNames": True}}, "same"),
    ("prometheus__enabled", True, {"metrics": {"serviceMonitors": {"enabled": True}}}, "same"),
    ("scheduler__nodeName", "n1", {"scheduler": {"nodeSelector": {"kubernetes.io/hostname": "n1"}}}, "translated"),
    ("scheduler__nodeLabelSelector", {"gpu": "on", "a": "b"}, {"scheduler": {"settings": {"node-label-selector": "gpu=on,a=b"}}}, "translated"),
    ("scheduler__overwriteEnv", "true", {"deviceConfig": {"nvidia": {"overwriteEnv": True}}}, "translated"),
    ("scheduler__forceOverwriteDefaultScheduler", False, {"scheduler": {"settings": {"force-overwrite-default-scheduler": False}}}, "same"),
    ("scheduler__defaultSchedulerPolicy", {"gpuSchedulerPolicy": "topology-aware"}, {"scheduler": {"settings": {"gpu-scheduler-policy": "topology-aware"}}}, "same"),
    ("scheduler__replicas", 3, {"scheduler": {"replicas": 3}}, "same"),
    ("scheduler__replicas", "three", {}, "not honoured"),
    ("scheduler__metricsBindAddress", ":9999", {}, "not honoured"),
    ("scheduler__kubeScheduler", {"enabled": False}, {}, "not honoured"),
    ("scheduler__kubeScheduler", {"extraNewArgs": ["--config=/config/config.yaml", "-v=2", "--kube-api-qps=50"]}, {"kubeScheduler": {"verbosity": 2, "qps": 50}}, "translated"),
    ("scheduler__kubeScheduler", {"extraNewArgs": ["--feature-gates=A=true"]}, {}, "not honoured"),
    ("scheduler__extender", {"extraArgs": ["--debug", "--kube-qps=50", "--node-lock-retry-timeout=5s"]}, {"scheduler": {"settings": {"kube-qps": 50, "node-lock-retry-timeout": "5s"}}}, "translated"),
    ("scheduler__extender", {"image": {"tag": "v2.9.0"}}, {}, "no effect"),
    ("scheduler__admissionWebhook", {"failurePolicy": "Fail"}, {"webhooks": {"pods": {"failurePolicy": "Fail"}}}, "same"),
    ("scheduler__admissionWebhook", {"failurePolicy": "fail"}, {}, "not honoured"),
    ("scheduler__admissionWebhook", {"whitelistNamespaces": ["a"]}, {"webhooks": {"pods": {"ignoredNamespaces": ["a"]}}}, "same"),
    ("scheduler__admissionWebhook", {"customURL": {"path": "/other"}}, {}, "no effect"),
    ("scheduler__admissionWebhook", {"objectSelector": {"matchLabels": {"a": "b"}}}, {}, "not honoured"),
    ("scheduler__certManager__enabled", True, {"certificate": {"source": "cert-manager"}}, "translated"),
    ("scheduler__patch__enabled", False, {}, "no effect"),
    ("scheduler__service__type", "LoadBalancer", {"scheduler": {"service": {"type": "LoadBalancer"}}}, "same"),
    ("scheduler__service__monitorPort", 30000, {}, "not honoured"),
    ("devicePlugin__enabled", False, {"vendors": {"NVIDIA": {"devicePlugin": {"enabled": False}}}}, "same"),
    ("devicePlugin__deviceSplitCount", 4, {"deviceConfig": {"nvidia": {"deviceSplitCount": 4}}}, "translated"),
    ("devicePlugin__deviceMemoryScaling", 1.5, {"deviceConfig": {"nvidia": {"deviceMemoryScaling": 1.5}}}, "translated"),
    ("devicePlugin__migStrategy", "mixed", {"vendors": {"NVIDIA": {"devicePlugin": {"args": ["--mig-strategy=mixed"]}}}}, "translated"),
    ("devicePlugin__disablecorelimit", "true", {}, "no effect"),
    ("devicePlugin__gdrcopyEnabled", True, {"vendors": {"NVIDIA": {"devicePlugin": {"args": ["--gdrcopy-enabled=true"]}}}}, "translated"),
    ("devicePlugin__extraArgs", ["-v=4", "--imex-channel-ids=0"], {"vendors": {"NVIDIA": {"devicePlugin": {"args": ["--imex-channel-ids=0"]}}}}, "translated"),
    ("devicePlugin__extraArgs", ["--resource-name=a.com/b"], {}, "no effect"),
    ("devicePlugin__extraArgs", ["--nonsense"], {}, "not honoured"),
    ("devicePlugin__extraEnvs", [{"name": "DP_DISABLE_HEALTHCHECKS", "value": "all"}], {"vendors": {"NVIDIA": {"devicePlugin": {"env": [*rules.usual_variables(), {"name": "DP_DISABLE_HEALTHCHECKS", "value": "all"}]}}}}, "translated"),
    ("devicePlugin__nvidiaNodeSelector", {"pool": "gpu"}, {"vendors": {"NVIDIA": {"selectors": [{"pool": "gpu"}]}}}, "translated"),
    ("devicePlugin__nvidiaNodeSelector", {}, {"vendors": {"NVIDIA": {"selectors": []}}}, "translated"),
    ("devicePlugin__pluginPath", "/data/kubelet/device-plugins", {"node": {"paths": {"kubelet": "/data/kubelet"}}}, "translated"),
    ("devicePlugin__pluginPath", "/data/plugins", {}, "not honoured"),
    ("devicePlugin__updateStrategy", {"type": "OnDelete"}, {"node": {"devicePlugin": {"updateStrategy": {"type": "OnDelete"}}}}, "translated"),
    ("devicePlugin__runtimeClassName", "nvidia", {"vendors": {"NVIDIA": {"devicePlugin": {"runtimeClassName": "nvidia"}}}, "node": {"monitor": {"runtimeClassName": "nvidia"}}, "deviceConfig": {"nvidia": {"runtimeClassName": "nvidia"}}}, "translated"),
    ("devicePlugin__nodeConfiguration", {"config": '{"nodeconfig": [{"name": "n1", "devicesplitcount": 2}]}'}, {"nodeConfig": [{"name": "n1", "devicesplitcount": 2}]}, "translated"),
    ("devicePlugin__nodeConfiguration", {"config": '{"nodeconfig": [{"name": "your-node-name", "devicesplitcount": 10}]}'}, {}, "no effect"),
    ("devicePlugin__nodeConfiguration", {"config": "{"}, {}, "not honoured"),
    ("devicePlugin__nodeConfiguration", {"externalConfigName": "mine"}, {}, "not honoured"),
    ("devices__nvidia__gpuCorePolicy", "force", {"deviceConfig": {"nvidia": {"gpuCorePolicy": "force"}}}, "translated"),
    ("devices__nvidia__libCudaLogLevel", 3, {"deviceConfig": {"nvidia": {"libCudaLogLevel": "3"}}}, "translated"),
    ("devices__ascend__enabled", True, {}, "not honoured"),
    ("devices__kunlun__enabled", False, {}, "no effect"),
    ("mockDevicePlugin__enabled", True, {}, "not honoured"),
    ("mluResourceName", "a.com/mlu", {}, "not honoured"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "ours", "verdict"), CASES)
def test_a_value(key, value, ours, verdict):
    conversion = convert(nested(**{key: value}))
    assert conversion.values == ours
    assert [str(one.verdict) for one in conversion.findings] == [verdict]


def test_a_renamed_resource_is_named_wherever_it_counts():
    ours = convert({"resourceName": "a.com/gpu", "resourceCores": "a.com/cores"}).values
    assert ours["deviceConfig"]["nvidia"] == {"resourceCountName": "a.com/gpu", "resourceCoreName": "a.com/cores"}  # fmt: skip
    assert ours["vendors"]["NVIDIA"]["managedResources"] == ["a.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "a.com/cores", "nvidia.com/priority"]  # fmt: skip


def test_a_renamed_dcu_is_shared():
    dcu = convert({"dcuResourceMem": "a.com/mem"}).values["vendors"]["DCU"]
    assert dcu == {"enabled": True, "managedResources": ["hygon.com/dcunum", "a.com/mem", "hygon.com/dcucores"]}  # fmt: skip


def test_the_hook_path_and_the_drivers_root_are_one_list():
    ours = convert(
        {
            "global": {"gpuHookPath": "/opt/"},
            "devicePlugin": {"nvidiaDriverRoot": "/run/nvidia/driver"},
        }
    ).values["vendors"]["NVIDIA"]["devicePlugin"]
    assert ours["args"] == ["--hook-path=/opt", "--nvidia-driver-root=/run/nvidia/driver"]
    assert [one["path"] for one in ours["hostPaths"]] == ["/opt/vgpu", "/tmp/vgpulock", "/run/nvidia/driver"]  # fmt: skip


@pytest.mark.parametrize(("host", "url"), [("h.example.com", "https://h.example.com:443"), ("::1", "https://[::1]:443")])  # fmt: skip
def test_an_address_of_ones_own_for_the_webhook(host, url):
    custom = {"enabled": True, "host": host, "port": 443}
    assert convert({"scheduler": {"admissionWebhook": {"customURL": custom}}}).values == {"webhooks": {"url": url}}  # fmt: skip


def test_a_global_registry_goes_before_kube_schedulers():
    values = {"global": {"imageRegistry": "a"}, "scheduler": {"kubeScheduler": {"image": {"registry": "b"}}}}  # fmt: skip
    assert convert(values).values["kubeScheduler"] == {"image": {"registry": "a"}}
    assert said(values)["scheduler.kubeScheduler.image.registry"][0] == "no effect"


def test_one_pull_policy_for_all_images():
    def image(policy):
        return {"image": {"pullPolicy": policy}}

    values = {"devicePlugin": image("Always"), "scheduler": {"extender": image("Never")}}
    assert convert(values).values == {"image": {"pullPolicy": "Never"}}
    assert said(values)["devicePlugin.image.pullPolicy"][0] == "not honoured"


# The device configuration.

CONTENT = """
nvidia: {resourceCountName: a.com/gpu, deviceSplitCount: 5, migProfileAllowlist: [{models: [A30], profiles: [1g.6gb]}]}
hygon: {resourceCountName: hygon.com/dcunum}
vnpus: {}
"""


def test_a_whole_device_configuration_goes_before_what_would_write_one():
    values = {"device-config": {"content": CONTENT}, "devicePlugin": {"deviceSplitCount": 7}}
    ours, found = convert(values).values, said(values)
    assert ours["deviceConfig"]["nvidia"]["deviceSplitCount"] == 5
    assert ours["deviceConfig"]["nvidia"]["migProfileAllowlist"] == [{"models": ["A30"], "profiles": ["1g.6gb"]}]  # fmt: skip
    assert ours["vendors"]["NVIDIA"]["managedResources"][0] == "a.com/gpu"
    assert ours["vendors"]["DCU"]["enabled"] is True
    assert found["devicePlugin.deviceSplitCount"][0] == "no effect"
    assert found["device-config.content"] == ("not honoured", "deviceConfig: hygon, nvidia; no plugin here reads vnpus")  # fmt: skip


@pytest.mark.parametrize("content", ["[", "- a", "a: 1\na: 2"])
def test_a_device_configuration_that_cannot_be_read(content):
    assert (
        said({"device-config": {"content": content}})["device-config.content"][0] == "not honoured"
    )


# Keys that HAMi does not have.


@pytest.mark.parametrize(
    ("values", "key", "hint"),
    [
        ({"schedulerNmae": "a"}, "schedulerNmae", "did you mean schedulerName?"),
        ({"shceduler": {"replicas": 3}}, "shceduler", "did you mean scheduler?"),
        ({"scheduler": {"replica": 3}}, "scheduler.replica", "did you mean scheduler.replicas?"),
        ({"scheduler": {"tls": {"a": 1}}}, "scheduler.tls", "no such key"),
        ({"scheduler": "yes"}, "scheduler", "keys below it"),
        ({"quite": {"else": 1}}, "quite", "HAMi 2.10 has no such key"),
    ],
)
def test_an_unknown_key_is_named(values, key, hint):
    conversion = convert(values)
    ((verdict, text),) = said(values).values()
    assert list(said(values)) == [key]
    assert (verdict, hint in text) == ("unknown", True)
    assert len(conversion.open) == 1


@pytest.mark.parametrize("values", [{}, {"scheduler": None}, {"scheduler": {"service": None}}])
def test_what_is_empty_says_nothing(values):
    assert said(values) == {}


# Laws.

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
SUBSETS = st.dictionaries(st.sampled_from(sorted(recorded())), ANYTHING, max_size=12)


def whole(flat):
    values = {}
    for name, value in flat.items():
        put(values, name, value)
    return values


@given(SUBSETS)
def test_every_key_that_is_given_is_answered_once(flat):
    answered = [one.key for one in convert(whole(flat)).findings]
    assert sorted(answered) == sorted(flat)


@given(SUBSETS)
def test_whatever_is_given_our_values_can_be_written_as_yaml(flat):
    ours = convert(whole(flat)).values
    assert yaml.safe_load(yaml.safe_dump(ours)) == json.loads(json.dumps(ours))


# Our chart.


# In a process of its own: Helm is a Go library, and its runtime would stay in ours.
CHECK = """
import json, sys
import helm_python
def problem(chart, values):
    try:
        chart.render(values, name="hami", namespace="hami")
    except Exception as error:
        return str(error)
with helm_python.Chart.load(sys.argv[1]) as chart:
    json.dump([problem(chart, values) for values in json.load(sys.stdin)], sys.stdout)
"""


def refused(*many):
    """What Helm says of our chart with each of these values, by its schema and its templates."""
    if find_spec("helm_python") is None:
        pytest.skip("needs Helm: pip install helm-python-sdk")
    done = subprocess.run(
        [sys.executable, "-c", CHECK, CHART],
        input=json.dumps(many), capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [
        (values, said) for values, said in zip(many, json.loads(done.stdout), strict=True) if said
    ]


def test_what_is_written_our_chart_takes():
    assert refused(*(convert(nested(**{key: value})).values for key, value, *_ in CASES)) == []


def test_our_chart_refuses_what_it_does_not_know():
    assert len(refused({"schedulerName": "a"}, {})) == 1


@settings(max_examples=5, deadline=None)
@given(st.lists(SUBSETS, min_size=30, max_size=30))
def test_whatever_is_given_our_chart_takes_what_is_written(many):
    assert refused(*(convert(whole(flat)).values for flat in many)) == []


def test_the_lists_that_are_written_whole_begin_as_the_charts():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    plugin = values["vendors"]["NVIDIA"]["devicePlugin"]
    assert plugin["hostPaths"] == rules.host_paths("/usr/local", "/")
    assert plugin["env"] == rules.usual_variables()
    assert values["vendors"]["NVIDIA"]["managedResources"] == [
        name for _, name in rules.NVIDIA_NAMES
    ]
    assert values["vendors"]["DCU"]["managedResources"] == [name for _, name in rules.DCU_NAMES]
