"""What is written of simulated GPUs, and what simgpud and an agent are told of them."""

from __future__ import annotations

import pytest
from hami_simgpu.gpus import read_gpus

from hami.domain.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "names", "mig"),
    [
        pytest.param("t4", ["Tesla T4"], [False], id="one"),
        pytest.param("t4x2, l4", ["Tesla T4", "Tesla T4", "NVIDIA L4"], [False] * 3, id="several"),
        pytest.param(
            "a100-40g:migx2,a100-40g", ["NVIDIA A100-SXM4-40GB"] * 3, [True, True, False], id="cut"
        ),
    ],
)
def test_cards(text, names, mig):
    gpus = read_gpus(text, "n")
    assert ([gpu.name for gpu in gpus], [gpu.mig for gpu in gpus]) == (names, mig)
    assert len({gpu.uuid for gpu in gpus} | {gpu.pci for gpu in gpus}) == 2 * len(gpus)


@pytest.mark.parametrize(
    ("text", "links"),
    [
        pytest.param("t4x2", [(), ()], id="without links"),
        pytest.param("h100-80g", [()], id="alone"),
        pytest.param("h100-80gx2", [("switch",) * 18] * 2, id="a switch"),
        pytest.param("t4,v100-32gx2", [(), ("2",) * 6, ("1",) * 6], id="each other"),
    ],
)
def test_links(text, links):
    assert [gpu.links for gpu in read_gpus(text, "n")] == links


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("t5", "no model 't5'; known are a100-40g", id="an unknown model"),
        pytest.param("t4x0", "a100-40gx2", id="no gpu"),
        pytest.param("t4 x2", "a100-40gx2", id="a space"),
        pytest.param("t4,", "a100-40gx2", id="an empty entry"),
        pytest.param("t4:mig", "t4 has no MIG", id="one that cannot be cut"),
        pytest.param("t4x17", "17 are too many; write at most 16", id="too many"),
    ],
)
def test_what_makes_no_sense_is_told(text, message):
    with pytest.raises(ConfigError, match=message):
        read_gpus(text, "n")
