"""The limits page as Python writes and reads it."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import struct
import subprocess
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.errors import Malformed
from hami.slices import c_layout as layout
from hami.slices import limits_page as page
from hami.slices.limits_page import (
    DeviceLimit,
    LimitsUnfit,
    PageLimits,
    encode,
    read_page,
    update,
)

from .c_programs import SHIM, built
from .pages import sample_limits

STRUCTS = {
    "hami_device_limit": layout.DeviceLimitC,
    "hami_limits": layout.LimitsC,
    "hami_observed_device": layout.ObservedDeviceC,
    "hami_observed": layout.ObservedC,
    "hami_limits_page": layout.LimitsPageC,
    "hami_slot": layout.SlotC,
    "hami_bucket": layout.BucketC,
    "hami_usage": layout.UsageC,
}
CONSTANTS = {
    "HAMI_LIMITS_MAGIC": layout.LIMITS_MAGIC,
    "HAMI_LIMITS_ABI": layout.LIMITS_ABI,
    "HAMI_LIMITS_SUM_WORD": layout.LIMITS_SUM_WORD,
    "HAMI_USAGE_MAGIC": layout.USAGE_MAGIC,
    "HAMI_USAGE_ABI": layout.USAGE_ABI,
    "HAMI_MAX_DEVICES": layout.MAX_DEVICES,
    "HAMI_MAX_SLOTS": layout.MAX_SLOTS,
    "HAMI_UUID_SIZE": layout.UUID_SIZE,
    "HAMI_POLICY_DEFAULT": page._CODES["default"],
    "HAMI_POLICY_FORCE": page._CODES["force"],
    "HAMI_POLICY_DISABLE": page._CODES["disable"],
    "HAMI_SLOT_BYPASS": layout.SLOT_BYPASS,
    "HAMI_SLOT_EXPORTS": layout.SLOT_EXPORTS,
    "HAMI_SLOT_IMPORTS": layout.SLOT_IMPORTS,
}


def python_layout() -> list[str]:
    """As ``shim/tests/layout.c`` prints it."""
    fields = [
        f"{name}.{field} {getattr(struct, field).offset} {getattr(struct, field).size}"
        for name, struct in STRUCTS.items()
        for field, _ in struct._fields_
    ]
    sizes = [f"{name} - {layout.ctypes.sizeof(struct)}" for name, struct in STRUCTS.items()]
    return sorted([*fields, *sizes, *(f"{name} {value}" for name, value in CONSTANTS.items())])


def asserted_layout() -> list[str]:
    """What the header's own assertions say, for machines without a compiler."""
    text = (SHIM / "include/hami_slice.h").read_text()
    at = re.findall(r"^HAMI_AT\((\w+), (\w+), (.+)\);$", text, re.MULTILINE)
    sizes = re.findall(r"^HAMI_SIZE\((\w+), (\d+)\);$", text, re.MULTILINE)
    offsets = [f"{s}.{f} {o.replace('HAMI_LIMITS_SUM_WORD * 8', '8')}" for s, f, o in at]
    return sorted([*offsets, *(f"{name} - {size}" for name, size in sizes)])


def test_every_offset_of_the_header_is_ours():
    without_sizes = [
        line.rpartition(" ")[0] if "." in line else line
        for line in python_layout()
        if "." in line or " - " in line
    ]
    assert asserted_layout() == sorted(without_sizes)


def test_every_field_is_where_the_compiler_puts_it(tmp_path):
    printed = subprocess.run(
        [built("layout", tmp_path)], capture_output=True, text=True, check=True
    )
    assert sorted(printed.stdout.splitlines()) == python_layout()


def test_a_page_of_c_is_a_page_of_python(tmp_path):
    program = built("layout", tmp_path)
    for devices in (0, 1, 3, 16):
        arguments = [program, "page", "1", str(devices)]
        theirs = subprocess.run(arguments, capture_output=True, check=True).stdout
        assert theirs == encode(sample_limits(1, devices))


def test_the_bytes_of_a_page_golden():
    """Others read them: a difference here is a new HAMI_LIMITS_ABI."""
    data = encode(sample_limits(1, 2))
    assert len(data) == 40960
    assert struct.unpack_from("<8s6IB", data) == (
        b"HAMILIMI", 1, 40960, 1600, 16, 256, 4096, 0
    )  # fmt: skip
    assert struct.unpack_from("<3Q3I", data, 64) == (1, 0xA90F96A9B7E07E12, 2, 2, 1, 1)
    assert hashlib.sha256(data).hexdigest() == (
        "861bf7e5f5437e823485b69a6aec3948c761da27fe26bf21212b1bc7930c0cd5"
    )


# What it says.

uuids = st.text(st.characters(blacklist_characters="\0", codec="utf-8"), min_size=1, max_size=15)
words = st.integers(0, (1 << 64) - 1)
limits = st.builds(
    PageLimits,
    generation=words,
    priority=st.integers(0, 3),
    policy=st.sampled_from(["default", "force", "disable"]),
    devices=st.lists(
        st.builds(
            DeviceLimit,
            uuid=uuids,
            memory_bytes=words,
            cores=st.integers(0, 100),
            cores_limit=st.integers(0, 100),
            context_reserve_bytes=words,
        ),
        max_size=16,
    ).map(tuple),
)


@given(limits)
def test_what_is_written_is_read(limits):
    assert read_page(encode(limits)) == limits


A_DEVICE = sample_limits(1).devices[0]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param({"uuid": ""}, "''", id="no uuid"),
        pytest.param({"uuid": "x" * 64}, "x" * 64, id="a uuid of 64 bytes leaves no room for its end"),
        pytest.param({"uuid": "a\0b"}, "NUL", id="a uuid with a NUL"),
        pytest.param({"memory_bytes": -1}, "memory of device GPU-1-0 is -1", id="less than no memory"),
        pytest.param({"memory_bytes": 1 << 64}, "18446744073709551616", id="more memory than a word says"),
        pytest.param({"cores": 101}, "cores of device GPU-1-0 is 101", id="more than all cores"),
        pytest.param({"cores_limit": 101}, "limit of cores of device GPU-1-0 is 101", id="a limit above all cores"),
        pytest.param({"context_reserve_bytes": -5}, "-5", id="less than no reserve"),
    ],
)  # fmt: skip
def test_what_a_page_cannot_say_is_refused(change, named):
    unfit = PageLimits(generation=1, devices=(replace(A_DEVICE, **change),))
    with pytest.raises(LimitsUnfit, match=re.escape(named)):
        encode(unfit)


def test_a_page_has_room_for_sixteen_devices():
    assert len(read_page(encode(sample_limits(1, 16))).devices) == 16
    with pytest.raises(LimitsUnfit, match="17 devices"):
        encode(sample_limits(1, 17))


@pytest.mark.parametrize(
    ("position", "value", "problem"),
    [
        pytest.param(0, b"\0" * 8, "magic", id="another magic"),
        pytest.param(8, b"\2", "abi", id="another abi"),
        pytest.param(16, b"\0", "copy_size", id="copies of another size"),
        pytest.param(20, b"\1", "device_capacity", id="room for other devices"),
        pytest.param(32, b"\2", "index", id="a third copy"),
        pytest.param(32, b"\1", "copy 1: its checksum", id="the copy that nobody wrote"),
        pytest.param(64 + 200, b"\xff", "copy 0: its checksum", id="a changed byte"),
    ],
)
def test_what_is_no_page_is_not_read(position, value, problem):
    data = bytearray(encode(sample_limits(1)))
    data[position : position + len(value)] = value
    found = read_page(bytes(data))
    assert isinstance(found, Malformed)
    assert problem in str(found)


def with_sum(data: bytes, position: int, value: bytes) -> bytes:
    """A change for which somebody made the checksum right."""
    copy = bytearray(data[64 : 64 + 1600])
    copy[position : position + len(value)] = value
    copy[8:16] = page.checksum(bytes(copy)).to_bytes(8, "little")
    return data[:64] + bytes(copy) + data[64 + 1600 :]


@pytest.mark.parametrize(
    ("position", "value", "problem"),
    [
        pytest.param(24, b"\x11", "17 devices", id="too many devices"),
        pytest.param(32, b"\x03", "policy 3", id="a policy that nobody knows"),
        pytest.param(64 + 80, b"\x65", "101 percent", id="more than all cores"),
        pytest.param(64 + 84, b"\x65", "101 percent", id="a limit above all cores"),
        pytest.param(64, b"x" * 64, "no readable id", id="an id without an end"),
        pytest.param(64, b"\xff", "no readable id", id="an id that is no text"),
        pytest.param(64, b"\0", "no readable id", id="no id"),
    ],
)
def test_a_right_checksum_does_not_make_a_field_right(position, value, problem):
    found = read_page(with_sum(encode(sample_limits(1)), position, value))
    assert isinstance(found, Malformed)
    assert problem in str(found)


@given(st.binary(max_size=3000), st.integers(0, 40960))
def test_no_garbage_is_too_strange_to_be_read(garbage, position):
    data = encode(sample_limits(1))
    read_page(garbage)
    read_page((data[:position] + garbage + data[position:])[: len(data)])
    read_page(data[:position])


# Changes in place.


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "limits"
    path.write_bytes(encode(sample_limits(1)))
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)


def said(fd: int) -> PageLimits | Malformed:
    return read_page(os.pread(fd, 1 << 20, 0))


def test_a_change_is_seen_and_nothing_is_written_for_none(file):
    for number in range(2, 6):
        assert update(file, sample_limits(number)) == "updated"
        assert said(file) == sample_limits(number)
        assert update(file, sample_limits(number), pwrite=killed_after(0)) == "same"


def test_what_the_monitor_wrote_stays(file):
    os.pwrite(file, b"\7" * 35136, 4096)
    update(file, sample_limits(2))
    assert os.pread(file, 35136, 4096) == b"\7" * 35136


def test_a_file_that_is_no_page_stays_as_it_is(file):
    os.pwrite(file, b"\2", 8)
    before = os.pread(file, 1 << 20, 0)
    assert isinstance(update(file, sample_limits(2)), Malformed)
    assert os.pread(file, 1 << 20, 0) == before


class Killed(BaseException):
    """Nothing of this process runs any more."""


def killed_after(count: int):
    """A pwrite that writes no more than ``count`` bytes in all."""
    left = count

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        nonlocal left
        os.pwrite(fd, data[:left], offset)
        if left < len(data):
            raise Killed
        left -= len(data)
        return len(data)

    return pwrite


@pytest.mark.parametrize("count", [0, 1, 8, 800, 1599, 1600, 1601])
def test_a_writer_killed_between_its_two_writes_leaves_the_old_copy(file, count):
    if count <= 1600:
        with pytest.raises(Killed):
            update(file, sample_limits(2), pwrite=killed_after(count))
        assert said(file) == sample_limits(1)
    else:
        update(file, sample_limits(2), pwrite=killed_after(count))
    assert update(file, sample_limits(3)) == "updated"
    assert said(file) == sample_limits(3)


def test_a_write_that_takes_a_part_is_continued(file):
    def pwrite(fd: int, data: bytes, offset: int) -> int:
        return os.pwrite(fd, data[:7], offset)

    update(file, sample_limits(2), pwrite=pwrite)
    assert said(file) == sample_limits(2)


def test_a_full_disk_leaves_the_old_copy(file):
    def pwrite(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        update(file, sample_limits(2), pwrite=pwrite)
    assert said(file) == sample_limits(1)


# Readers in C, the writer in Python.


@pytest.mark.parametrize(
    ("program", "flips"),
    [
        pytest.param("units/page_stress", 20_000, id="as the library is built"),
        pytest.param("asan/units/page_stress", 5_000, id="under the sanitizers"),
    ],
)
def test_no_reader_ever_takes_a_mixture_or_goes_back(tmp_path, program, flips):
    program = built(program, tmp_path)
    path = tmp_path / "limits"
    path.write_bytes(encode(sample_limits(1)))
    readers = subprocess.Popen([program, path, "2", str(flips)], stdout=subprocess.PIPE, text=True)
    with readers:
        assert readers.stdout.readline() == "ready\n"
        fd = os.open(path, os.O_RDWR)
        for number in range(2, flips + 1):
            assert update(fd, sample_limits(number)) == "updated"
        os.close(fd)
        told = readers.stdout.read()
    assert readers.returncode == 0, told
    taken = int(told.split()[1])
    assert taken > 3, told


def test_a_writer_in_a_hurry_is_caught_by_the_checksum(tmp_path):
    """Nobody writes like this: over the copy that is in use, in pieces."""
    program = built("units/page_stress", tmp_path)
    path = tmp_path / "limits"
    path.write_bytes(encode(sample_limits(1)))
    last = 3000
    readers = subprocess.Popen([program, path, "2", str(last)], stdout=subprocess.PIPE, text=True)
    with readers:
        assert readers.stdout.readline() == "ready\n"
        fd = os.open(path, os.O_RDWR)
        for number in range(2, last + 1):
            copy = bytes(page._copy(sample_limits(number), revision=number))
            for start in range(0, 1600, 200):
                os.pwrite(fd, copy[start : start + 200], 64 + start)
        os.close(fd)
        told = readers.stdout.read()
    assert readers.returncode == 0, told


def test_threads_of_python_see_whole_pages_too(file):
    stop, wrong = threading.Event(), []

    def read() -> None:
        highest = 0
        while not stop.is_set():
            found = said(file)
            # A pread may fall between two updates, where a library would look again.
            if isinstance(found, PageLimits):
                number = found.generation // 2
                if found != sample_limits(number) or number < highest:
                    wrong.append(found)
                highest = number

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(2, 500):
        update(file, sample_limits(number))
    stop.set()
    reader.join()
    assert wrong == []
