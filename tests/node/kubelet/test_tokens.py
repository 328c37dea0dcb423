"""The ids that kubelet counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.devices import Device
from hami.domain.units import DeviceId, VendorKey
from hami.node.kubelet.tokens import Token, kubelet_tokens

UUID = "GPU-0f3a1f2c-303d-558d-435e-99a160631fe4"


def a_gpu(id: str = "a", slots: int = 2, *, healthy: bool = True, numa: int = 0) -> Device:
    return Device(id=DeviceId(id), vendor=VendorKey("X"), slots=slots, healthy=healthy, numa=numa)


def sick(id: str = "b", slots: int = 2) -> Device:
    return a_gpu(id, slots, healthy=False)


def shown(tokens: tuple[Token, ...]) -> str:
    """Each token's number, with a ``!`` where it is unhealthy."""
    return " ".join(t.id.removeprefix("slot-") + "!" * (not t.healthy) for t in tokens)


@pytest.mark.parametrize(
    ("devices", "held", "on_failed", "expected"),
    [
        pytest.param([], [], [], "", id="a node without devices has none"),
        pytest.param([a_gpu(slots=3)], [], [], "0 1 2", id="one per slot"),
        pytest.param([a_gpu(), a_gpu("c")], [], [], "0 1 2 3", id="of all devices together"),
        pytest.param([a_gpu(), sick()], [], [], "0 1 2! 3!", id="a failed device takes its slots away"),
        pytest.param([sick()], [], [], "0! 1!", id="nothing is left of a single one"),
        pytest.param([a_gpu(), sick()], [0], [], "0 1 2! 3!", id="a held one counts against the healthy"),
        pytest.param([a_gpu(), sick()], [0], [0], "0 1 2 3!", id="unless it is on the failed one"),
        pytest.param([a_gpu(), sick()], [3], [], "0 1! 2! 3", id="a held one stays healthy"),
        pytest.param([a_gpu(), sick()], [2, 3], [2, 3], "0 1 2 3", id="held on the failed, the others are free"),
        pytest.param([a_gpu(), sick()], [0, 1, 2], [], "0 1 2 3!", id="more held than healthy slots"),
        pytest.param([a_gpu()], [5], [], "0 1! 5", id="held beyond the last slot"),
        pytest.param([a_gpu()], [5, 5], [5], "0 1 5", id="held beyond, on a failed device"),
        pytest.param([a_gpu(slots=12)], [30, 13], [], "0 1 2 3 4 5 6 7 8 9 10! 11! 13 30", id="in order of number"),
    ],
)  # fmt: skip
def test_tokens_of_a_node(devices, held, on_failed, expected):
    held = [f"slot-{n}" for n in held]
    on_failed = [f"slot-{n}" for n in on_failed]
    assert shown(kubelet_tokens(devices, held, on_failed)) == expected


def test_ids_of_another_plugin_stay_while_they_are_held():
    tokens = kubelet_tokens([a_gpu()], [f"{UUID}-7", "slot-01"], [])
    assert [t.id for t in tokens] == ["slot-0", "slot-1", f"{UUID}-7", "slot-01"]
    assert [t.healthy for t in tokens] == [False, False, True, True]


device_lists = st.lists(
    st.builds(a_gpu, st.text(max_size=3), st.integers(0, 6), healthy=st.booleans()), max_size=5
)
numbers = st.frozensets(st.integers(0, 40))


@given(device_lists, numbers, numbers)
def test_what_kubelet_may_give_away_is_what_is_left(devices, held, on_failed):
    held_ids = {f"slot-{n}" for n in held}
    failed_ids = {f"slot-{n}" for n in on_failed}
    tokens = kubelet_tokens(devices, held_ids, failed_ids)
    ids = [token.id for token in tokens]
    assert len(set(ids)) == len(ids)
    assert held_ids <= set(ids)
    assert {f"slot-{n}" for n in range(sum(d.slots for d in devices))} <= set(ids)
    assert all(token.healthy for token in tokens if token.id in held_ids)
    healthy = sum(d.slots for d in devices if d.healthy)
    free = [token for token in tokens if token.id not in held_ids]
    left = max(0, healthy - len(held_ids - failed_ids))
    assert sum(token.healthy for token in free) == min(left, len(free))
    assert all(token.numa is None for token in tokens)
