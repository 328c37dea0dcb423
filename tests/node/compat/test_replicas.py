"""The ids of HAMi's plugin, and the device that each of them names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.node.compat.replicas import LONGEST, device_of, replicas
from hami.node.kubelet.tokens import Token

from ..kubelet.test_tokens import UUID, a_gpu, sick


def test_replicas_are_numbered_per_device():
    tokens = replicas([a_gpu(UUID, 2, numa=1), sick("MIG-1", 1)], numa=True)
    assert tokens == (
        Token(f"{UUID}-0", True, 1),
        Token(f"{UUID}-1", True, 1),
        Token("MIG-1-0", False, 0),
    )


@pytest.mark.parametrize(
    ("numa", "asked", "expected"),
    [
        pytest.param(1, True, 1, id="said when asked"),
        pytest.param(1, False, None, id="not said when not asked"),
        pytest.param(-1, True, None, id="unknown"),
    ],
)
def test_the_numa_node_of_a_replica(numa, asked, expected):
    [token] = replicas([a_gpu(slots=1, numa=numa)], numa=asked)
    assert token.numa == expected


@pytest.mark.parametrize(
    ("token", "device"),
    [
        pytest.param(f"{UUID}-10", UUID, id="a replica"),
        pytest.param(f"{UUID}::replica-1", UUID, id="a replica of time slicing"),
        pytest.param(UUID, UUID, id="a device"),
        pytest.param("GPU-0f3a1f2c-303d-558d-435e-991606310123", "GPU-0f3a1f2c-303d-558d-435e-991606310123", id="a device that ends in digits"),
        pytest.param("MIG-0f3a1f2c-303d-558d-435e-99a160631fe4", "MIG-0f3a1f2c-303d-558d-435e-99a160631fe4", id="a MIG device"),
        pytest.param(f"{UUID}-x", f"{UUID}-x", id="no number"),
        pytest.param("slot-3", "slot-3", id="a token"),
        pytest.param("", "", id="nothing"),
    ],
)  # fmt: skip
def test_the_device_of_a_replica(token, device):
    assert device_of(token) == device


@given(st.text(min_size=1, max_size=120), st.text(min_size=1, max_size=120), st.integers(1, 12))
def test_a_known_device_is_found_from_each_of_its_replicas(first, second, slots):
    devices = [a_gpu(first, slots), a_gpu(second, slots)]
    known = [first, second]
    tokens = replicas(devices, numa=False)
    assert all(len(token.id) <= LONGEST for token in tokens)
    own = [token for token in tokens if token.id not in known]
    for token in own:
        device = device_of(token.id, known)
        assert token in replicas([a_gpu(device, slots)], numa=False)


def test_long_ids_of_two_devices_stay_apart():
    ids = ["x" * 80 + end for end in "ab"]
    tokens = replicas([a_gpu(id, 300) for id in ids], numa=False)
    assert len({token.id for token in tokens}) == 600
    assert {device_of(token.id, ids) for token in tokens} == set(ids)
