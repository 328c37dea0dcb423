"""A tenant who takes leases on its limits page keeps no resize off."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from hami.node.disk.store import SliceStore
from hami.node.slice.live_slices import Prepared
from hami.node.slice.preparing import hold_pages, prepare, resize
from hami.slices.limits_page import read_page
from tests.slices.pages import sample_limits

from ..parts import a_grant, an_entry, slice_id
from ..slices import ID, VENDOR, a_record
from .leases import a_tenant

ONE = slice_id(1)


@pytest.fixture
def page(tmp_path):
    """Of a slice that another process of the agent made."""
    store = a_store(tmp_path)
    store.create(a_record())
    store.write_limits(ID, sample_limits(1))
    store.close()
    path = store.state_dir(ID) / "limits"
    with a_tenant(path) as answer:
        if answer != "leased":
            pytest.skip(f"the file system of {tmp_path} gives no leases: {answer}")
    return path


@pytest.fixture
def store(tmp_path):
    store = a_store(tmp_path)
    yield store
    store.close()


def a_store(root):
    return SliceStore(root, VENDOR, tmpfs=False, selinux=False)


def says(path):
    return read_page(path.read_bytes()).generation


@pytest.mark.parametrize("tenants", [1, 4])
def test_leases_from_the_time_without_an_agent_are_broken_once(page, store, tenants):
    with ExitStack() as stack:
        for _ in range(tenants):
            assert stack.enter_context(a_tenant(page)) == "leased"
        for number in (2, 3, 4):
            assert store.write_limits(ID, sample_limits(number)) == "updated"
            assert says(page) == 2 * number


def test_from_a_pages_first_moment_on_nobody_is_given_a_lease(page, store):
    page.unlink()
    assert store.write_limits(ID, sample_limits(5)) == "new"
    with a_tenant(page) as answer:
        assert answer == os.strerror(errno.EAGAIN)
    page.write_bytes(b"garbage")
    assert store.write_limits(ID, sample_limits(6)) == "replaced"
    with a_tenant(page) as answer:
        assert answer == os.strerror(errno.EAGAIN)
    assert store.write_limits(ID, sample_limits(7)) == "updated"
    assert says(page) == 14


def test_a_page_is_open_once_however_often_it_is_asked_for(page, store):
    before = open_files(page)
    threads = [threading.Thread(target=partial(store.hold_page, ID)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.write_limits(ID, sample_limits(2))
    assert open_files(page) - before == 1
    store.remove(ID)
    assert open_files(page) == 0


def test_a_slice_without_a_page_has_none_to_hold(store):
    store.hold_page(ID)
    store.create(a_record())
    store.hold_page(ID)


def open_files(path):
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += str(link.readlink()).removesuffix(" (deleted)") == str(path)
    return found


async def test_an_agent_that_was_started_again_holds_every_page(parts, page):
    async def no_room(_pods):
        """Nobody makes any."""

    pod = parts.pod()
    assert isinstance(await prepare(an_entry(pod, ONE), parts.around, no_room), Prepared)
    path = parts.store.state_dir(ONE) / "limits"
    parts.store.close()
    with a_tenant(path) as answer:
        assert answer == "leased"
        await hold_pages(parts.around)
        grown = parts.granted(parts.pod(main=[a_grant("A", 3000)], generation=2))
        live = parts.around.slices.get(ONE)
        assert isinstance(await resize(grown, live, parts.around, no_room), Prepared)
    assert parts.mib(ONE) == [3000]
