import pytest

from hami.domain.admission import Admission, Denied
from hami.domain.allocations import ContainerKind

from ..builders import CORES, COUNT, a_container, a_pod, the_vendor


def admitted(container, **config):
    answer = the_vendor(**config).admit(container, a_pod(), ContainerKind.APP)
    assert isinstance(answer, Admission), str(answer)
    return answer


def denied(container, **config):
    answer = the_vendor(**config).admit(container, a_pod(), ContainerKind.APP)
    assert isinstance(answer, Denied), str(answer)
    return answer.text


@pytest.mark.parametrize(
    ("limits", "requests", "added"),
    [
        pytest.param({"gpu": "1", "mem": "1000"}, {}, {}, id="a count stays"),
        pytest.param({"cores": "30"}, {}, {COUNT: "1"}, id="only cores get a count"),
        pytest.param({"mem": "1000"}, {}, {COUNT: "1"}, id="only memory gets a count"),
        pytest.param({"pct": "50"}, {}, {COUNT: "1"}, id="only a percentage gets a count"),
        pytest.param({}, {}, {}, id="no resource, no count"),
        pytest.param({}, {"mem": "1000"}, {}, id="memory in requests alone gets no count"),
        pytest.param({"cpu": "4"}, {"cpu": "4"}, {}, id="cpu is none of ours"),
        pytest.param({"priority": "1"}, {}, {}, id="a priority is no request for a device"),
    ],
)
def test_count_defaulting(limits, requests, added):
    assert admitted(a_container(limits, requests)).limits == added


def test_without_a_default_count_memory_alone_asks_for_nothing():
    assert admitted(a_container({"mem": "1000"}), defaultGPUNum=0) == Admission()


@pytest.mark.parametrize(
    ("limits", "requests", "cores"),
    [
        pytest.param({"gpu": "1"}, {}, "100", id="a bare count is exclusive"),
        pytest.param({}, {"gpu": "1"}, "100", id="a bare count in requests is exclusive"),
        pytest.param({"gpu": "1", "pct": "100"}, {}, "100", id="100 % is exclusive"),
        pytest.param({"gpu": "1"}, {"pct": "100"}, "100", id="100 % in requests is exclusive"),
        pytest.param({"pct": "100"}, {}, "100", id="100 % alone is exclusive"),
        pytest.param({"gpu": "1", "pct": "50"}, {}, None, id="50 % is not"),
        pytest.param({"gpu": "1", "pct": "0"}, {}, None, id="an explicit 0 % is not"),
        pytest.param({"gpu": "1", "mem": "1000"}, {}, None, id="a part of the memory is not"),
        pytest.param({"gpu": "1", "cores": "70"}, {}, None, id="explicit cores stay"),
        pytest.param({"gpu": "1"}, {"cores": "55"}, None, id="cores in requests stay"),
        pytest.param({"mem": "1000"}, {}, None, id="an implied count with memory is not"),
    ],
)
def test_exclusive_core_defaulting(limits, requests, cores):
    assert admitted(a_container(limits, requests)).limits.get(CORES) == cores


def test_without_a_memory_resource_every_count_is_exclusive():
    container = a_container({"gpu": "1", "mem": "1000"})
    assert admitted(container, resourceMemoryName="").limits == {CORES: "100"}


def test_without_a_core_resource_nothing_is_exclusive():
    assert admitted(a_container({"gpu": "1"}), resourceCoreName="").limits == {}


def test_configured_names_are_used():
    names = {"resourceCountName": "acme.com/gpu", "resourceCoreName": "acme.com/cores"}
    assert admitted(a_container({"acme.com/gpu": "1"}), **names).limits == {"acme.com/cores": "100"}
    assert admitted(a_container({"gpu": "1"}), **names) == Admission()


@pytest.mark.parametrize("text", ["0", "1", "100"])
def test_a_percentage_from_0_to_100_is_admitted(text):
    admitted(a_container({"gpu": "1", "pct": text}))


@pytest.mark.parametrize(
    ("limits", "requests", "shown"),
    [
        pytest.param({"gpu": "1", "pct": "101"}, {}, "101", id="101"),
        pytest.param({"gpu": "1", "pct": "150"}, {}, "150", id="150"),
        pytest.param({"gpu": "1", "pct": "-1"}, {}, "-1", id="negative"),
        pytest.param({"gpu": "1"}, {"pct": "150"}, "150", id="150 in requests"),
        pytest.param({"pct": "150"}, {}, "150", id="150 without a count"),
        pytest.param({"gpu": "1", "pct": "50.5"}, {}, "50.5", id="a fraction, which HAMi rounds"),
        pytest.param({"gpu": "1", "pct": "half"}, {}, "half", id="unreadable"),
    ],
)
def test_a_percentage_outside_0_to_100_is_denied_in_hamis_words(limits, requests, shown):
    assert denied(a_container(limits, requests, name="web")) == (
        f"invalid nvidia.com/gpumem-percentage value {shown} in container web: "
        f"must be an integer between 0 and 100"
    )


def test_the_percentage_is_checked_before_everything_else():
    assert "gpumem-percentage" in denied(a_container({"pct": "101", "priority": "high"}))


@pytest.mark.parametrize(
    ("limits", "requests", "config", "env"),
    [
        pytest.param(
            {"gpu": "1", "priority": "5"}, {}, {}, {"CUDA_TASK_PRIORITY": "5"}, id="priority"
        ),
        pytest.param(
            {"priority": "0"}, {}, {}, {"CUDA_TASK_PRIORITY": "0"}, id="priority without a device"
        ),
        pytest.param({"gpu": "1"}, {"priority": "5"}, {}, {}, id="priority in requests is ignored"),
        pytest.param(
            {"gpu": "1"},
            {},
            {"gpuCorePolicy": "force"},
            {"GPU_CORE_UTILIZATION_POLICY": "force"},
            id="core policy",
        ),
        pytest.param(
            {},
            {},
            {"gpuCorePolicy": "disable"},
            {"GPU_CORE_UTILIZATION_POLICY": "disable"},
            id="core policy without a device",
        ),
        pytest.param({"gpu": "1"}, {}, {"gpuCorePolicy": "default"}, {}, id="policy default"),
        pytest.param(
            {}, {}, {"overwriteEnv": True}, {"NVIDIA_VISIBLE_DEVICES": "none"}, id="hide devices"
        ),
        pytest.param({"gpu": "1"}, {}, {"overwriteEnv": True}, {}, id="hide none that is asked"),
        pytest.param({"mem": "1"}, {}, {"overwriteEnv": True}, {}, id="nor one that is implied"),
        pytest.param({}, {}, {}, {}, id="nothing"),
    ],
)
def test_environment(limits, requests, config, env):
    assert admitted(a_container(limits, requests), **config).env == env


def test_an_unreadable_priority_is_denied_with_container_key_and_value():
    text = denied(a_container({"gpu": "1", "priority": "high"}, name="web"))
    assert "web" in text
    assert "nvidia.com/priority" in text
    assert "'high'" in text


@pytest.mark.parametrize(
    ("limits", "runtime_class"),
    [
        pytest.param({"gpu": "1"}, "nvidia", id="a pod with a device"),
        pytest.param({"cores": "10"}, "nvidia", id="a pod with an implied device"),
        pytest.param({}, None, id="a pod without"),
    ],
)
def test_runtime_class(limits, runtime_class):
    answer = admitted(a_container(limits), runtimeClassName="nvidia")
    assert answer.runtime_class == runtime_class


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"gpu": "1"}, id="bare count"),
        pytest.param({"mem": "1000", "priority": "3"}, id="memory and priority"),
        pytest.param({"pct": "100"}, id="whole memory"),
        pytest.param({}, id="nothing"),
    ],
)
def test_fixed_a_second_admission_sets_nothing_new(limits):
    """HAMi's webhook appends the same variables again whenever it is re-invoked."""
    config = {"gpuCorePolicy": "force", "overwriteEnv": True, "runtimeClassName": "nvidia"}
    first = admitted(a_container(limits), **config)
    second = admitted(a_container({**limits, **first.limits}, env=first.env), **config)
    assert second.env == first.env
    assert second.limits == {}
    assert second.runtime_class == first.runtime_class
