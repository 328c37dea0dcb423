"""Where the simulated driver is looked for."""

from __future__ import annotations

import platform

import hami_simgpu
import pytest
from hami_lab.demo.simulated_device import ENTRY_POINT_GROUP, installed_driver
from hami_simgpu import NotBuilt, simulated_driver

PARTS = ("libcuda.so.1", "libnvidia-ml.so.1", "simgpud")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    package = tmp_path / "shim/simgpu/hami_simgpu"
    package.mkdir(parents=True)
    monkeypatch.setattr(hami_simgpu, "files", lambda _: package)
    return tmp_path


def put(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_the_packages_own_comes_first(checkout):
    brought = checkout / "shim/simgpu/hami_simgpu/lib" / platform.machine()
    put(brought, "libvgpu.so", *PARTS)
    put(checkout / "shim/build/simgpu", *PARTS)
    put(checkout / "shim/build/test", "libvgpu.so")
    found = simulated_driver()
    assert (found.library, found.folder) == (brought / "libvgpu.so", brought)


def test_in_a_checkout_it_is_what_was_built(checkout):
    built = put(checkout / "shim/build/simgpu", *PARTS)
    put(checkout / "shim/build/test", "libvgpu.so")
    found = simulated_driver()
    assert found.library == checkout / "shim/build/test/libvgpu.so"
    assert found.folder == built


def test_a_part_of_it_is_nothing(checkout):
    put(checkout / "shim/build/simgpu", *PARTS)
    with pytest.raises(NotBuilt, match="`make -C shim simulated` builds them"):
        simulated_driver()


def test_the_demo_finds_it_by_the_vendors_key():
    try:
        expected = simulated_driver()
    except NotBuilt:
        with pytest.raises(NotBuilt):
            installed_driver("NVIDIA")
        return
    assert ENTRY_POINT_GROUP == "hami.simulated_drivers"
    assert installed_driver("NVIDIA") == expected
