"""``/api/v1/node``: everything of the table, in a shape that clients may rely on."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from hami.monitor import table as tables
from hami.monitor.node_api import (
    DeviceShape,
    HourShape,
    MigShape,
    NodeShape,
    ProcessShape,
    SliceDeviceShape,
    SliceShape,
    StrangerShape,
    VendorShape,
    node_json,
)
from hami.monitor.usage_history import HourOfUse, UsageHistory
from tests.monitor.tables import GIB, NOW, a_node, a_process, a_slice, a_stranger, held

HOUR = HourOfUse(minutes=60, max_used_bytes=GIB, p95_utilisation=33.5)
AT_WORK = a_node(
    a_slice(
        "train-0",
        held(0, used_bytes=5, share=45.5),
        held(1),
        processes=(a_process(7, bypass=True),),
    ),
    a_slice("train-1"),
    strangers=(a_stranger(pid=9),),
)


def answer(table=AT_WORK, last_hour=lambda *_: None):
    return json.loads(node_json(table, last_hour))


def test_the_whole_answer():
    found = answer()
    assert found["format"] == 1
    assert (found["node"], found["takenAt"], found["tickSeconds"]) == ("n1", NOW, 0.004)
    assert found["vendors"] == [{"vendor": "NVIDIA", "measuredAt": NOW, "stale": False}]
    assert found["devices"][0]["memoryTotalBytes"] == 80 * GIB
    first, second = found["slices"]
    assert (first["namespace"], first["pod"], first["podUid"], second["pod"]) == (
        "team",
        "train-0",
        "uid-train-0",
        "train-1",
    )
    assert [device["share"] for device in first["devices"]] == [45.5, None]
    assert first["processes"] == [
        {"pid": 7, "slot": 0, "usedBytes": [0], "utilisation": [], "bypass": True}
    ]
    assert found["strangers"][0]["usedBytes"] is None


def test_the_last_hour_stands_by_its_device():
    found = answer(
        last_hour=lambda figures, device: (
            HOUR if (figures.pod, device.index) == ("train-0", 1) else None
        )
    )
    hours = [device["lastHour"] for held_by in found["slices"] for device in held_by["devices"]]
    assert hours == [
        None,
        {"minutes": 60, "maxUsedBytes": GIB, "p95Utilisation": 33.5, "waitedMinutes": 0},
        None,
    ]


def test_a_history_can_be_asked():
    history = UsageHistory()
    history.observe(AT_WORK, 0.0)
    assert (
        answer(last_hour=history.last_hour)["slices"][0]["devices"][0]["lastHour"]["maxUsedBytes"]
        == 5
    )


def test_a_client_reads_what_was_written():
    text = node_json(AT_WORK, lambda *_: HOUR)
    assert msgspec.json.encode(msgspec.json.decode(text, type=NodeShape)) == text


def test_a_mig_instance_is_told():
    mig = tables.MigIdentity(
        index=0,
        device_id="GPU-0",
        uuid="MIG-1",
        profile="1g.10gb",
        gpu_instance_id=7,
        compute_instance_id=0,
    )
    [held_by] = answer(a_node(a_slice(mig=(mig,))))["slices"]
    assert held_by["mig"] == [
        {
            "index": 0,
            "deviceId": "GPU-0",
            "uuid": "MIG-1",
            "profile": "1g.10gb",
            "gpuInstanceId": 7,
            "computeInstanceId": 0,
        }
    ]


def test_a_client_skips_what_it_does_not_know():
    newer = json.loads(node_json(AT_WORK, lambda *_: None)) | {"new": 1}
    assert msgspec.json.decode(json.dumps(newer), type=NodeShape).node == "n1"


@pytest.mark.parametrize(
    ("values", "shape", "more"),
    [
        (tables.NodeTable, NodeShape, {"format"}),
        (tables.VendorFigures, VendorShape, set()),
        (tables.DeviceFigures, DeviceShape, set()),
        (tables.SliceFigures, SliceShape, set()),
        (tables.SliceDevice, SliceDeviceShape, {"last_hour"}),
        (tables.ProcessFigures, ProcessShape, set()),
        (tables.Stranger, StrangerShape, set()),
        (tables.MigIdentity, MigShape, set()),
        (HourOfUse, HourShape, set()),
    ],
)
def test_nothing_of_the_table_is_left_out(values, shape, more):
    fields = {field.name for field in msgspec.structs.fields(values)}
    assert {field.name for field in msgspec.structs.fields(shape)} == fields | more


FIRST_CALLERS = """
import sys, threading
from hami.monitor.node_api import node_json
from tests.monitor.tables import a_node, a_slice

sys.setswitchinterval(1e-6)
together = threading.Barrier(8)

def ask():
    together.wait()
    node_json(a_node(a_slice()), lambda *_: None)

threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_the_first_callers_may_come_at_once():
    """msgspec learns a type at its first use, and crashes where two threads do it together."""
    subprocess.run([sys.executable, "-c", FIRST_CALLERS], check=True, timeout=60)
