"""Files of a slice that are not as they should be, and tenants that write what they like.

What cannot be read closes the slice: out of memory for every request, told in the log and nowhere
else. What a tenant does to its usage region hurts nobody but its own container.
"""

from __future__ import annotations

import os
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hami.slices.c_layout import LimitsPageC, UsageC
from hami.slices.files import MalformedFile
from hami.slices.limits_page import PAGE_SIZE
from hami.slices.usage_region import (
    MOST_CHARGED,
    REGION_SIZE,
    RegionUsage,
    empty_region,
    parse_usage,
    read_usage,
)

from .builds import Build
from .memory import OUT_OF_MEMORY, SUCCESS
from .simulated import MIB, SimulatedGpus
from .slices import Slice
from .storms import WAYS, StormProgram, StormTenant

GRANULE = 2 * MIB
LIMIT = 63 * MIB
CHEAP = {"CONTEXT_MIB": 2, "POOL_STEP": GRANULE}
CLOSED = "every request for device memory is refused"


@pytest.fixture
def gpus(shim: Build, tmp_path: Path):
    with SimulatedGpus(tmp_path, build=shim) as gpus:
        yield gpus


@pytest.fixture
def tenant(shim: Build, gpus: SimulatedGpus, tmp_path: Path) -> Callable[..., StormTenant]:
    def make(*memory: int, name: str = "a") -> StormTenant:
        return StormTenant(name, shim, gpus, Slice(tmp_path / name, *memory))

    return make


# ---- What cannot be read ----------------------------------------------------------------------


def _write(file: Path, offset: int, data: bytes) -> None:
    with file.open("r+b") as open_:
        open_.seek(offset)
        open_.write(data)


def _page(field: str, value: int) -> Callable[[Path], None]:
    at = getattr(LimitsPageC, field)
    return lambda folder: _write(folder / "limits", at.offset, value.to_bytes(at.size, "little"))


def _region(field: str, value: int) -> Callable[[Path], None]:
    at = getattr(UsageC, field)
    return lambda folder: _write(folder / "usage", at.offset, value.to_bytes(at.size, "little"))


def _cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, size)


def _gone(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return change


def _elsewhere(name: str) -> Callable[[Path], None]:
    """A symbolic link, which a container could point anywhere."""

    def change(folder: Path) -> None:
        (folder / name).rename(folder / "moved")
        (folder / name).symlink_to(folder / "moved")

    return change


def _copies(change: Callable[[bytearray], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        page = bytearray((folder / "limits").read_bytes())
        change(page)
        (folder / "limits").write_bytes(page)

    return apply


def _flip(page: bytearray) -> None:
    """One bit, in both copies: of the first device's limit."""
    size = LimitsPageC.copies.size // 2
    for copy in range(2):
        page[LimitsPageC.copies.offset + copy * size + 64 + 64] ^= 1


def _wipe(page: bytearray) -> None:
    page[LimitsPageC.copies.offset : LimitsPageC.copies.offset + LimitsPageC.copies.size] = bytes(
        LimitsPageC.copies.size
    )


BROKEN: dict[str, Callable[[Path], None]] = {
    "no limits": _gone("limits"),
    "empty limits": _cut("limits", 0),
    "limits of one byte less": _cut("limits", PAGE_SIZE - 1),
    "limits of a page": _cut("limits", 4096),
    "limits are a directory": _instead("limits", Path.mkdir),
    "limits are a fifo": _instead("limits", os.mkfifo),
    "limits are a link": _elsewhere("limits"),
    "limits point nowhere": _instead("limits", lambda path: path.symlink_to("/nowhere")),
    "limits' magic": _page("magic", 1),
    "limits of another abi": _page("abi", 2),
    "limits of another size": _page("size", PAGE_SIZE + 1),
    "limits' copies of another size": _page("copy_size", 1599),
    "limits for more devices": _page("device_capacity", 17),
    "limits for more slots": _page("slot_capacity", 257),
    "observations elsewhere": _page("observed_offset", 4097),
    "limits with a bit changed": _copies(_flip),
    "limits without a copy": _copies(_wipe),
    "no usage": _gone("usage"),
    "empty usage": _cut("usage", 0),
    "usage of one byte less": _cut("usage", REGION_SIZE - 1),
    "usage is a directory": _instead("usage", Path.mkdir),
    "usage is a fifo": _instead("usage", os.mkfifo),
    "usage is a link": _elsewhere("usage"),
    "usage's magic": _region("magic", 0),
    "usage of another abi": _region("abi", 0),
    "usage of another size": _region("size", 1),
    "usage for more devices": _region("device_capacity", 17),
    "usage for fewer slots": _region("slot_capacity", 255),
    "slots elsewhere": _region("slots_offset", 0),
    "charges elsewhere": _region("charged_offset", 20481),
    "buckets elsewhere": _region("buckets_offset", 1),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_cannot_be_read_gives_nothing(
    what: str, tenant: Callable[..., StormTenant], capfd: pytest.CaptureFixture[str]
):
    a = tenant(LIMIT)
    BROKEN[what](a.slice.folder)
    with a.starts(**CHEAP) as quiet:
        quiet.does("init")
        assert quiet.call("device", 0) == OUT_OF_MEMORY
        for way in WAYS:
            assert quiet.take(way, 1, 1)[1] == 0, way
    assert capfd.readouterr().err == ""
    with loud(a) as program:
        program.does("init")
        assert program.call("device", 0) == OUT_OF_MEMORY
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert str(a.slice.folder / what_of(what)) in lines[0]
    assert CLOSED in lines[1]
    assert a.peak() == a.holds() == 0


def what_of(what: str) -> str:
    in_usage = ("usage", "slots", "charges", "buckets")
    return (
        "usage" if any(word in what for word in in_usage) and "more slots" not in what else "limits"
    )


def loud(tenant: StormTenant) -> StormProgram:
    """As the lowest level has it: errors."""
    build, gpus = tenant._build, tenant._gpus
    return StormProgram(
        build.program("storm"),
        {**gpus.env(tenant.name, **CHEAP), **tenant.slice.env(), "LIBCUDA_LOG_LEVEL": "1"},
        build.library,
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write what is read-only")
@pytest.mark.parametrize("mode", [0o444, 0o000])
def test_a_region_that_cannot_be_written_gives_nothing(
    mode: int, tenant: Callable[..., StormTenant]
):
    a = tenant(LIMIT)
    (a.slice.folder / "usage").chmod(mode)
    with a.starts() as program:
        program.does("init")
        assert program.call("device", 0) == OUT_OF_MEMORY
    assert a.holds() == 0


@pytest.mark.parametrize("change", [_flip, _wipe])
def test_a_page_that_breaks_while_it_is_in_use_keeps_its_last_limits(
    change: Callable[[bytearray], None], tenant: Callable[..., StormTenant]
):
    """The agent never does this; a node's disk might."""
    a = tenant(LIMIT)
    with a.runs(**CHEAP) as program:
        assert program.take("cuMemCreate", GRANULE, 3) == (SUCCESS, 3)
        data = bytearray((a.slice.folder / "limits").read_bytes())
        change(data)
        _write(a.slice.folder / "limits", 0, bytes(data))
        assert program.take("cuMemCreate", GRANULE) == (OUT_OF_MEMORY, 28)
        program.give("cuMemCreate")
        assert program.take("cuMemAlloc_v2", GRANULE) == (OUT_OF_MEMORY, 31)
    assert a.peak() == 62 * MIB


# ---- Hostile tenants ------------------------------------------------------------------------


def _grow(region: Path) -> None:
    os.truncate(region, 1 << 40)


def _fill(byte: int) -> Callable[[Path], None]:
    return lambda region: _write(region, 4096, bytes([byte]) * (REGION_SIZE - 4096))


def _negative(region: Path) -> None:
    """Charges that would make the sum small, if sums wrapped."""
    for device in range(2):
        _write(
            region,
            UsageC.charged.offset + (device * 256 + 100) * 8,
            struct.pack("<3Q", (1 << 64) - 200 * MIB, 1 << 63, 1 << 63),
        )


def _header(region: Path) -> None:
    _write(region, 0, b"\xff" * 4096)


@pytest.mark.parametrize(
    "scribble", [_grow, _fill(0xFF), _fill(0x7F), _fill(1), _negative, _header]
)
def test_a_scribbled_region_gives_no_more_than_the_limit(
    scribble: Callable[[Path], None], tenant: Callable[..., StormTenant]
):
    """Too little, or the limit."""
    a, b = tenant(LIMIT), tenant(LIMIT, name="b")
    with a.runs(**CHEAP) as program, b.runs(**CHEAP) as neighbour:
        assert program.take("cuMemAlloc_v2", GRANULE, 5) == (SUCCESS, 5)
        scribble(a.region)
        for way in ("cuMemCreate", "cuMemAlloc_v2", "cuMemAllocAsync"):
            assert program.take(way, GRANULE)[0] == OUT_OF_MEMORY
            program.give(way)
        assert neighbour.take("cuMemCreate", GRANULE) == (OUT_OF_MEMORY, LIMIT // GRANULE)
        before = time.monotonic()
        assert isinstance(read_usage(a.region), RegionUsage | MalformedFile)
        assert time.monotonic() - before < 1
    assert (a.peak(), b.peak()) == (a.peak(), 62 * MIB)
    assert a.peak() <= LIMIT


def _zero_charges(region: Path) -> None:
    _write(region, UsageC.charged.offset, bytes(UsageC.charged.size))


def _zero_slots(region: Path) -> None:
    """As if nobody had ever been there."""
    _write(region, UsageC.slots.offset, bytes(UsageC.slots.size + UsageC.charged.size))


def _kill_slots(region: Path) -> None:
    """Other processes hold them, which died long ago."""
    dead = struct.pack("<IIQQQQ24x", 1 << 21, 0, 1, 1, 1, 1)
    _write(region, UsageC.slots.offset, dead * 256)


def _charges(region: Path) -> tuple[int, ...]:
    charged = region.read_bytes()[UsageC.charged.offset :][: UsageC.charged.size]
    return struct.unpack(f"<{len(charged) // 8}Q", charged)


def _lower(region: Path) -> None:
    """Each by so little that it might be true."""
    lower = [word - min(word, 10 * MIB) for word in _charges(region)]
    _write(region, UsageC.charged.offset, struct.pack(f"<{len(lower)}Q", *lower))


LESS = {
    "no charges": _zero_charges,
    "no slots": _zero_slots,
    "dead slots": _kill_slots,
    "lower charges": _lower,
}
ROOM = 1000 * MIB
STEP = 8 * MIB  # what others' witnesses are kept in


@pytest.mark.parametrize("way", ["cuMemCreate", "cuMemAlloc_v2", "cuMemAllocAsync", "graph"])
@pytest.mark.parametrize("scribble", LESS.values(), ids=LESS)
def test_who_writes_that_it_has_less_gets_no_more(
    scribble: Callable[[Path], None], way: str, tenant: Callable[..., StormTenant]
):
    a = tenant(ROOM)
    with a.runs(**CHEAP) as program:
        result, taken = program.take("cuMemCreate", 100 * MIB)
        assert (result, taken) == (OUT_OF_MEMORY, 10)
        scribble(a.region)
        assert program.take(way, GRANULE)[0] == OUT_OF_MEMORY
        assert sum(_charges(a.region)) == 1000 * MIB  # for others to see
        program.give(way)
        program.give("cuMemCreate", keep=2)
        scribble(a.region)
        program.take(way, GRANULE)
        program.give(way)
        program.give("cuMemCreate")
        scribble(a.region)
        assert program.take("cuMemCreate", 100 * MIB) == (OUT_OF_MEMORY, 10)
    assert a.peak() <= ROOM


@pytest.mark.parametrize("scribble", LESS.values(), ids=LESS)
def test_what_an_idle_process_has_is_not_given_to_another(
    scribble: Callable[[Path], None], tenant: Callable[..., StormTenant]
):
    """It does nothing that would put its charge right; a third process starts afterwards."""
    a = tenant(ROOM)
    with a.runs(**CHEAP) as idle, a.runs(**CHEAP) as program:
        assert idle.take("cuMemCreate", 90 * MIB, 10) == (SUCCESS, 10)
        assert program.take("cuMemCreate", 10 * MIB, 5) == (SUCCESS, 5)
        scribble(a.region)
        before = a.granted()
        program.take("cuMemCreate", 20 * MIB)
        program.take("cuMemAlloc_v2", GRANULE)
        scribble(a.region)
        with a.starts(**CHEAP) as late:
            late.does("init")
            if late.call("device", 0) == SUCCESS:
                late.take("cuMemCreate", 20 * MIB)
                late.take("cuMemAlloc_v2", GRANULE)
        assert before <= a.peak() < ROOM + 2 * 2 * STEP
        idle.give("cuMemCreate")
        program.give("cuMemCreate")
        program.give("cuMemAlloc_v2")
        assert a.granted() == 0


def test_a_thief_that_never_rests_gets_no_more(shim: Build, tenant: Callable[..., StormTenant]):
    a = tenant(ROOM)
    with (
        a.runs(**CHEAP) as one,
        a.runs(**CHEAP) as two,
        scribbler(shim, a.region, "thief", 1) as thief,
    ):
        for round_ in range(200):
            first, second = (one, two) if round_ % 2 else (two, one)
            first.take("cuMemCreate", 50 * MIB)
            second.take("cuMemCreate", 50 * MIB)
            second.take("cuMemAlloc_v2", 10 * MIB)
            first.give("cuMemCreate", keep=round_ % 3)
            second.give("cuMemAlloc_v2")
            second.give("cuMemCreate", keep=round_ % 4)
        assert thief.process.poll() is None
    assert a.peak() < ROOM + 2 * 2 * STEP


def test_a_truncated_region_is_fatal_in_its_own_container_alone(
    tenant: Callable[..., StormTenant], gpus: SimulatedGpus
):
    a, b = tenant(LIMIT), tenant(LIMIT, name="b")
    victim = a.runs(**CHEAP)
    with b.runs(**CHEAP) as neighbour:
        neighbour.storms(1, rounds=300, most=20 * MIB)
        os.truncate(a.region, 0)
        victim.tell("take", "cuMemAlloc_v2", GRANULE, 1)
        assert victim.process.wait(20) != 0  # SIGBUS, as for whatever maps a file of its own
        victim.kill()
        assert neighbour.stormed()
        assert neighbour.take("cuMemCreate", GRANULE) == (OUT_OF_MEMORY, LIMIT // GRANULE)
    gpus.eventually(lambda: a.holds() == 0)
    assert isinstance(read_usage(a.region), MalformedFile)
    # Whoever starts there now is refused, and lives.
    with a.starts(**CHEAP) as next_one:
        next_one.does("init")
        assert next_one.call("device", 0) == OUT_OF_MEMORY
    assert b.peak() <= LIMIT


def test_locks_that_a_tenant_holds_block_nobody_outside(tenant: Callable[..., StormTenant]):
    """All of them, for as long as it likes; a process of its own finds no slot, and is refused."""
    import fcntl

    a = tenant(LIMIT)
    with a.region.open("r+b") as file:
        wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, wanted)
        before = time.monotonic()
        assert read_usage(a.region) == RegionUsage()
        with a.starts(**CHEAP) as program:
            program.does("init")
            assert program.call("device", 0) == OUT_OF_MEMORY
        assert time.monotonic() - before < 2
    with a.runs(**CHEAP) as program:
        assert program.take("cuMemCreate", GRANULE) == (OUT_OF_MEMORY, LIMIT // GRANULE)


def test_the_reader_beside_a_scribbler(shim: Build, tenant: Callable[..., StormTenant]):
    """A tenant writes, cuts and grows while the node reads: no signal, no wait, no more memory."""
    a, b = tenant(LIMIT), tenant(LIMIT, name="b")
    with b.runs(**CHEAP) as neighbour, scribbler(shim, a.region, "hostile", 1) as hostile:
        neighbour.storms(2, rounds=400, most=20 * MIB)
        before, read, slots = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0, 0
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            started = time.monotonic()
            found = read_usage(a.region)
            assert time.monotonic() - started < 0.5
            read += 1
            if isinstance(found, RegionUsage):
                slots += len(found.slots)
                assert len(found.slots) + found.refused <= 256
                for slot in found.slots:
                    assert 0 < slot.pid <= 1 << 22
                    assert max(slot.charged) <= MOST_CHARGED
        assert hostile.process.poll() is None
        assert read > 100
        assert slots > 0
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB
        assert neighbour.stormed()
        assert b.slice.charged() == b.granted() == 0
    assert b.peak() <= LIMIT


def scribbler(shim: Build, region: Path, manner: str, seed: int) -> StormProgram:
    program = StormProgram(shim.program("scribbler"), shim.environment(), None)
    program.tell(region)
    program.tell(manner, seed)
    return program


def test_programs_beside_a_scribbler_get_no_more_than_their_limit_and_an_answer(
    shim: Build, tenant: Callable[..., StormTenant]
):
    """One that writes words of the buckets and of slots that nobody holds, as if many had died: a
    request waits for what they had, but not for long."""
    a = tenant(LIMIT)
    refused = 0
    with a.runs(**CHEAP) as program, scribbler(shim, a.region, "gentle", 1) as hostile:
        until = time.monotonic() + 2
        while time.monotonic() < until or refused == 0:
            before = time.monotonic()
            refused += program.take("cuMemCreate", 10 * MIB, 1)[0] == OUT_OF_MEMORY
            assert time.monotonic() - before < 4
        assert hostile.process.poll() is None
        program.give("cuMemCreate")
        assert a.granted() == 0
    assert a.peak() <= LIMIT


FIELDS = st.tuples(st.integers(0, REGION_SIZE - 8), st.integers(0, (1 << 64) - 1))


@settings(max_examples=150, deadline=None)
@given(st.lists(FIELDS, max_size=30), st.integers(0, REGION_SIZE + 100))
def test_any_region_is_parsed_or_refused(writes: list[tuple[int, int]], length: int):
    data = bytearray(empty_region())
    for offset, value in writes:
        data[offset : offset + 8] = value.to_bytes(8, "little")
    found = parse_usage(bytes(data)[:length] + bytes(max(0, length - len(data))))
    if length < REGION_SIZE:
        assert isinstance(found, MalformedFile)
    if isinstance(found, RegionUsage):
        assert len(found.slots) + found.refused <= 256
        assert all(0 <= one <= MOST_CHARGED for slot in found.slots for one in slot.charged)
