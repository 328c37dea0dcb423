"""How well GPUs are linked, in HAMi's scores."""

import pytest
from hami_nvidia.devices.links import nvlink_count, plain_bus_id, topology
from hami_nvidia.nvml.interface import Ancestor, Gpu, NvLink, NvmlAway, NvmlFailed
from hypothesis import given
from hypothesis import strategies as st

from ..hardware_builders import discovered, settings, simulated, take_driver_away, uuids


def to(bus, times=1):
    return [NvLink(remote_bus_id=bus)] * times


def switched(times):
    return [NvLink(remote_bus_id=f"sw{n}", switch=True) for n in range(times)]


class Wires:
    """Two GPUs on buses ``b0`` and ``b1``, by what NVML says of them."""

    def __init__(self, ancestor=Ancestor.CPU, there=(), back=()):
        self.shared = ancestor
        self.wires = {"g0": there, "g1": back}

    def ancestor(self, one, other):
        if isinstance(self.shared, Exception):
            raise self.shared
        return self.shared

    def links(self, gpu):
        if isinstance(self.wires[gpu], Exception):
            raise self.wires[gpu]
        return self.wires[gpu]


def two():
    return [
        Gpu(uuid=f"g{n}", index=n, minor=n, name="", pci_bus_id=f"b{n}", memory_bytes=1)
        for n in range(2)
    ]  # fmt: skip


def scores(wires):
    found = topology(wires, two())
    (there,), (back,) = found.scores["g0"], found.scores["g1"]
    assert (there.peer, back.peer) == ("g1", "g0")
    return there.score, back.score


@pytest.mark.parametrize(
    ("ancestor", "expected"),
    [
        pytest.param(Ancestor.SYSTEM, 10, id="two processors"),
        pytest.param(Ancestor.CPU, 20, id="one processor"),
        pytest.param(Ancestor.HOST_BRIDGE, 30, id="one host bridge"),
        pytest.param(Ancestor.SWITCHES, 40, id="several switches"),
        pytest.param(Ancestor.SWITCH, 50, id="one switch"),
        pytest.param(Ancestor.BOARD, 60, id="one board"),
    ],
)
def test_the_way_over_pcie(ancestor, expected):
    assert scores(Wires(ancestor)) == (expected, expected)


@pytest.mark.parametrize(
    ("there", "back", "expected"),
    [
        pytest.param(to("b1", 4), to("b0", 4), (420, 420), id="four links, as a DGX-1"),
        pytest.param(to("b1", 1), to("b0", 1), (120, 120), id="one link"),
        pytest.param(to("B1", 2), to("b0", 2), (220, 220), id="bus ids in capitals"),
        pytest.param(switched(12), switched(12), (1220, 1220), id="through switches"),
        pytest.param(switched(12), switched(6), (620, 620), id="as many as both have"),
        pytest.param(switched(12), to("other"), (20, 20), id="only one has a switch"),
        pytest.param(to("other"), to("other"), (20, 20), id="to somebody else"),
        pytest.param((), (), (20, 20), id="none"),
        pytest.param(to("b1", 2), to("b0", 1), (220, 120), id="a link is down on one side"),
        pytest.param(switched(19), switched(19), (20, 20), id="more than there can be"),
    ],
)
def test_nvlinks(there, back, expected):
    assert scores(Wires(there=there, back=back)) == expected


@pytest.mark.parametrize(
    "wires",
    [
        pytest.param(Wires(there=to("b1"), back=()), id="there and not back"),
        pytest.param(Wires(there=(), back=to("b0")), id="back and not there"),
    ],
)
def test_a_pair_that_does_not_agree_scores_nothing_and_is_told(wires):
    assert scores(wires) == (0, 0)
    (report,) = topology(wires, two()).reports
    assert "g0 and g1 do not agree" in report


def test_what_cannot_be_asked_does_not_count_and_is_told():
    assert scores(Wires(NvmlFailed("no topology"), to("b1"), to("b0"))) == (100, 100)
    wires = Wires(there=NvmlFailed("no links"), back=())
    assert scores(wires) == (20, 20)
    assert topology(wires, two()).reports == ("no links; its NVLinks do not count",)


def test_without_a_driver_there_is_no_topology(tmp_path):
    nvml = simulated(tmp_path, "v100-32gx2")
    gpus = list(nvml.gpus())
    take_driver_away(nvml)
    with pytest.raises(NvmlAway):
        topology(nvml, gpus)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param("00000000:0A:00.0", "0000:0a:00.0", id="NVML's"),
        pytest.param("0000:0A:00.0", "0000:0a:00.0", id="an older one's"),
        pytest.param("00010000:3B:00.0", "00010000:3b:00.0", id="another domain"),
    ],
)
def test_bus_ids(told, expected):
    assert plain_bus_id(told) == expected


@pytest.mark.parametrize(
    ("gpus", "pair", "expected"),
    [
        pytest.param("v100-32gx2", (0, 1), 610, id="two: all six links, two processors"),
        pytest.param("v100-32gx4", (0, 1), 220, id="four: two links each"),
        pytest.param("v100-32gx8", (0, 4), 10, id="eight: not all are linked"),
        pytest.param("h100-80gx8", (0, 7), 1810, id="a switch joins all"),
        pytest.param(
            "a100-40gx2,a100-40gx2",
            (0, 2),
            1210,
            id="NVML does not say which switch, so all are joined",
        ),
        pytest.param("t4x2", (0, 1), 10, id="no NVLink"),
    ],
)
def test_presets(tmp_path, gpus, pair, expected):
    nvml = simulated(tmp_path, gpus)
    found = topology(nvml, list(nvml.gpus()))
    one, other = (uuids(nvml)[n] for n in pair)
    assert {s.peer: s.score for s in found.scores[one]}[other] == expected
    assert found.reports == ()


def test_a_cut_gpu_has_no_nvlinks(tmp_path):
    nvml = simulated(tmp_path, "a100-40gx2")
    nvml.set_mig(uuids(nvml)[0], enabled=True)
    found = discovered(nvml, settings(migStrategy="none"))
    assert len(found) == 2
    assert topology(nvml, list(nvml.gpus())).scores[uuids(nvml)[1]][0].score == 10


@given(st.integers(0, 18), st.integers(0, 18))
def test_through_switches_the_count_is_symmetric(here, there):
    one, other = switched(here), switched(there)
    assert nvlink_count(one, other, "b1") == nvlink_count(other, one, "b0") == min(here, there)


@given(st.integers(1, 8))
def test_every_preset_is_linked_both_ways_alike(count):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        nvml = simulated(Path(folder), f"v100-32gx{count}")
        found = topology(nvml, list(nvml.gpus()))
    pairs = {(one, s.peer): s.score for one, peers in found.scores.items() for s in peers}
    assert all(pairs[one, other] == pairs[other, one] for one, other in pairs)
    assert found.reports == ()
