"""Regions on disk: found as HAMi's plugin lays them out, hostile folders refused, words written."""

from __future__ import annotations

import os
import struct

import pytest

from hami.monitor.compat.feedback import Feedback
from hami.monitor.compat.region import Region
from hami.monitor.compat.region_files import MOST_FILES, RegionFolder
from hami.slices.files import MalformedFile
from tests.monitor.compat.regions import BY_NAME, KINDS, Told, region_bytes

NAME = "0a1b-uid_main"


@pytest.fixture
def container(tmp_path):
    folder = tmp_path / "containers" / NAME
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def regions(tmp_path):
    return RegionFolder(tmp_path)


def only(regions: RegionFolder):
    [place] = regions.places()
    return regions.read(place)


def test_places_are_named_after_pod_and_container(tmp_path, regions):
    for name in ("uid-1_main", "uid-2_side_car", "_main", "uid-3_", "uid-4", "uid-5_\udcff"):
        (tmp_path / "containers" / name).mkdir(parents=True)
    (tmp_path / "containers" / "uid-5_file").touch()
    (tmp_path / "containers" / "uid-6_link").symlink_to(tmp_path)
    assert [(place.pod_uid, place.container) for place in regions.places()] == [
        ("uid-1", "main"),
        ("uid-2", "side_car"),
    ]


def test_a_node_without_hami_has_no_places(tmp_path):
    assert RegionFolder(tmp_path / "nothing").places() == []


def test_the_first_cache_is_the_region(container, regions):
    (container / "libvgpu.so.cache").write_bytes(b"no region")
    (container / "n.cache").write_bytes(b"no region either")
    (container / "m.cache").write_bytes(region_bytes(BY_NAME["1.2"]))
    assert isinstance(only(regions), Region)


def test_no_region_yet(container, regions):
    assert only(regions) is None
    [place] = regions.places()
    container.rmdir()
    assert regions.read(place) is None


def a_link(container):
    (container / "target").write_bytes(region_bytes(BY_NAME["1.2"]))
    (container / "a.cache").symlink_to(container / "target")


@pytest.mark.parametrize(
    ("hostile", "problem"),
    [
        pytest.param(a_link, "symbolic links", id="a symbolic link"),
        pytest.param(lambda folder: os.mkfifo(folder / "a.cache"), "no regular file", id="a fifo"),
        pytest.param(lambda folder: (folder / "a.cache").mkdir(), "no regular file", id="a directory"),
        pytest.param(lambda folder: (folder / "a.cache").touch(), "magic", id="an empty file"),
        pytest.param(lambda folder: [(folder / f"{i}.cache").touch() for i in range(MOST_FILES + 1)], "more than 64 files", id="many files"),
    ],
)  # fmt: skip
def test_a_hostile_folder_is_refused(container, regions, hostile, problem):
    hostile(container)
    refusal = only(regions)
    assert isinstance(refusal, MalformedFile)
    assert problem in str(refusal)


def test_a_huge_file_is_refused_unread(container, regions):
    file = container / "a.cache"
    file.write_bytes(region_bytes(BY_NAME["1.2"]))
    os.truncate(file, 1 << 40)
    assert "no known layout has 1099511627776 bytes" in str(only(regions))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_two_words_are_written_and_nothing_else(container, regions, kind):
    file = container / "a.cache"
    before = region_bytes(kind, Told(recent=2, switch=1))
    file.write_bytes(before)
    [place] = regions.places()
    region = regions.read(place)
    assert regions.answer(place, region, Feedback(-1, 0)) is None
    after = file.read_bytes()
    assert regions.read(place).recent_kernel == -1
    assert regions.read(place).utilization_switch == 0
    expected = bytearray(before)
    for field, word in ((kind.region.recent_kernel, -1), (kind.region.utilization_switch, 0)):
        expected[field.offset : field.offset + 4] = struct.pack("<i", word)
    assert after == bytes(expected)


def test_words_that_are_as_they_should_be_are_not_written(container, regions):
    file = container / "a.cache"
    file.write_bytes(region_bytes(BY_NAME["1.2"], Told(recent=0, switch=0)))
    [place] = regions.places()
    region = regions.read(place)
    file.unlink()
    file.mkdir()
    assert regions.answer(place, region, Feedback(0, 0)) is None


def test_a_file_that_was_exchanged_is_not_written(container, regions):
    file = container / "a.cache"
    file.write_bytes(region_bytes(BY_NAME["1.2"]))
    [place] = regions.places()
    region = regions.read(place)
    file.write_bytes(b"short")
    assert "length has changed" in str(regions.answer(place, region, Feedback(-1, 0)))
    assert file.read_bytes() == b"short"


def test_a_container_that_went_needs_no_answer(container, regions):
    file = container / "a.cache"
    file.write_bytes(region_bytes(BY_NAME["1.2"]))
    [place] = regions.places()
    region = regions.read(place)
    file.unlink()
    assert regions.answer(place, region, Feedback(-1, 0)) is None
