"""The text register: what HAMi's own cases say, faults by name and order, round trips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hami.domain.devices import Device
from hami.domain.errors import Malformed
from hami.wire.codecs import decode_register_csv, encode_register_csv

KEY = "hami.io/node-dcu-register"
P4 = "GPU-ebe7c3f7-303d-558d-435e-99a160631fe4,10,7680,100,NVIDIA-Tesla P4,0,true"
GOOD = ["id", "10", "7680", "100", "model", "0", "true", "1", "hami-core"]


def read(text):
    return decode_register_csv(text, annotation=KEY, vendor="DCU")


def a_p4(**changes):
    p4 = Device(
        id="GPU-ebe7c3f7-303d-558d-435e-99a160631fe4",
        vendor="DCU",
        model="NVIDIA-Tesla P4",
        slots=10,
        memory_mib=7680,
        cores=100,
        mode="hami-core",
    )
    return replace(p4, **changes)


def a_line(**fields):
    """A good device of nine fields, with some of them replaced."""
    names = ("id", "count", "memory", "core", "type", "numa", "health", "index", "mode")
    return ",".join(fields.get(name, good) for name, good in zip(names, GOOD, strict=True)) + ":"


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        pytest.param(f"{P4}:", (a_p4(),), id="seven fields mean index 0 and mode hami-core"),
        pytest.param(f"{P4},1,hami-core:", (a_p4(index=1),), id="nine fields"),
        pytest.param(f"{P4},1,:", (a_p4(index=1, mode=""),), id="an empty mode stays empty"),
        pytest.param(":", (), id="a lone separator is no device"),
        pytest.param(":::", (), id="empty segments are skipped"),
        pytest.param(f"::{P4}::", (a_p4(),), id="empty segments around a device are skipped"),
        pytest.param(P4 + ":" + P4.replace("4,", "5,", 1) + ":",
                     (a_p4(), a_p4(id="GPU-ebe7c3f7-303d-558d-435e-99a160631fe5")),
                     id="two devices in their order"),
        pytest.param(f":{P4}", (a_p4(),), id="the last separator may be missing"),
    ],
)  # fmt: skip
def test_reads(text, devices):
    assert read(text) == devices


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"count": "+7"}, {"slots": 7}, id="a plus sign"),
        pytest.param({"count": "-7"}, {"slots": -7}, id="a minus sign"),
        pytest.param({"memory": "007680"}, {"memory_mib": 7680}, id="leading zeros"),
        pytest.param({"memory": "2147483647"}, {"memory_mib": 2147483647}, id="the largest int32"),
        pytest.param({"memory": "-2147483648"}, {"memory_mib": -(1 << 31)}, id="the smallest"),
        pytest.param({"memory": "0" * 5000 + "1"}, {"memory_mib": 1}, id="very many zeros"),
        pytest.param({"numa": "-1"}, {"numa": -1}, id="no NUMA node"),
        *(pytest.param({"health": t}, {"healthy": True}, id=f"{t} is healthy")
          for t in ("1", "t", "T", "TRUE", "true", "True")),
        *(pytest.param({"health": t}, {"healthy": False}, id=f"{t} is not healthy")
          for t in ("0", "f", "F", "FALSE", "false", "False")),
    ],
)  # fmt: skip
def test_reads_fields_as_go_does(fields, expected):
    (device,) = read(a_line(**fields))
    assert {name: getattr(device, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        pytest.param("", "", "no ':'", id="nothing at all"),
        pytest.param("a,b", "", "no ':'", id="no separator"),
        pytest.param("abc:", "device 0", "no ','", id="a segment without a comma"),
        pytest.param(f"{a_line()}abc:", "device 1", "no ','", id="the second segment is bad"),
        pytest.param("\n:", "device 0", "no ','", id="a newline is no device"),
        pytest.param(",,,:", "device 0", "4 fields", id="four empty fields"),
        pytest.param("a,1,2,3,t,0,true,1:", "device 0", "8 fields", id="eight fields"),
        pytest.param(",,,,,,:", "device 0, count", "whole number", id="seven empty fields"),
        pytest.param(a_line(count="x"), "device 0, count", "whole number", id="count of letters"),
        pytest.param(a_line(count=" 1"), "device 0, count", "whole number", id="a blank"),
        pytest.param(a_line(count="1_0"), "device 0, count", "whole number", id="an underscore"),
        pytest.param(a_line(count="0x10"), "device 0, count", "whole number", id="hexadecimal"),
        pytest.param(a_line(count="1.0"), "device 0, count", "whole number", id="a fraction"),
        pytest.param(a_line(count="\u0661"), "device 0, count", "whole number", id="Arabic"),
        pytest.param(a_line(memory="2147483648"), "device 0, memory", "32 bits", id="beyond int32"),
        pytest.param(a_line(memory="9" * 5000), "device 0, memory", "32 bits", id="many digits"),
        pytest.param(a_line(core=""), "device 0, core", "whole number", id="no core"),
        pytest.param(a_line(health="yes"), "device 0, health", "true nor false", id="health yes"),
        pytest.param(a_line(health="tRUE"), "device 0, health", "true nor false", id="mixed case"),
        pytest.param(a_line(numa="x"), "device 0, numa", "whole number", id="numa of letters"),
        pytest.param(a_line(index="x"), "device 0, index", "whole number", id="index of letters"),
        pytest.param(a_line(index="-1"), "device 0, index", "negative", id="a negative index"),
        pytest.param(a_line(id=""), "device 0, id", "no device id", id="no id"),
        pytest.param(a_line(id="a;b"), "device 0, id", ",:;", id="an id no pod list could name"),
        pytest.param(a_line() * 2, "device 1, id", "twice", id="an id that occurs twice"),
    ],
)  # fmt: skip
def test_faults_are_named(text, position, problem):
    bad = read(text)
    assert isinstance(bad, Malformed)
    assert (bad.annotation, bad.position) == (KEY, position)
    assert problem in bad.problem
    assert len(bad.text) <= 80


def test_a_fault_reads_as_one_sentence():
    assert str(read(a_line(count="ten"))) == (
        "annotation hami.io/node-dcu-register, device 0, count: "
        "not a whole number of 32 bits in plain digits: 'ten'"
    )


def test_faults_are_found_in_the_order_of_hami():
    broken = dict.fromkeys(("count", "memory", "core", "health", "numa", "index"), "?")
    found = []
    while broken:
        found.append(read(a_line(id="", **broken)).position.removeprefix("device 0, "))
        del broken[found[-1]]
    assert found == ["count", "memory", "core", "health", "numa", "index"]


def test_writes_nine_fields():
    assert encode_register_csv([a_p4(index=1)]) == f"{P4},1,hami-core:"


def test_writes_an_unhealthy_device():
    assert encode_register_csv([a_p4(healthy=False)]) == f"{P4[:-4]}false,0,hami-core:"


def test_hami_bug_fixed_an_empty_register_can_be_read_back():
    assert read(encode_register_csv([])) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"id": "a,b"}, "device 'a,b': id", id="a comma in the id"),
        pytest.param({"id": ""}, "device '': id", id="no id"),
        pytest.param({"model": "A:B"}, "device 'GPU-.*': model: 'A:B'", id="a colon in the model"),
        pytest.param({"model": "A;B"}, "device 'GPU-.*': model: 'A;B'", id="a semicolon in it"),
        pytest.param({"mode": "a,b"}, "device 'GPU-.*': mode: 'a,b'", id="a comma in the mode"),
        pytest.param({"index": -1}, "index: -1 is negative", id="a negative index"),
        pytest.param({"memory_mib": 1 << 31}, "memory_mib: 2147483648", id="beyond int32"),
    ],
)
def test_refuses_to_write_what_nobody_could_read(change, message):
    with pytest.raises(ValueError, match=message):
        encode_register_csv([a_p4(**change)])


def test_refuses_to_write_an_id_twice():
    with pytest.raises(ValueError, match="occurs twice"):
        encode_register_csv([a_p4(), a_p4(index=1)])


int32 = st.integers(-(1 << 31), (1 << 31) - 1)
plain = st.text(st.characters(exclude_characters=",:;"), max_size=12)
devices = st.lists(
    st.builds(
        Device,
        id=plain.filter(bool),
        vendor=st.just("DCU"),
        index=st.integers(0, (1 << 31) - 1),
        model=plain,
        slots=int32,
        memory_mib=int32,
        cores=int32,
        numa=int32,
        mode=plain,
        healthy=st.booleans(),
    ),
    unique_by=lambda device: device.id,
    max_size=5,
).map(tuple)


@given(devices)
def test_what_is_written_reads_back_alike(devices):
    assert read(encode_register_csv(devices)) == devices


near_csv = st.lists(
    st.sampled_from([",", ":", ";", "1", "-1", "true", "a", " ", "\n", *GOOD]), max_size=30
).map("".join)


@given(st.text() | near_csv)
def test_no_text_raises(text):
    answer = read(text)
    assert isinstance(answer, Malformed) or all(d.id and d.vendor == "DCU" for d in answer)
