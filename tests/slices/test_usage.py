"""The usage region, as a container may have written it."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.errors import Malformed
from hami.slices.c_layout import SLOT_BYPASS, UsageC
from hami.slices.usage_region import (
    MOST_CHARGED,
    REGION_SIZE,
    UNUSED_BUCKETS,
    BucketUsage,
    RegionUsage,
    SlotUsage,
    UsageReader,
    empty_region,
    parse_usage,
    read_usage,
)

EMPTY = RegionUsage()


def a_region(*slots: tuple[int, dict[str, int], dict[int, int]]) -> bytes:
    """``(slot, fields, charged by device)`` each."""
    region = UsageC.from_buffer_copy(empty_region())
    for number, fields, charged in slots:
        for name, value in ({"pid": 7} | fields).items():
            setattr(region.slots[number], name, value)
        for device, charge in charged.items():
            region.charged[device][number] = charge
    return bytes(region)


def test_a_new_region_has_a_fixed_size_and_nobody_in_it():
    assert len(empty_region()) == REGION_SIZE == 57344
    assert parse_usage(empty_region()) == EMPTY


def test_what_processes_charged_is_read():
    fields = {"start_time": 99, "pid_namespace": 4026531836, "generation": 3, "flags": SLOT_BYPASS}
    found = parse_usage(a_region((5, fields, {0: 1 << 30, 15: 7}), (255, {"pid": 8}, {})))
    assert found == RegionUsage(
        slots=(
            SlotUsage(
                slot=5, pid=7, start_time=99, pid_namespace=4026531836, generation=3, bypass=True,
                charged=(1 << 30, *(0,) * 14, 7),
            ),
            SlotUsage(
                slot=255, pid=8, start_time=0, pid_namespace=0, generation=0, bypass=False,
                charged=(0,) * 16,
            ),
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "charged"),
    [
        pytest.param({"pid": 0}, {0: 1}, id="memory of nobody"),
        pytest.param({"pid": (1 << 22) + 1}, {}, id="a pid that no kernel gives"),
        pytest.param({"flags": 8}, {}, id="a flag that nobody knows"),
        pytest.param({}, {3: MOST_CHARGED + 1}, id="more than any device has"),
        pytest.param({}, {3: (1 << 64) - 1}, id="less than nothing"),
    ],
)
def test_a_slot_that_makes_no_sense_is_counted_and_left_out(fields, charged):
    found = parse_usage(a_region((1, fields, charged), (2, {}, {0: 5})))
    assert found.refused == 1
    assert [slot.slot for slot in found.slots] == [2]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"", "has 0 bytes", id="empty"),
        pytest.param(empty_region()[:-1], "has 57343 bytes", id="cut off"),
        pytest.param(b"\0" * REGION_SIZE, "magic", id="wiped"),
        pytest.param(empty_region()[:8] + b"\2" + empty_region()[9:], "abi", id="another abi"),
    ],
)
def test_what_is_no_region_is_not_read(data, problem):
    found = parse_usage(data)
    assert isinstance(found, Malformed)
    assert problem in str(found)


@given(st.binary(max_size=4000), st.integers(64, REGION_SIZE))
def test_nothing_that_a_tenant_writes_is_too_strange(garbage, position):
    data = empty_region()
    found = parse_usage((data[:position] + garbage + data[position:])[:REGION_SIZE])
    assert isinstance(found, RegionUsage)
    assert len(found.slots) + found.refused <= 256
    assert all(0 < slot.pid <= 1 << 22 for slot in found.slots)
    assert all(0 <= charge <= MOST_CHARGED for slot in found.slots for charge in slot.charged)


@given(st.binary(max_size=70_000))
def test_garbage_is_no_region(garbage):
    assert isinstance(parse_usage(garbage), Malformed)


def test_a_file_that_was_grown_is_read_as_far_as_a_region_goes(tmp_path):
    path = tmp_path / "usage"
    path.write_bytes(a_region((0, {}, {0: 9})))
    os.truncate(path, 1 << 40)
    assert read_usage(path).slots[0].charged[0] == 9


def test_a_file_that_is_none_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "usage")
    with pytest.raises(OSError, match="no regular file") as failed:
        read_usage(tmp_path / "usage")
    assert failed.value.errno == errno.EINVAL


def with_buckets(data: bytes, **by_device: dict[str, int]) -> bytes:
    region = UsageC.from_buffer_copy(data)
    for name, fields in by_device.items():
        for field, value in fields.items():
            setattr(region.buckets[int(name.removeprefix("device"))], field, value)
    return bytes(region)


def test_the_time_that_a_device_was_charged_and_waited_for_is_read():
    data = with_buckets(empty_region(), device0={"charged": 5, "level": -3}, device15={"waited": 7})
    found = parse_usage(data)
    assert found.buckets == (BucketUsage(5, 0), *UNUSED_BUCKETS[2:], BucketUsage(0, 7))


@pytest.mark.parametrize("field", ["charged", "waited"])
def test_times_beyond_all_measure_count_as_none(field):
    data = with_buckets(empty_region(), device0={field: (1 << 64) - 1}, device1={field: 4})
    assert parse_usage(data).buckets[0] == BucketUsage()
    assert max(parse_usage(data).buckets[1]) == 4


steps = st.lists(
    st.tuples(st.integers(0, REGION_SIZE - 1), st.integers(0, 255)), min_size=1, max_size=20
)


@given(st.lists(steps, max_size=5))
def test_a_region_that_is_read_again_says_what_a_first_look_says(changes):
    reader, data = UsageReader(), bytearray(a_region((3, {"generation": 2}, {0: 4096})))
    assert reader.parse(bytes(data)) == parse_usage(bytes(data))
    for change in changes:
        for position, value in change:
            data[position] = value
        assert reader.parse(bytes(data)) == parse_usage(bytes(data))


def read_again(folder, data: bytes, devices: int, reader=None) -> RegionUsage | Malformed:
    """Into a buffer that holds what was read of other regions before."""
    path = folder / "usage"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        buffer = bytearray(b"\xff" * REGION_SIZE)
        return (reader or UsageReader()).read(fd, buffer, devices)
    finally:
        os.close(fd)


def test_of_a_slice_only_the_devices_that_it_has_are_read(tmp_path):
    data = a_region((1, {}, {0: 5, 1: 6}), (2, {"pid": 0}, {1: 7}), (3, {}, {1: MOST_CHARGED + 1}))
    data = with_buckets(data, device0={"charged": 8}, device1={"charged": 9})
    whole, first = (read_again(tmp_path, data, devices) for devices in (16, 1))
    assert (whole, whole.refused) == (parse_usage(data), 2)
    assert [(slot.slot, slot.charged) for slot in first.slots] == [
        (1, (5, *(0,) * 15)),
        (3, (0,) * 16),
    ]
    assert (first.refused, first.buckets) == (0, (BucketUsage(8, 0), *UNUSED_BUCKETS[1:]))


def test_a_slice_that_gets_another_device_is_read_with_it(tmp_path):
    reader = UsageReader()
    data = a_region((1, {}, {0: 5, 1: 6}))
    for devices, charged in ((1, (5, 0)), (2, (5, 6)), (1, (5, 0))):
        [slot] = read_again(tmp_path, data, devices, reader).slots
        assert slot.charged[:2] == charged


@pytest.mark.parametrize("size", [0, 100, 20_000, 40_000, UsageC.buckets.offset, REGION_SIZE - 1])
def test_one_that_was_cut_off_meanwhile_says_nothing_of_what_was_there(tmp_path, size):
    reader, data = UsageReader(), a_region((1, {}, {0: 5}))
    assert read_again(tmp_path, data, 1, reader).slots
    assert f"has {size} bytes" in str(read_again(tmp_path, data[:size], 1, reader))
