"""Whether a node's devices are still there, by each of the three signs of life."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.profile import NodeAnnotations
from hami.policy.profile.liveness import HANDSHAKE_PATIENCE, alive
from hami.wire.codecs import encode_requesting

from ..builders import a_node, the_vendors

NOW = datetime(2026, 1, 2, 12, 0, 0)  # noqa: DTZ001 - handshakes name no zone
COUNT = "acme.com/gpu"
HANDSHAKE = "acme.com/handshake"
ACME = replace(
    the_vendors()["ACME"].profile,
    node_annotations=NodeAnnotations(register="acme.com/register", handshake=HANDSHAKE),
)
CAPACITY = replace(ACME, liveness="capacity")
ASKED = replace(ACME, liveness="handshake")
ALWAYS = replace(ACME, liveness="always")


def requesting(seconds_ago: float) -> str:
    return encode_requesting(NOW - timedelta(seconds=seconds_ago))


@pytest.mark.parametrize(
    ("handshake", "allocatable", "expected"),
    [
        pytest.param(requesting(0), None, True, id="asked now"),
        pytest.param(requesting(59), None, True, id="asked 59 s ago"),
        pytest.param(requesting(60), None, False, id="asked 60 s ago: gone"),
        pytest.param(requesting(7200), None, False, id="asked two hours ago"),
        pytest.param(requesting(-3600), None, True, id="asked by a clock that runs ahead"),
        pytest.param(requesting(7200), {COUNT: "2"}, True, id="no answer, but the kubelet still offers devices"),
        pytest.param(requesting(7200), {COUNT: "0"}, False, id="no answer, and the kubelet offers none"),
        pytest.param(requesting(7200), {"bolt.io/npu": "2"}, False, id="another vendor's devices prove nothing"),
        pytest.param(requesting(7200), {COUNT: "many"}, False, id="a count that cannot be read proves nothing"),
        pytest.param("Requesting", None, True, id="fix: asked at no time"),
        pytest.param("Requesting_garbage", None, True, id="fix: asked at a time that cannot be read"),
        pytest.param("Requesting_2026-13-45 99:99:99", None, True, id="asked at a time that never was"),
        pytest.param("Reported 2026-01-02 11:00:00", None, True, id="it answered"),
        pytest.param("Reported", None, True, id="it answered without a time"),
        pytest.param("Unknown", None, True, id="nobody has asked yet"),
        pytest.param("Deleted_2026-01-01 00:00:00", None, True, id="fix: given up by an old scheduler, not forever"),
        pytest.param("", None, True, id="empty"),
        pytest.param(None, None, True, id="absent"),
    ],
)  # fmt: skip
def test_handshake(handshake, allocatable, expected):
    annotations = {} if handshake is None else {HANDSHAKE: handshake}
    node = a_node("n1", annotations=annotations, allocatable=allocatable)
    assert alive(ASKED, node, NOW) is expected


@pytest.mark.parametrize(
    ("allocatable", "expected", "on_paper"),
    [
        pytest.param({COUNT: "8"}, True, True, id="devices are offered"),
        pytest.param({COUNT: "10k"}, True, True, id="in any spelling"),
        pytest.param({COUNT: "0"}, False, False, id="none is offered"),
        pytest.param({COUNT: "-1"}, False, False, id="less than none"),
        pytest.param({COUNT: "?"}, False, False, id="what cannot be read is not offered"),
        pytest.param({"cpu": "4"}, False, True, id="not listed: on paper that is left out"),
        pytest.param(None, False, True, id="no status: on paper there is none"),
    ],
)
def test_capacity(allocatable, expected, on_paper):
    node = a_node("n1", allocatable=allocatable)
    assert alive(CAPACITY, node, NOW) is expected
    assert alive(CAPACITY, node, NOW, absent_is_alive=True) is on_paper


def test_a_manifest_with_an_old_handshake_counts_as_alive_on_paper():
    node = a_node("n1", annotations={HANDSHAKE: requesting(7200)})
    assert alive(ASKED, node, NOW, absent_is_alive=True)


def test_always():
    node = a_node("n1", annotations={HANDSHAKE: requesting(7200)}, allocatable={COUNT: "0"})
    assert alive(ALWAYS, node, NOW)


def test_each_vendor_reads_its_own_annotation():
    other = a_node("n1", annotations={"bolt.io/handshake": requesting(7200)})
    assert alive(ASKED, other, NOW)


@given(seconds=st.integers(-(10**6), 10**6))
def test_an_answer_may_take_a_minute_and_no_more(seconds):
    node = a_node("n1", annotations={HANDSHAKE: requesting(seconds)})
    assert alive(ASKED, node, NOW) is (timedelta(seconds=seconds) < HANDSHAKE_PATIENCE)


@given(text=st.text())
def test_any_handshake_has_a_meaning(text):
    node = a_node("n1", annotations={HANDSHAKE: text})
    assert alive(ASKED, node, NOW) in (True, False)
