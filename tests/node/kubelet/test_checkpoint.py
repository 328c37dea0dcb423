"""kubelet's record of who got which ids."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.errors import Malformed
from hami.domain.slices import ContainerEdits
from hami.node.kubelet import checkpoint
from hami.node.kubelet.checkpoint import (
    CHECKPOINT,
    CheckpointEntry,
    parse_checkpoint,
    read_checkpoint,
)
from hami.node.kubelet.responses import encode

KIND = "nvidia.hami.io/slice"
OURS = ContainerEdits(cdi_devices=(f"{KIND}=4f3a",), env={"NVIDIA_VISIBLE_DEVICES": "void"})


def answer(edits: ContainerEdits = OURS) -> str:
    return b64encode(encode(edits).SerializeToString()).decode()


def entry(**fields: Any) -> dict[str, Any]:
    return {
        "PodUID": "uid-1", "ContainerName": "main", "ResourceName": "nvidia.com/gpu",
        "DeviceIDs": {"-1": ["slot-0"]}, "AllocResp": answer(),
    } | fields  # fmt: skip


def a_file(*entries: Any) -> bytes:
    data = {"PodDeviceEntries": entries, "RegisteredDevices": {"nvidia.com/gpu": ["slot-0"]}}
    return json.dumps({"Data": data, "Checksum": 2871}).encode()


def parsed(data: bytes) -> tuple[tuple[CheckpointEntry, ...], list[str]]:
    problems: list[Malformed] = []
    found = parse_checkpoint(data, problems.append)
    assert not isinstance(found, Malformed)
    return found, [str(problem) for problem in problems]


def test_an_entry_says_who_has_what():
    [found], problems = parsed(a_file(entry()))
    assert found == CheckpointEntry(
        pod_uid="uid-1", container="main", resource="nvidia.com/gpu", ids=frozenset({"slot-0"}),
        edits=OURS,
    )  # fmt: skip
    assert problems == []


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        pytest.param({"-1": ["a"], "0": ["b", "c"]}, {"a", "b", "c"}, id="by NUMA node"),
        pytest.param({"0": None, "1": ["a"]}, {"a"}, id="with nothing on one"),
        pytest.param(["a", "b"], {"a", "b"}, id="in one list, as kubelet did before 1.20"),
        pytest.param(None, set(), id="none"),
        pytest.param({}, set(), id="an empty map"),
    ],
)
def test_ids_in_every_form(ids, expected):
    [found], problems = parsed(a_file(entry(DeviceIDs=ids)))
    assert found.ids == expected
    assert problems == []


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        pytest.param(OURS, "4f3a", id="ours"),
        pytest.param(ContainerEdits(), "", id="no CDI name"),
        pytest.param(ContainerEdits(cdi_devices=("nvidia.com/gpu=all",)), "", id="another kind"),
        pytest.param(ContainerEdits(cdi_devices=("x/y=1", f"{KIND}=2")), "2", id="the second one"),
        pytest.param(ContainerEdits(cdi_devices=(KIND,)), "", id="no device"),
    ],
)
def test_the_slice_of_an_answer(edits, expected):
    [found], _ = parsed(a_file(entry(AllocResp=answer(edits))))
    assert found.edits.cdi_device(KIND) == expected


@pytest.mark.parametrize("data", [b'{"Data":{}}', b'{"Data":{"PodDeviceEntries":null}}', a_file()])
def test_a_checkpoint_without_entries(data):
    assert parsed(data) == ((), [])


@pytest.mark.parametrize("resp", [None, ""])
def test_an_entry_without_an_answer_holds_its_ids(resp):
    [found], problems = parsed(a_file(entry(AllocResp=resp)))
    assert found.ids == {"slot-0"}
    assert found.edits == ContainerEdits()
    assert problems == []


@pytest.mark.parametrize(
    ("resp", "problem"),
    [
        pytest.param("!!", "no base64", id="no base64"),
        pytest.param(b64encode(b"\xff\xff").decode(), "no ContainerAllocateResponse", id="no message"),
    ],
)  # fmt: skip
def test_an_unreadable_answer_is_told_and_holds_its_ids(resp, problem):
    found, problems = parsed(a_file(entry(AllocResp=resp), entry(ContainerName="b")))
    assert [each.container for each in found] == ["main", "b"]
    assert found[0].ids == {"slot-0"}
    assert found[0].edits == ContainerEdits()
    [told] = problems
    assert "entry 0, nvidia.com/gpu of container main of pod uid-1" in told
    assert problem in told


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param("x", id="no object"),
        pytest.param(None, id="null"),
        pytest.param({"PodUID": "u"}, id="half an object"),
        pytest.param(entry(PodUID=1), id="a number for a uid"),
        pytest.param(entry(DeviceIDs="slot-0"), id="a text for ids"),
    ],
)
def test_a_bad_entry_hides_no_other(bad):
    found, problems = parsed(a_file(entry(ContainerName="a"), bad, entry(ContainerName="b")))
    assert [each.container for each in found] == ["a", "b"]
    [told] = problems
    assert "entry 1: left out: " in told


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"{}", id="without data"),
        pytest.param(b'{"Data":{"PodDeviceEntries":{}}}', id="entries in an object"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b'{"Data":' + b"[" * 100_000, id="a deep nest"),
        pytest.param(b'{"else":' + b"[" * 100_000, id="a deep nest in a field we do not read"),
    ],
)
def test_what_is_no_checkpoint_is_malformed(data):
    found = parse_checkpoint(data)
    assert isinstance(found, Malformed)
    assert len(str(found)) < 500


@given(st.binary(max_size=80))
def test_no_bytes_break_the_reader(data):
    assert isinstance(parse_checkpoint(data), Malformed | tuple)


# The file.


def test_a_missing_file_has_no_entries(tmp_path):
    assert read_checkpoint(tmp_path) == ()
    assert read_checkpoint(tmp_path / "nowhere") == ()


def test_the_file_in_kubelets_folder(tmp_path):
    (tmp_path / CHECKPOINT).write_bytes(a_file(entry()))
    [found] = read_checkpoint(tmp_path)
    assert found.container == "main"


def test_a_file_that_cannot_be_read_is_malformed(tmp_path):
    (tmp_path / CHECKPOINT).mkdir()
    found = read_checkpoint(tmp_path)
    assert isinstance(found, Malformed)
    assert "cannot be read: Is a directory" in str(found)


def test_a_file_beyond_all_measure_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "LARGEST", 100)
    (tmp_path / CHECKPOINT).write_bytes(a_file(entry()))
    found = read_checkpoint(tmp_path)
    assert isinstance(found, Malformed)
    assert "more than kubelet ever writes" in str(found)
