"""What a container's quantities mean: count, MiB, percent of memory, percent of compute."""

import pytest

from hami.domain.requests import DeviceRequest, Invalid

from ..builders import SHORT, a_container, a_gpu, a_pod, fitted, refused, the_vendor, used


def parsed(limits, requests=None, **config):
    return the_vendor(**config).parse_request(a_container(limits, requests, name="web"), a_pod())


def as_asked(limits, requests=None, **config):
    """(count, MiB, percent, cores)"""
    request = parsed(limits, requests, **config)
    assert isinstance(request, DeviceRequest), str(request)
    return request.count, request.memory_mib, request.memory_percent, request.cores


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param({"gpu": "1"}, (1, None, 100, 0), id="a count alone means all the memory"),
        pytest.param({"gpu": "2", "mem": "4096"}, (2, 4096, None, 0), id="MiB of each device"),
        pytest.param({"gpu": "1", "pct": "50"}, (1, None, 50, 0), id="a percentage"),
        pytest.param({"gpu": "1", "pct": "101"}, (1, None, 100, 0), id="101 % is all"),
        pytest.param({"gpu": "1", "pct": "150"}, (1, None, 100, 0), id="150 % is all"),
        pytest.param({"gpu": "1", "pct": "4294967346"}, (1, None, 100, 0), id="2^32 + 50 % is all"),
        pytest.param({"gpu": "1", "cores": "50"}, (1, None, 100, 50), id="cores"),
        pytest.param({"gpu": "1", "pct": "0"}, (1, None, 100, 0), id="0 % is unset"),
        pytest.param({"gpu": "1", "pct": "0", "mem": "2000"}, (1, 2000, None, 0), id="0 % and MiB"),
        pytest.param({"gpu": "1", "pct": "10", "mem": "2000"}, (1, 2000, None, 0), id="MiB win"),
        pytest.param({"gpu": "1", "mem": "0"}, (1, None, 100, 0), id="0 MiB is unset"),
        pytest.param({"gpu": "1", "mem": "3k"}, (1, 3000, None, 0), id="3k is 3000 MiB"),
        pytest.param({"gpu": "1", "mem": "16Gi"}, (1, 16384, None, 0), id="fixed: 16Gi is bytes"),
        pytest.param({"gpu": "1", "mem": "16.0Gi"}, (1, 16384, None, 0), id="fixed: so is 16.0Gi"),
    ],
)
def test_request(limits, expected):
    assert as_asked(limits) == expected


def test_requests_count_where_limits_say_nothing():
    assert as_asked({}, {"gpu": "1", "pct": "0"}) == (1, None, 100, 0)


@pytest.mark.parametrize(
    ("limits", "config", "expected"),
    [
        pytest.param({"gpu": "1"}, {}, (1, 512, None, 0), id="a count alone"),
        pytest.param({"gpu": "1", "pct": "0"}, {}, (1, 512, None, 0), id="0 %"),
        pytest.param({"gpu": "1", "mem": "0"}, {}, (1, 512, None, 0), id="0 MiB"),
        pytest.param({"gpu": "1", "pct": "10"}, {}, (1, None, 10, 0), id="not with a percentage"),
        pytest.param({"gpu": "1"}, {"memoryFactor": 2}, (1, 512, None, 0), id="MiB at any factor"),
        pytest.param({"gpu": "1"}, {"defaultCores": 30}, (1, 512, None, 30), id="default cores"),
        pytest.param(
            {"gpu": "1", "cores": "0"}, {"defaultCores": 30}, (1, 512, None, 0), id="explicit cores"
        ),
    ],
)
def test_default_memory_of_512(limits, config, expected):
    assert as_asked(limits, defaultMemory=512, **config) == expected


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        pytest.param("1024", 2048, id="a number counts units"),
        pytest.param("1Gi", 1024, id="fixed: bytes are bytes"),
    ],
)
def test_memory_at_factor_2(text, memory):
    assert as_asked({"gpu": "1", "mem": text}, memoryFactor=2) == (1, memory, None, 0)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"mem": "1000"}, id="memory without a count"),
        pytest.param({"gpu": "0"}, id="a count of 0"),
        pytest.param({"cpu": "1"}, id="cpu"),
    ],
)
def test_no_request(limits):
    assert parsed(limits) is None


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        pytest.param("pct", "-1", "'-1'", id="negative percentage (HAMi: unset)"),
        pytest.param("pct", "1500m", "'1500m'", id="half a percent (HAMi: unset)"),
        pytest.param("gpu", "-1", "'-1'", id="negative count (HAMi: no request)"),
        pytest.param("gpu", "0.5", "'0.5'", id="half a device (HAMi: no request)"),
        pytest.param("gpu", "2k", "2000", id="more devices than a node has"),
        pytest.param("mem", "-1", "'-1'", id="negative memory (HAMi: no request)"),
        pytest.param("mem", "1.5", "'1.5'", id="half a MiB (HAMi: no request)"),
        pytest.param("mem", "much", "'much'", id="unreadable memory"),
        pytest.param("mem", "500M", "'500M'", id="500M, 500 million MiB"),
        pytest.param("cores", "-1", "'-1'", id="negative cores (HAMi: accepted)"),
    ],
)
def test_fixed_a_bad_quantity_is_invalid_and_never_no_request(key, text, shown):
    answer = parsed({"gpu": "1", key: text})
    assert isinstance(answer, Invalid)
    for part in ("container web", SHORT[key], shown):
        assert part in answer.text


def test_0_percent_books_the_whole_device():
    request = parsed({"gpu": "1", "pct": "0"})
    gpu = a_gpu(memory=11264)
    assert refused(request, [used(gpu, memory=11260)]) == "1/1 CardInsufficientMemory"
    assert fitted(request, [used(gpu, memory=0)]) == ["dev-0"]
