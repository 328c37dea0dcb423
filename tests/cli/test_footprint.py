"""What the agent's process lets go of: measured on processes of their own."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hami.cli.memory_use import library_pages

SMAPS = """\
00400000-00452000 r-xp 00000000 08:02 173521 /usr/bin/python3.11
Size:                328 kB
Rss:                 300 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me dw
00e03000-00e24000 rw-p 00000000 00:00 0 [heap]
Rss:                  64 kB
Anonymous:            64 kB
7f01a000-7f02b000 r--p 00000000 08:02 9 /usr/lib/libssl.so.3
Rss:                  64 kB
Anonymous:             0 kB
7f02b000-7f03c000 r-xp 00011000 08:02 9 /usr/lib/lib with a blank.so
Rss:                  64 kB
Anonymous:             0 kB
7f04a000-7f05b000 r-xp 00000000 08:02 10 /usr/lib/libdebugged.so
Rss:                  64 kB
Anonymous:             4 kB
7f06a000-7f07b000 rwxp 00000000 08:02 11 /usr/lib/libwritable.so
Rss:                  64 kB
Anonymous:             0 kB
7f08a000-7f09b000 r-xp 00000000 00:00 0
Rss:                  64 kB
Anonymous:             0 kB
7ffc0000-7ffc2000 r-xp 00000000 00:00 0 [vdso]
Rss:                   8 kB
Anonymous:             0 kB
"""


def test_only_code_that_is_as_in_its_file_is_let_go():
    assert list(library_pages(SMAPS)) == [(0x400000, 0x452000), (0x7F02B000, 0x7F03C000)]


CONSTANTS = """\
7f10000-7f11000 r--p 00000000 08:02 9 /usr/lib/libssl.so.3
Anonymous:             0 kB
Swap:                  0 kB
7f11000-7f12000 r-xp 00001000 08:02 9 /usr/lib/libssl.so.3
Anonymous:             0 kB
Swap:                  0 kB
7f12000-7f13000 r--p 00002000 08:02 9 /usr/lib/libssl.so.3
Anonymous:             {anonymous} kB
Swap:                  {swap} kB
7f13000-7f14000 r--p 00000000 08:02 10 /usr/lib/locale/C.utf8/LC_CTYPE
Anonymous:             0 kB
Swap:                  0 kB
7f14000-7f15000 r--p 00000000 00:00 0
Anonymous:             0 kB
Swap:                  0 kB
"""


@pytest.mark.parametrize(
    ("anonymous", "swap", "let_go"),
    [
        pytest.param(0, 0, 3, id="as in the file"),
        pytest.param(4, 0, 2, id="relocated by the linker"),
        pytest.param(0, 4, 2, id="relocated, and swapped out since"),
    ],
)
def test_constants_of_libraries_alone_are_let_go_where_they_are_as_in_the_file(
    anonymous, swap, let_go
):
    ranges = [(0x7F10000, 0x7F11000), (0x7F11000, 0x7F12000), (0x7F12000, 0x7F13000)]
    smaps = CONSTANTS.format(anonymous=anonymous, swap=swap)
    assert list(library_pages(smaps)) == ranges[:let_go]


def output_of(program: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return result.stdout


RELEASED = """
import pathlib
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hami.cli.memory_use import LibraryPages
def resident():
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssFile"))
def works():
    key = Ed25519PrivateKey.generate()
    key.public_key().verify(key.sign(b"text"), b"text")
works()
code = LibraryPages.loaded()
before = resident()
code.release()
after = resident()
works()
print(before, after)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc")
def test_a_library_works_as_before_and_less_of_it_is_in_memory():
    before, after = map(int, output_of(RELEASED).split())
    assert after < before - 1024


ARENAS = """
import ctypes, threading
from hami.cli.memory_use import keep_one_arena
{call}
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
together = threading.Barrier(4)
def work():
    libc.malloc(ctypes.c_size_t(4096))
    together.wait()
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
stream = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, stream)
libc.fflush(stream)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arenas are glibc's")
def test_threads_share_one_heap():
    def heaps(call: str) -> int:
        return len(re.findall("<heap nr=", output_of(ARENAS.format(call=call))))

    assert heaps("keep_one_arena()") == 1
    assert heaps("") > 1


START = """
import asyncio
from types import SimpleNamespace
from hami.cli import node_process
from hami.cli.commands import device_plugin
from hami.cli.flags.vendor_flags import VendorFlags
class Pages:
    @classmethod
    def loaded(cls):
        return cls()
    def release(self):
        released.append(said[-1])
said, released = ["imported"], []
async def serve(config, *, source, ready):
    said.append("ready")
    ready()
    said.append("kubelet called")
    while len(released) < 3:
        await asyncio.sleep(0.01)
node_process.LibraryPages = Pages
device_plugin.FIRST_CALLS = 0.0
node_process.imported_for_good = lambda name: SimpleNamespace(serve=serve)
options = {"vendor": "mock", "node_name": "n1"}
device_plugin.run_device_plugin(None, options, VendorFlags(), print_config=False)
print(released)
"""


def test_an_agent_lets_go_when_it_is_ready_and_again_after_kubelets_first_calls():
    assert output_of(START) == "['imported', 'ready', 'kubelet called']\n"
