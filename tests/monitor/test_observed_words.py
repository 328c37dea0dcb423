"""The monitor's words in a limits page: their order, and what a monitor that is killed leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hami.monitor.files.observed_words import Observation, ObservedWords, SlotBytes
from hami.slices.c_layout import LimitsPageC, ObservedC
from hami.slices.limits_page import DeviceLimit, PageLimits, encode, read_page, update

LIMITS = PageLimits(
    generation=1, devices=tuple(DeviceLimit(uuid=f"GPU-{n}", memory_bytes=1, cores=0) for n in "ab")
)
SEEN = Observation(
    utilisation=[1200, 34],
    contention=[1, 3],
    shares=[5000, 0],
    slots={0: SlotBytes(7, (100, 200)), 255: SlotBytes(9, (300, 0))},
)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "limits"
    path.write_bytes(encode(LIMITS))
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)


def observed(fd: int) -> ObservedC:
    return LimitsPageC.from_buffer_copy(os.pread(fd, 1 << 20, 0)).observed


def test_everything_is_there_and_the_limits_stay(page):
    ObservedWords(page).write(SEEN, 6)
    assert observed(page).share_revision == 6
    found = observed(page)
    assert found.heartbeat == 1
    assert [(d.utilisation, d.contention) for d in found.devices[:3]] == [
        (1200, 1),
        (34, 3),
        (0, 0),
    ]
    assert list(found.share[:3]) == [5000, 0, 0]
    assert (found.slot_generation[0], found.slot_generation[255]) == (7, 9)
    assert (found.bytes[0][0], found.bytes[1][0], found.bytes[0][255]) == (100, 200, 300)
    assert read_page(os.pread(page, 1 << 20, 0)) == LIMITS


def test_a_slot_has_no_generation_while_its_bytes_change_and_the_heartbeat_comes_last(page):
    ObservedWords(page).write(SEEN, 1)
    places = []

    def write(fd: int, data: bytes, position: int) -> int:
        places.append((position - LimitsPageC.observed.offset, int.from_bytes(data[:8], "little")))
        return os.pwrite(fd, data, position)

    again = ObservedWords(page, write)
    again.write(
        Observation(utilisation=[0, 0], contention=[0, 0], shares=[0, 0],
                    slots={1: SlotBytes(4, (11, 12))}),
        1,
    )  # fmt: skip
    generation = ObservedC.slot_generation.offset + 8
    in_slot = [ObservedC.bytes.offset + 8 * (device * 256 + 1) for device in range(2)]
    assert places[:4] == [(generation, 0), (in_slot[0], 11), (in_slot[1], 12), (generation, 4)]
    assert places[-1] == (ObservedC.heartbeat.offset, 2)
    assert [place for place, _ in places].count(ObservedC.heartbeat.offset) == 1


def test_what_did_not_change_is_not_written_again(page):
    count = 0

    def write(fd: int, data: bytes, position: int) -> int:
        nonlocal count
        count += 1
        return os.pwrite(fd, data, position)

    words = ObservedWords(page, write)
    words.write(SEEN, 1)
    first, count = count, 0
    words.write(SEEN, 1)
    assert (first > 4, count) == (True, 1)
    assert observed(page).heartbeat == 2


def test_a_heartbeat_goes_on_where_a_former_monitor_stopped_and_is_never_0(page):
    at = LimitsPageC.observed.offset + ObservedC.heartbeat.offset
    os.pwrite(page, ((1 << 64) - 1).to_bytes(8, "little"), at)
    words = ObservedWords(page)
    for expected in (1, 2):
        words.write(SEEN, 1)
        assert observed(page).heartbeat == expected


class Killed(BaseException):
    pass


@pytest.mark.parametrize("after", range(12))
def test_a_monitor_that_is_killed_between_two_writes_misleads_nobody(page, after):
    """A slot's generation vouches for its bytes, and the heartbeat has not moved on."""
    ObservedWords(page).write(SEEN, 1)
    left = after

    def write(fd: int, data: bytes, position: int) -> int:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        return os.pwrite(fd, data, position)

    then = Observation(
        utilisation=[1, 2], contention=[0, 0], shares=[1, 2], slots={0: SlotBytes(8, (5, 6))}
    )
    done = False
    try:
        ObservedWords(page, write).write(then, 1)
        done = True
    except Killed:
        pass
    found = observed(page)
    assert found.heartbeat == 1 + done
    bytes_now = (found.bytes[0][0], found.bytes[1][0])
    assert (found.slot_generation[0], bytes_now) in [(7, (100, 200)), (8, (5, 6))] or (
        found.slot_generation[0] == 0
    )
    assert read_page(os.pread(page, 1 << 20, 0)) == LIMITS
    ObservedWords(page).write(then, 1)
    found = observed(page)
    assert (found.slot_generation[0], found.bytes[0][0], found.bytes[1][0]) == (8, 5, 6)
    assert found.heartbeat == 2 + done


def test_a_failed_write_is_made_good_by_the_next(page):
    failing = True

    def write(fd: int, data: bytes, position: int) -> int:
        if failing:
            raise OSError(5, "Input/output error")
        return os.pwrite(fd, data[:3] if len(data) > 8 else data, position)

    words = ObservedWords(page, write)
    with pytest.raises(OSError, match="Input"):
        words.write(SEEN, 1)
    failing = False
    words.write(SEEN, 1)
    found = observed(page)
    assert (found.heartbeat, found.devices[1].utilisation, found.bytes[1][0]) == (1, 34, 200)


def test_a_change_of_the_limits_leaves_what_was_observed(page):
    words = ObservedWords(page)
    words.write(SEEN, 1)
    update(page, PageLimits(generation=2, devices=LIMITS.devices))
    words.write(SEEN, 1)
    assert observed(page).heartbeat == 2
    found = read_page(os.pread(page, 1 << 20, 0))
    assert isinstance(found, PageLimits)
    assert found.generation == 2
