"""A pod's device list: HAMi's cases, faults by name, round trips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.devices import Grant
from hami.domain.errors import Malformed
from hami.wire.codecs import containers_of, decode_pod_devices, encode_pod_devices

KEY = "hami.io/vgpu-devices-allocated"


def read(text):
    return decode_pod_devices(text, annotation=KEY, vendor="NVIDIA")


def on(device, memory=1000, cores=30):
    return Grant(device_id=device, vendor="NVIDIA", memory_mib=memory, cores=cores)


GPU_67D = on("GPU-03f69c50-207a-2038-9b45-23cac89cb67d", 3000, 0)
GPU_67A = on("GPU-03f69c50-207a-2038-9b45-23cac89cb67a", 3000, 0)
TEXT_67D = "GPU-03f69c50-207a-2038-9b45-23cac89cb67d,NVIDIA,3000,0:;"
TEXT_67A = "GPU-03f69c50-207a-2038-9b45-23cac89cb67a,NVIDIA,3000,0:;"


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        pytest.param("", ((),), id="nothing is one empty slot"),
        pytest.param(";", ((), ()), id="one container without a device"),
        pytest.param("UUID1,Type1,1000,30:;", ((on("UUID1"),), ()), id="one device"),
        pytest.param("UUID1,Type1,1000,30:;UUID1,Type1,1000,30:;",
                     ((on("UUID1"),), (on("UUID1"),), ()), id="two containers on one device"),
        pytest.param("UUID1,Type1,1000,30:UUID2,Type1,1000,30:;",
                     ((on("UUID1"), on("UUID2")), ()), id="one container on two devices"),
        pytest.param(TEXT_67D + TEXT_67A, ((GPU_67D,), (GPU_67A,), ()), id="real ids"),
        pytest.param(";GPU-a,NVIDIA,1000,30:;", ((), (on("GPU-a"),), ()), id="an idle init first"),
        pytest.param("GPU-a,NVIDIA,1000,30", ((on("GPU-a"),),), id="no separators at the end"),
        pytest.param("GPU-a,NVIDIA,1000,30,x,y:;", ((on("GPU-a"),), ()), id="more fields"),
        pytest.param("GPU-a,,1000,30:;", ((on("GPU-a"),), ()), id="no type"),
        pytest.param("abc:GPU-a,NVIDIA,1000,30:;", ((on("GPU-a"),), ()), id="no comma in it"),
        pytest.param("GPU-a,NVIDIA,+1000,030:;", ((on("GPU-a"),), ()), id="signs and zeros"),
        pytest.param(";;;", ((), (), (), ()), id="grown by a plugin that took the devices off"),
        pytest.param("GPU-a[0-2],NVIDIA,1000,30:;", ((on("GPU-a[0-2]"),), ()), id="an old MIG id"),
    ],
)  # fmt: skip
def test_reads(text, slots):
    assert read(text) == slots


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        pytest.param("uuid,type,100:;", "container 0, device 0", "3 fields", id="three fields"),
        pytest.param(";a,t,1,1:b,t:;", "container 1, device 1", "2 fields", id="a later device"),
        pytest.param("a,t,x,1:;", "container 0, device 0, memory", "whole number", id="memory x"),
        pytest.param("a,t,1,x:;", "container 0, device 0, cores", "whole number", id="cores x"),
        pytest.param("a,t,,1:;", "container 0, device 0, memory", "whole number", id="no memory"),
        pytest.param("a,t, 1,1:;", "container 0, device 0, memory", "whole number", id="a blank"),
        pytest.param("a,t,2147483648,1:;", "container 0, device 0, memory", "32 bits", id="int33"),
        pytest.param("a,t,-1,1:;", "container 0, device 0, memory", "negative", id="below 0"),
        pytest.param("a,t,1,-1:;", "container 0, device 0, cores", "negative", id="cores below 0"),
        pytest.param(",t,1,1:;", "container 0, device 0, id", "no device id", id="no id"),
        pytest.param("a,t,x,1:;b,t,-1,1:;", "container 0, device 0, memory", "whole",
                     id="the first of two faults"),
    ],
)  # fmt: skip
def test_faults_are_named(text, position, problem):
    bad = read(text)
    assert isinstance(bad, Malformed)
    assert (bad.annotation, bad.position) == (KEY, position)
    assert problem in bad.problem


def test_a_decoded_grant_is_one_slot_of_the_vendor_asked_for():
    ((grant,), _) = read("UUID1,Type1,1000,30:;")
    assert (grant.slots, grant.vendor) == (1, "NVIDIA")


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        pytest.param([], "", id="no container"),
        pytest.param([[]], ";", id="a container without a device"),
        pytest.param([[GPU_67D]], TEXT_67D, id="one device"),
        pytest.param([[GPU_67D], [GPU_67A]], TEXT_67D + TEXT_67A, id="two containers"),
        pytest.param([[on("GPU-a", 3000, 0), on("GPU-b", 3000, 0)]],
                     "GPU-a,NVIDIA,3000,0:GPU-b,NVIDIA,3000,0:;", id="two devices"),
        pytest.param([[], [on("GPU-a")]], ";GPU-a,NVIDIA,1000,30:;", id="an idle init first"),
    ],
)  # fmt: skip
def test_writes(containers, text):
    assert encode_pod_devices(containers) == text


@pytest.mark.parametrize(
    ("grant", "message"),
    [
        pytest.param(on("a:b"), "device 'a:b': id", id="a colon in the id"),
        pytest.param(on(""), "device '': id", id="no id"),
        pytest.param(on("a", memory=-1), "device 'a': memory_mib: -1", id="negative memory"),
        pytest.param(on("a", cores=1 << 31), "device 'a': cores: 2147483648", id="beyond int32"),
    ],
)
def test_refuses_to_write_what_nobody_could_read(grant, message):
    with pytest.raises(ValueError, match=message):
        encode_pod_devices([[grant]])


natural32 = st.integers(0, (1 << 31) - 1)
grants = st.builds(
    on, st.text(st.characters(exclude_characters=",:;"), min_size=1), natural32, natural32
)
containers = st.lists(st.lists(grants, max_size=3).map(tuple), max_size=4).map(tuple)


@given(containers)
def test_what_is_written_reads_back_alike_with_one_empty_slot_more(containers):
    assert read(encode_pod_devices(containers)) == (*containers, ())


near = st.lists(st.sampled_from([",", ":", ";", "1", "-1", "GPU-a,NVIDIA,1,1", " "]), max_size=20)


@given(st.text() | near.map("".join))
def test_no_text_raises_and_what_is_read_can_be_written(text):
    answer = read(text)
    if not isinstance(answer, Malformed):
        assert read(encode_pod_devices(answer)) == (*answer, ())


A, B = "A,t,1,1:", "B,t,1,1:"


@pytest.mark.parametrize(
    ("text", "asking", "owners"),
    [
        pytest.param(f"{A};{B};", "11", {0: 0, 1: 1}, id="everybody asks"),
        pytest.param(f";{A};", "01", {1: 1}, id="a slot for everybody"),
        pytest.param(f"{A};", "01", {0: 1}, id="HAMi's: none for whoever asks for none"),
        pytest.param(f"{A};{B};", "0101", {0: 1, 1: 3}, id="HAMi's: idle ones between"),
        pytest.param(f"{A};{B};", "1001", {0: 0, 1: 3}, id="HAMi's: idle ones after"),
        pytest.param(f"{A};;", "01", {0: 1}, id="HAMi's, to which its plugin added an end"),
        pytest.param(f"{A};;;;", "010", {0: 1}, id="or several"),
        pytest.param(A, "01", {0: 1}, id="without an end"),
        pytest.param(f"{A};", "011", {0: 1}, id="too few: the first that asks"),
        pytest.param(f"{A};{B};", "001", {0: 2, 1: None}, id="too many"),
        pytest.param(f"{A};{B};", "01", {0: 0, 1: 1}, id="too many, and a slot for everybody"),
        pytest.param(f";{B};", "11", {1: 1}, id="the first is taken off, a slot for everybody"),
        pytest.param(f"{A};{B};{A};", "11", {0: 0, 1: 1, 2: None}, id="more slots than containers"),
        pytest.param(";;", "11", {}, id="no devices"),
        pytest.param("", "1", {}, id="nothing"),
    ],
)  # fmt: skip
def test_whose_a_slot_is(text, asking, owners):
    """``asking``: a digit for each container."""
    slots = read(text)
    found = containers_of(slots, [digit == "1" for digit in asking])
    assert len(found) == len(slots)
    assert {n: owner for n, owner in enumerate(found) if slots[n]} == owners


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(0, 3), st.data())
def test_every_way_of_leaving_out_empty_slots_reads_alike(asking, grown, data):
    """Ours leaves out none, HAMi 2.10 all of them; those at the end come and go by themselves."""
    padded = [f"d{n},t,1,1:" if asks else "" for n, asks in enumerate(asking)]
    written = [slot for slot in padded if slot or data.draw(st.booleans())]
    slots = read("".join(f"{slot};" for slot in written) + ";" * grown)
    owners = containers_of(slots, asking)
    given_to = {owner: slot[0].device_id for owner, slot in zip(owners, slots, strict=True) if slot}
    assert given_to == {n: f"d{n}" for n, asks in enumerate(asking) if asks}
