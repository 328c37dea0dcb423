"""Signed allocations: the bytes that are signed, and the annotation's value both ways."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.errors import Malformed
from hami.domain.extra import NO_EXTRA, ExtraKey
from hami.wire.signature import Signature, decode_signature, encode_signature, payload


@dataclass(frozen=True)
class Place:
    start: int
    size: int


@dataclass(frozen=True)
class Instance:
    profile: str
    place: Place


INSTANCE = ExtraKey("acme.instance", Instance)
MARKS = ExtraKey("acme.marks", frozenset[str])
ONE = NO_EXTRA.with_(INSTANCE, Instance("1g", Place(4, 1)))

GRANT = Grant(device_id="d0", vendor="ACME", memory_mib=3000, cores=30, extra=ONE)
OTHER = Grant(device_id="n0", vendor="BOLT", memory_mib=512, cores=100)
ALLOCATION = PodAllocation(
    node="n1",
    containers=(
        ContainerAllocation(name="start", kind=ContainerKind.INIT),
        ContainerAllocation(name="läuft", kind=ContainerKind.APP, grants=(GRANT, OTHER)),
    ),
)
UID = "2f0d6d5e-5d8a-4f6b-9a6c-0d3f5b1c7e11"


def with_grant(**fields) -> PodAllocation:
    changed = replace(GRANT, **fields)
    return in_app(grants=(changed, OTHER))


def in_app(**fields) -> PodAllocation:
    first, app = ALLOCATION.containers
    return replace(ALLOCATION, containers=(first, replace(app, **fields)))


def test_the_signed_bytes_golden():
    assert payload(UID, ALLOCATION, 1).decode() == (
        '{"containers":[{"grants":[],"kind":"init","name":"start"},'
        '{"grants":['
        '{"cores":30,"extra":{"acme.instance":{"place":{"size":1,"start":4},"profile":"1g"}},'
        '"id":"d0","mem":3000,"vendor":"ACME"},'
        '{"cores":100,"extra":{},"id":"n0","mem":512,"vendor":"BOLT"}],'
        '"kind":"app","name":"läuft"}],'
        '"generation":1,"node":"n1","uid":"2f0d6d5e-5d8a-4f6b-9a6c-0d3f5b1c7e11","v":1}'
    )


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(payload("another", ALLOCATION, 1), id="the pod's uid"),
        pytest.param(payload(UID, ALLOCATION, 2), id="the generation"),
        pytest.param(payload(UID, replace(ALLOCATION, node="n2"), 1), id="the node"),
        pytest.param(payload(UID, with_grant(device_id="d1"), 1), id="a device"),
        pytest.param(payload(UID, with_grant(vendor="AAAA"), 1), id="a vendor"),
        pytest.param(payload(UID, with_grant(memory_mib=3001), 1), id="memory"),
        pytest.param(payload(UID, with_grant(cores=31), 1), id="cores"),
        pytest.param(payload(UID, with_grant(extra=NO_EXTRA), 1), id="a vendor's own value is gone"),
        pytest.param(
            payload(UID, with_grant(extra=NO_EXTRA.with_(INSTANCE, Instance("1g", Place(5, 1)))), 1),
            id="a number within a vendor's own value",
        ),
        pytest.param(payload(UID, in_app(name="c"), 1), id="a container's name"),
        pytest.param(payload(UID, in_app(kind=ContainerKind.SIDECAR), 1), id="a container's kind"),
        pytest.param(payload(UID, in_app(grants=(GRANT,)), 1), id="a grant less"),
        pytest.param(payload(UID, in_app(grants=(GRANT, GRANT, OTHER)), 1), id="a grant more"),
        pytest.param(
            payload(UID, replace(ALLOCATION, containers=ALLOCATION.containers[::-1]), 1),
            id="the order of containers",
        ),
    ],
)  # fmt: skip
def test_a_change_of_anything_changes_the_signed_bytes(other):
    assert other != payload(UID, ALLOCATION, 1)


def test_grants_of_two_vendors_are_signed_alike_in_any_order():
    """Annotations keep no order between vendors."""
    assert payload(UID, in_app(grants=(OTHER, GRANT)), 1) == payload(UID, ALLOCATION, 1)


def test_the_order_of_two_devices_of_one_vendor_is_signed():
    second = replace(GRANT, device_id="d1")
    one_way, other_way = in_app(grants=(GRANT, second)), in_app(grants=(second, GRANT))
    assert payload(UID, one_way, 1) != payload(UID, other_way, 1)


def test_sets_within_a_vendors_value_are_sorted():
    marks = NO_EXTRA.with_(MARKS, frozenset(f"mark-{n}" for n in range(9)))
    signed = json.loads(payload(UID, with_grant(extra=marks), 1))
    shown = signed["containers"][1]["grants"][0]["extra"]["acme.marks"]
    assert shown == sorted(shown)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(0, 2**31 - 1)
grants = st.builds(
    Grant, device_id=texts, vendor=st.sampled_from(["ACME", "BOLT"]), memory_mib=numbers, cores=numbers,
    extra=st.sampled_from([NO_EXTRA, ONE]),
)  # fmt: skip
containers = st.builds(
    ContainerAllocation,
    name=texts,
    kind=st.sampled_from(list(ContainerKind)),
    grants=st.lists(grants, max_size=3).map(tuple),
)
allocations = st.builds(
    PodAllocation, node=texts, containers=st.lists(containers, max_size=3).map(tuple)
)


@given(texts, allocations, st.integers(0, 2**63 - 1))
def test_the_signed_bytes_are_plain_json_that_any_language_can_write(uid, allocation, generation):
    written = payload(uid, allocation, generation)
    again = json.dumps(
        json.loads(written), sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )
    assert json.loads(written)["v"] == 1
    assert written.decode() == again


signatures = st.builds(
    Signature,
    key_id=st.text("0123456789abcdef", min_size=8, max_size=8),
    generation=st.integers(0, 2**63 - 1),
    value=st.binary(min_size=64, max_size=64),
)


@given(signatures)
def test_a_value_is_read_back(signature):
    assert decode_signature(encode_signature(signature)) == signature


def test_the_values_text_golden():
    signature = Signature(key_id="0a1b2c3d", generation=7, value=bytes(range(192, 256)))
    assert encode_signature(signature) == (
        "0a1b2c3d.7.wMHCw8TFxsfIycrLzM3Oz9DR0tPU1dbX2Nna29zd3t_g4eLj5OXm5-jp6uvs7e7v8PHy8_T19vf4-fr7_P3-_w"
    )


VALUE = base64.urlsafe_b64encode(bytes(64)).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("0a1b2c3d", id="a key alone"),
        pytest.param(f"0a1b2c3d.{VALUE}", id="no generation"),
        pytest.param(f"0a1b2c3d..{VALUE}", id="an empty generation"),
        pytest.param(f"0a1b2c3d.-1.{VALUE}", id="a negative generation"),
        pytest.param(f"0a1b2c3d.01.{VALUE}", id="a second spelling of 1"),
        pytest.param(f"0a1b2c3d.1.0.{VALUE}", id="a part too many"),
        pytest.param(f"0a1b2c3d.{2**63}.{VALUE}", id="a generation of 64 bits"),
        pytest.param(f"0a1b2c3d.\u0661.{VALUE}", id="a digit that is not ASCII"),
        pytest.param(f"0A1B2C3D.1.{VALUE}", id="a key in capitals"),
        pytest.param(f"0a1b2c3.1.{VALUE}", id="a key too short"),
        pytest.param(f"0a1b2c3d.1.{VALUE}==", id="with padding"),
        pytest.param(f"0a1b2c3d.1.{VALUE[:-1]}", id="cut"),
        pytest.param(f"0a1b2c3d.1.{VALUE}A", id="too long"),
        pytest.param(f"0a1b2c3d.1.{VALUE[:-1]}B", id="bits beyond the last byte"),
        pytest.param(f"0a1b2c3d.1.{'+' * 86}", id="base64 that is not for URLs"),
        pytest.param(f"0a1b2c3d.1.{VALUE}\n", id="a line end"),
        pytest.param(f" 0a1b2c3d.1.{VALUE}", id="a blank"),
    ],
)  # fmt: skip
def test_every_other_text_is_malformed(text):
    read = decode_signature(text)
    assert isinstance(read, Malformed)
    assert read.annotation == "hami.io/allocation-signature"


@given(st.text(max_size=120))
def test_no_text_is_too_strange(text):
    read = decode_signature(text)
    assert isinstance(read, Malformed) or encode_signature(read) == text


@pytest.mark.parametrize(
    "signature",
    [
        pytest.param(Signature(key_id="xyz", generation=1, value=bytes(64)), id="a key id"),
        pytest.param(Signature(key_id="0a1b2c3d", generation=-1, value=bytes(64)), id="negative"),
        pytest.param(Signature(key_id="0a1b2c3d", generation=2**63, value=bytes(64)), id="too large"),
        pytest.param(Signature(key_id="0a1b2c3d", generation=1, value=bytes(63)), id="too short"),
    ],
)  # fmt: skip
def test_what_could_not_be_read_back_is_not_written(signature):
    with pytest.raises(ValueError, match="not"):
        encode_signature(signature)
