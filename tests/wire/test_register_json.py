"""The JSON register: Go's reading of it, golden bytes, vendor extras, round trips."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hami.domain.devices import Device
from hami.domain.errors import Malformed
from hami.domain.extra import NO_EXTRA, ExtraKey
from hami.wire.codecs import decode_register_json, encode_register_json

KEY = "hami.io/node-nvidia-register"


class MigProfile(msgspec.Struct, frozen=True, rename={"memory": "memoryMB"}):
    name: str
    memory: int


MIG = ExtraKey("test.mig", tuple[MigProfile, ...])


def read_mig(item):
    profiles = item.get("migprofiles")
    return NO_EXTRA.with_(MIG, MIG.decode(profiles)) if profiles else NO_EXTRA


def write_mig(device):
    profiles = device.extra.get(MIG)
    return {"migProfiles": MIG.encode(profiles)} if profiles else {}


def read(text, read_extra=None):
    return decode_register_json(text, annotation=KEY, vendor="NVIDIA", read_extra=read_extra)


def a_gpu(**changes):
    gpu = Device(
        id="GPU-0",
        vendor="NVIDIA",
        model="NVIDIA-A100",
        slots=10,
        memory_mib=8192,
        cores=100,
        mode="hami-core",
    )
    return replace(gpu, **changes)


def nothing_but(id="GPU-0", **changes):
    """A device of which the register says only what is named here."""
    blank = Device(id=id, vendor="NVIDIA", slots=0, cores=0, healthy=False)
    return replace(blank, **changes)


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        pytest.param('[{"index":1,"id":"id-1","count":1,"devmem":1024,"devcore":10,"type":"type",'
                     '"health":true}]\n',
                     (a_gpu(id="id-1", index=1, slots=1, memory_mib=1024, cores=10, model="type",
                            mode=""),),
                     id="a newline at the end"),
        pytest.param('[{"id":"GPU-0","count":5,"devmem":8192,"devcore":100,"type":"NVIDIA-Tesla P4"'
                     ',"health":true,"mode":"hami-core"}]',
                     (a_gpu(slots=5, model="NVIDIA-Tesla P4"),), id="keys in any order"),
        pytest.param('[{"ID":"GPU-0","Health":true,"devMem":4}]',
                     (nothing_but(healthy=True, memory_mib=4),), id="keys in any case"),
        pytest.param('[{"id":"GPU-0"}]', (nothing_but(),), id="no health means not healthy"),
        pytest.param('[{"id":"GPU-0","health":null,"count":null,"type":null}]', (nothing_but(),),
                     id="null means absent"),
        pytest.param('[{"id":"GPU-0","devicepairscore":{},"custominfo":{"a":[1.5]}}]',
                     (nothing_but(),), id="unknown keys are ignored"),
        pytest.param('[{"id":"GPU-0","numa":-1,"count":-5}]', (nothing_but(numa=-1, slots=-5),),
                     id="negative numbers are numbers"),
        pytest.param("[]", (), id="an empty list"),
        pytest.param("null", (), id="null is an empty list"),
        pytest.param(' [ {"id":"GPU-1"} , {"id":"GPU-0"} ] ',
                     (nothing_but("GPU-1"), nothing_but()), id="blanks, and the order is kept"),
    ],
)  # fmt: skip
def test_reads_as_go_does(text, devices):
    assert read(text) == devices


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        pytest.param("", "", "not JSON", id="nothing at all"),
        pytest.param('[{"id":"GPU-0"', "", "not JSON", id="cut off"),
        pytest.param("[" * 100_000, "", "nested too deeply", id="a very deep list"),
        pytest.param('{"id":"GPU-0"}', "", "not a JSON list", id="an object"),
        pytest.param('"GPU-0"', "", "not a JSON list", id="a string"),
        pytest.param('["GPU-0"]', "device 0", "not a JSON object", id="a string as a device"),
        pytest.param('[{"id":"a","count":3.0}]', "device 0, count", "32 bits", id="3.0 is no int"),
        pytest.param('[{"id":"a","count":1e3}]', "device 0, count", "32 bits", id="1e3 is no int"),
        pytest.param('[{"id":"a","count":"1"}]', "device 0, count", "32 bits", id="quoted"),
        pytest.param('[{"id":"a","count":true}]', "device 0, count", "32 bits", id="true"),
        pytest.param('[{"id":"a","devmem":2147483648}]', "device 0, devmem", "32", id="int33"),
        pytest.param('[{"id":"a","devcore":[1]}]', "device 0, devcore", "32 bits", id="a list"),
        pytest.param('[{"id":"a","numa":{}}]', "device 0, numa", "32 bits", id="an object in it"),
        pytest.param('[{"id":"a","index":-1}]', "device 0, index", "negative", id="negative index"),
        pytest.param('[{"id":"a","type":1}]', "device 0, type", "not a string", id="type 1"),
        pytest.param('[{"id":"a","mode":["x"]}]', "device 0, mode", "not a string", id="mode list"),
        pytest.param('[{"id":1}]', "device 0, id", "not a string", id="id 1"),
        pytest.param('[{"id":"a","health":"true"}]', "device 0, health", "true nor", id="text"),
        pytest.param('[{"id":"a","health":1}]', "device 0, health", "true nor", id="health 1"),
        pytest.param('[{"count":1}]', "device 0, id", "no device id", id="no id"),
        pytest.param('[{"id":""}]', "device 0, id", "no device id", id="an empty id"),
        pytest.param('[{"id":"a:b"}]', "device 0, id", ",:;", id="an id no pod list could name"),
        pytest.param('[{"id":"a"},{"id":"b"},{"id":"a"}]', "device 2, id", "twice", id="again"),
        pytest.param(r'[{"id":"\ud800"}]', "", "not JSON", id="half a surrogate pair"),
        pytest.param("[\ud800]", "", "not JSON", id="a text that is no Unicode"),
    ],
)  # fmt: skip
def test_faults_are_named(text, position, problem):
    bad = read(text)
    assert isinstance(bad, Malformed)
    assert (bad.annotation, bad.position) == (KEY, position)
    assert problem in bad.problem
    assert len(bad.text) <= 80


def test_hami_bug_fixed_a_null_device_is_refused_and_crashes_nobody():
    assert str(read('[{"id":"a"},null]')) == (
        "annotation hami.io/node-nvidia-register, device 1: not a JSON object: 'null'"
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("GPU-0,10,7680,100,P4,0,true:", id="the text form"),
        pytest.param('[{"id":"GPU-0"}] x', id="text after the list"),
        pytest.param('[{"id":"GPU-0",}]', id="a comma too many"),
    ],
)
def test_broken_json_is_malformed_at_a_byte(text):
    assert read(text).position.startswith("byte ")


def test_broken_json_shows_the_text_around_the_fault():
    bad = read('[{"id":"GPU-0","count":01}' + " " * 50 + "]")
    assert bad.position.startswith("byte 2")
    assert '"count":01' in bad.text
    assert len(bad.text) <= 40


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        pytest.param([], "[]", id="no device"),
        pytest.param([a_gpu()], '[{"id":"GPU-0","count":10,"devmem":8192,"devcore":100,'
                     '"type":"NVIDIA-A100","mode":"hami-core","health":true}]',
                     id="index 0 and numa 0 are left out"),
        pytest.param([a_gpu(id="id-1", index=1, slots=1, memory_mib=1024, cores=10, model="type",
                            numa=1)],
                     '[{"id":"id-1","index":1,"count":1,"devmem":1024,"devcore":10,"type":"type",'
                     '"numa":1,"mode":"hami-core","health":true}]', id="every key in HAMi's order"),
        pytest.param([nothing_but()], '[{"id":"GPU-0"}]', id="false and zero are left out"),
        pytest.param([nothing_but(model="a<b>&\u2028\u2029é\b\x01")],
                     '[{"id":"GPU-0","type":"a\\u003cb\\u003e\\u0026\\u2028\\u2029é\\b\\u0001"}]',
                     id="escaped as Go escapes"),
    ],
)  # fmt: skip
def test_writes_as_go_does(devices, text):
    assert encode_register_json(devices) == text


def test_a_vendors_own_keys_stand_between_mode_and_health():
    profiles = (MigProfile("1g.5gb", 5120),)
    card = a_gpu(slots=7, memory_mib=40960, mode="mig", extra=NO_EXTRA.with_(MIG, profiles))
    text = encode_register_json([card], write_extra=write_mig)
    assert text == (
        '[{"id":"GPU-0","count":7,"devmem":40960,"devcore":100,"type":"NVIDIA-A100","mode":"mig",'
        '"migProfiles":[{"name":"1g.5gb","memoryMB":5120}],"health":true}]'
    )
    assert read(text, read_mig) == (card,)


def test_a_vendors_own_keys_are_read_in_any_case():
    (card,) = read('[{"id":"a","MIGProfiles":[{"name":"1g","memoryMB":1}]}]', read_mig)
    assert card.extra.get(MIG) == (MigProfile("1g", 1),)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ValueError("no such chip"), id="a ValueError"),
        pytest.param(msgspec.ValidationError("no such chip"), id="a msgspec.ValidationError"),
    ],
)
def test_a_vendor_that_cannot_read_its_keys_makes_the_register_malformed(error):
    def refuse(item):
        raise error

    assert str(read('[{"id":"GPU-7"}]', refuse)) == (
        "annotation hami.io/node-nvidia-register, device 0: no such chip: 'GPU-7'"
    )


def test_a_vendor_may_not_write_the_cores_keys():
    with pytest.raises(ValueError, match="device 'GPU-0': DevMem: the core writes"):
        encode_register_json([a_gpu()], write_extra=lambda device: {"DevMem": 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"id": "a;b"}, "device 'a;b': id", id="a semicolon in the id"),
        pytest.param({"index": -1}, "index: -1 is negative", id="a negative index"),
        pytest.param({"slots": 1 << 31}, "slots: 2147483648", id="beyond int32"),
        pytest.param({"model": "\ud800"}, "surrogates not allowed", id="no Unicode"),
    ],
)
def test_refuses_to_write_what_nobody_could_read(change, message):
    with pytest.raises(ValueError, match=message):
        encode_register_json([a_gpu(**change)])


int32 = st.integers(-(1 << 31), (1 << 31) - 1)
words = st.text(max_size=12)
devices = st.lists(
    st.builds(
        Device,
        id=st.text(st.characters(exclude_characters=",:;", codec="utf-8"), min_size=1, max_size=12),
        vendor=st.just("NVIDIA"),
        index=st.integers(0, (1 << 31) - 1),
        model=words,
        slots=int32,
        memory_mib=int32,
        cores=int32,
        numa=int32,
        mode=words,
        healthy=st.booleans(),
        extra=st.just(NO_EXTRA)
        | st.builds(
            lambda profiles: NO_EXTRA.with_(MIG, tuple(profiles)),
            st.lists(st.builds(MigProfile, name=words, memory=int32), min_size=1, max_size=3),
        ),
    ),
    unique_by=lambda device: device.id,
    max_size=4,
).map(tuple)


@given(devices)
def test_what_is_written_reads_back_alike(devices):
    text = encode_register_json(devices, write_extra=write_mig)
    assert read(text, read_mig) == devices
    assert not set(text) & set("<>&\u2028\u2029")


keys = st.sampled_from(
    ["id", "ID", "index", "count", "devmem", "devcore", "type", "numa", "mode", "health", "x"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(keys, scalars, max_size=2)
registers = st.lists(st.dictionaries(keys, values) | values, max_size=4)


@given(st.text() | registers.map(json.dumps) | values.map(json.dumps))
def test_no_text_raises(text):
    answer = read(text)
    assert isinstance(answer, Malformed) or all(d.id and d.vendor == "NVIDIA" for d in answer)


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**32), 2**32),
    st.floats(0, 9),
    st.text("ab:,", max_size=3),
)
_NAMES = [
    "id",
    "index",
    "count",
    "devmem",
    "devcore",
    "type",
    "numa",
    "mode",
    "health",
    "ID",
    "new",
]


@given(st.lists(st.dictionaries(st.sampled_from(_NAMES), _SCALARS, max_size=9), max_size=3))
def test_the_quick_way_reads_what_the_whole_way_reads(items):
    text = json.dumps(items)
    assert read(text) == read(text, lambda _: NO_EXTRA)
