"""Variables of code: what a module's image declares is counted before the driver takes it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from .builds import Build
from .memory import OUT_OF_MEMORY, SUCCESS, Program
from .simulated import MIB, SimulatedGpus
from .slices import Slice
from .storms import StormTenant

GIB = 1024 * MIB
LIMIT = GIB
KNOBS = {"CONTEXT_MIB": 2}


# ---- Images as compilers write them --------------------------------------------------------


def ptx(bytes_: int) -> bytes:
    return (
        "//\n// made by hand\n//\n.version 8.4\n.target sm_80\n.address_size 64\n\n"
        f"/* .global .b8 not_this[{9 * GIB}]; */\n"
        f".extern .global .align 4 .b8 elsewhere[{5 * GIB}];\n"
        f".visible .global .align 4 .b8 big[{bytes_ - 64}];\n"
        ".global .align 8 .u64 numbers[8] = {1, 2, 3};\n"
        ".visible .entry k(\n .param .u64 .ptr .global .align 4 k_param_0\n)\n{\n"
        " .reg .b64 %rd<3>;\n ld.param.u64 %rd1, [k_param_0];\n ret;\n}\n"
    ).encode()


def elf(bytes_: int) -> bytes:
    """A cubin: the variables without values take no room in the file."""
    sections = [
        ("", 0, 0, 0, 0),
        (".shstrtab", 3, 0, 64, 64),
        (".text.k", 1, 6, 128, 128),
        (".nv.global.init", 1, 3, 128, 64),
        (".nv.global", 8, 3, 128, bytes_ - 64),
    ]
    names, table = b"", b""
    for name, kind, flags, offset, size in sections:
        table += struct.pack("<IIQQQQIIQQ", len(names), kind, flags, 0, offset, size, 0, 0, 4, 0)
        names += name.encode() + b"\0"
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 256, 80 << 16, 64, 0, 0, 64, 5, 1)
    return (header + names.ljust(64, b"\0") + bytes(128)).ljust(256, b"\0") + table


def lz4(plain: bytes) -> bytes:
    """One block: literals, but for a run of zeroes at the end, which is copied from itself."""
    body = plain.rstrip(b"\0")
    run = len(plain) - len(body)
    if run < 32:
        return _lz4_literals(plain, 0)
    left = run - 1 - 5  # a block ends with literals
    return (
        _lz4_literals(body + b"\0", left - 4) + b"\x01\0" + _lz4_more(left - 4)
    ) + _lz4_literals(bytes(5), 0)


def _lz4_literals(plain: bytes, match: int) -> bytes:
    token = min(len(plain), 15) << 4 | min(match, 15)
    return bytes([token]) + _lz4_more(len(plain)) + plain


def _lz4_more(length: int) -> bytes:
    if length < 15:
        return b""
    return b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])


def zstd(plain: bytes) -> bytes:
    """A frame of blocks that are kept as they are, and runs."""
    frame = struct.pack("<IBI", 0xFD2FB528, 0b10100000, len(plain))
    blocks = [plain[at : at + 60000] for at in range(0, len(plain), 60000)]
    for number, block in enumerate(blocks):
        last = number == len(blocks) - 1
        if block.strip(b"\0") == b"":
            frame += (len(block) << 3 | 1 << 1 | last).to_bytes(3, "little") + b"\0"
        else:
            frame += (len(block) << 3 | last).to_bytes(3, "little") + block
    return frame


def fat(kind: int, plain: bytes, pack: Callable[[bytes], bytes] | None = None) -> bytes:
    """With something for an older architecture ahead; ``kind``: 1 text, 2 code."""
    entries = _entry(kind, 52, plain[:8], None) + _entry(kind, 90, plain, pack)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def _entry(
    kind: int, capability: int, plain: bytes, pack: Callable[[bytes], bytes] | None
) -> bytes:
    content = pack(plain) if pack else plain
    padded = content + bytes(-len(content) % 8)
    return (
        struct.pack("<HHIQ", kind, 0x101, 64, len(padded))
        + struct.pack("<IIHHI", len(content) if pack else 0, 0, 0, 0, capability)
        + struct.pack("<IIQQQ", 0, 0, 0, 0, len(plain) if pack else 0)
        + padded
    )


IMAGES: dict[str, Callable[[int], bytes]] = {
    "ptx": ptx,
    "elf": elf,
    "fat ptx": lambda bytes_: fat(1, ptx(bytes_)),
    "fat elf": lambda bytes_: fat(2, elf(bytes_)),
    "lz4 ptx": lambda bytes_: fat(1, ptx(bytes_), lz4),
    "lz4 elf": lambda bytes_: fat(2, elf(bytes_) + bytes(70000), lz4),
    "zstd ptx": lambda bytes_: fat(1, ptx(bytes_), zstd),
    "zstd elf": lambda bytes_: fat(2, elf(bytes_) + bytes(70000), zstd),
}
MODULES = ("image_data", "image_ex", "image_fat", "module_file")
LIBRARIES = ("image_library", "library_file")


# ---- Loading them ---------------------------------------------------------------------------


class ModuleTenant(StormTenant):
    def program(self, *, device: bool = True) -> Program:
        program = Program(
            self._build.program("paths_console"),
            {**self._gpus.env(self.name, **KNOBS), **self.slice.env()},
            self._build.library,
        )
        program.does("init")
        if device:
            program.does("device", 0)
        return program


@pytest.fixture
def gpus(shim: Build, tmp_path: Path):
    with SimulatedGpus(tmp_path, build=shim) as gpus:
        yield gpus


@pytest.fixture
def tenant(shim: Build, gpus: SimulatedGpus, tmp_path: Path) -> ModuleTenant:
    return ModuleTenant("a", shim, gpus, Slice(tmp_path / "a", LIMIT))


@pytest.fixture
def image(tmp_path: Path) -> Callable[[str, int], Path]:
    def make(kind: str, bytes_: int) -> Path:
        path = tmp_path / f"{kind}-{bytes_}".replace(" ", "-")
        path.write_bytes(IMAGES[kind](bytes_))
        return path

    return make


@pytest.mark.parametrize("way", MODULES + LIBRARIES)
@pytest.mark.parametrize("kind", IMAGES)
def test_variables_beyond_the_limit_are_refused(
    kind: str, way: str, tenant: ModuleTenant, image: Callable[[str, int], Path]
):
    unload = "library_unload" if way in LIBRARIES else "module_unload"
    with tenant.program() as program:
        assert program.call(way, "m", image(kind, 3 * GIB)) == OUT_OF_MEMORY
        assert tenant.slice.charged() == 0
        program.does(way, "m", image(kind, 600 * MIB))
        if way in LIBRARIES:
            program.does("library_use", "m")
        assert 600 * MIB <= tenant.slice.charged() < 604 * MIB
        assert tenant.holds() <= tenant.slice.charged() + 2 * MIB + 2 * MIB  # context, the last one
        assert program.call(way, "n", image(kind, 600 * MIB)) == OUT_OF_MEMORY
        assert program.call("alloc", "x", 600 * MIB) == OUT_OF_MEMORY
        program.does(unload, "m")
        assert tenant.slice.charged() == 0
        program.does("alloc", "x", 1000 * MIB)
    assert tenant.most() <= LIMIT + 4 * MIB


def test_they_go_with_their_context_and_their_process(
    tenant: ModuleTenant, image: Callable[[str, int], Path]
):
    path = image("ptx", 600 * MIB)
    with tenant.program() as program:
        program.does("image_data", "m", path)
        program.does("drop")
        assert tenant.slice.charged() == 0
    for way in ("image_data", "image_library"):
        program = tenant.program()
        program.does(way, "m", path)
        program.kill()
        with tenant.program() as next_one:
            next_one.does("alloc", "x", 1000 * MIB)


def test_a_library_is_counted_before_there_is_a_context(
    tenant: ModuleTenant, image: Callable[[str, int], Path]
):
    """The driver takes its memory when it is first used, and asks nobody."""
    with tenant.program(device=False) as program:
        assert program.call("image_library", "m", image("lz4 elf", 3 * GIB)) == OUT_OF_MEMORY
        program.does("image_library", "m", image("zstd elf", 600 * MIB))
        program.does("device", 0)
        assert program.call("alloc", "x", 600 * MIB) == OUT_OF_MEMORY
        program.does("library_use", "m")
        assert tenant.most() <= LIMIT
        program.does("library_unload", "m")
        assert program.call("alloc", "x", 600 * MIB) == SUCCESS
