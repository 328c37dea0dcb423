"""docs/enforcement.md says what libvgpu.so does: its variables, sizes, limits and commands."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hami_lab.demo import tenant

from hami.policy.compute.demand import NOISE, WHOLE
from hami.policy.compute.shares import FLOOR, LEAST
from hami.slices.c_layout import MAX_SLOTS, LimitsPageC, UsageC

from .shim.builds import build
from .shim.simulated import SimulatedGpus

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/enforcement.md").read_text()
SOURCES = {path.name: path.read_text() for path in sorted((ROOT / "shim/lib").rglob("*.[ch]"))}
CODE = re.compile(r"`([^`]+)`")


def defined(file: str, name: str) -> str:
    found = re.search(rf"^#define {name} (.+?)(?: */\*.*)?$", SOURCES[file], re.MULTILINE)
    assert found, f"{file} defines no {name}"
    return found[1]


def test_the_table_has_the_variables_that_are_read_and_no_other():
    outside_tests = [
        re.sub(r"#ifdef HAMI_TEST\n.*?#endif", "", text, flags=re.DOTALL)
        for text in SOURCES.values()
    ]
    code = "\n".join(outside_tests)
    read = set(re.findall(r"\b(?:secure_)?get(?:env)?\(\"([A-Z_]+)\"\)", code))
    of_devices = set(re.findall(r"of_device\(get, \"([A-Z_]+)\"", code))
    assert "LIBCUDA_LOG_LEVEL" in read
    assert len(of_devices) == 2
    table = TEXT.partition("<!-- variables -->")[2].partition("<!-- end -->")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {name for cell in cells for name in CODE.findall(cell)}
    assert documented == read | of_devices | {f"{name}_<i>" for name in of_devices}


def test_levels_are_what_is_logged_at_them():
    levels = dict(re.findall(r"HAMI_([A-Z]+) = (\d)", SOURCES["log.h"]))
    used = {name for text in SOURCES.values() for name in re.findall(r"hami_log\(HAMI_(\w+)", text)}
    assert {levels[name] for name in used} == {"1", "2", "3"}
    row = next(line for line in TEXT.splitlines() if line.startswith("| `LIBCUDA_LOG_LEVEL`"))
    assert "0, or not set, nothing; 1 errors" in row
    assert re.findall(r"\b([0-9]) (?:errors|also)", row) == ["1", "2", "3"]


def test_sizes_and_numbers_are_the_codes():
    assert f"read-only; {ctypes.sizeof(LimitsPageC) >> 10} KiB" in TEXT
    assert f"writes, {ctypes.sizeof(UsageC) >> 10} KiB on" in TEXT
    assert f"{MAX_SLOTS} processes of a container" in TEXT
    newest = int(defined("proc_address.c", "NEWEST_KNOWN"))
    assert f"newer than {newest // 1000}.{newest % 1000 // 10}:" in TEXT
    seconds = re.match(r"\((\d) \* HAMI_SECOND\)", defined("bucket.h", "HAMI_BUCKET_DEBT"))
    assert seconds
    assert f"more than {seconds[1]} s of debt" in TEXT


def test_what_is_said_of_shares_is_what_is_handed_out():
    text = " ".join(TEXT.split())
    second = int(re.sub(r"\D", "", defined("follow.c", "STALE_NS").removeprefix("UINT64_C")))
    for said in (
        f"it keeps {FLOOR * 100 // WHOLE} % of the GPU, or its guarantee",
        f"that part and {2 * NOISE * 100 // WHOLE} points of the GPU to grow",
        f"what the others were not guaranteed, {LEAST * 100 // WHOLE} % at least",
        f"when none was heard of for {second // 10**9} s, the guarantee is the share",
    ):
        assert said in text, said


def test_the_oldest_glibc_is_the_wheels():
    hook = (ROOT / "shim/wheels.py").read_text()
    found = re.search(r'^GLIBC = "([0-9.]+)"$', hook, re.MULTILINE)
    assert found
    assert f"glibc {found[1]}" in TEXT


@pytest.mark.parametrize("place", re.findall(r"`(/run/hami/[a-z/]+|HAMI_SLICE_ID)`", TEXT))
def test_places_are_those_where_it_looks(place):
    code = SOURCES["slice.c"].replace('MOUNTED "/nvidia"', '"/run/hami/nvidia"')
    folder, _, name = place.rpartition("/")
    assert folder in code
    assert name in code


def test_the_agent_sets_what_the_table_says_it_sets():
    assert "`HAMI_SLICE_ID` | There must be a limits page. Set by the agent." in TEXT
    assert 'SLICE_ID_VARIABLE = "HAMI_SLICE_ID"' in (ROOT / "hami/node/slice/views.py").read_text()


TARGETS = re.findall(r"^    make (?:-C (shim)\b)? ?([a-z-]*)", TEXT, re.MULTILINE) + re.findall(
    r"`make (?:-C (shim) )?([a-z-]+)", TEXT
)


@pytest.mark.parametrize(("folder", "target"), TARGETS)
def test_what_is_made_can_be_made(folder, target):
    rules = (ROOT / folder / "Makefile").read_text()
    assert re.search(rf"^{target or 'all'}:", rules, re.MULTILINE)


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXT))
def test_links_lead_somewhere(link):
    assert (ROOT / "docs" / link).exists()


@pytest.mark.parametrize(
    ("file", "anchor"), re.findall(r"\]\(([a-z.-]*)#([a-z-]+)\)", TEXT), ids=lambda part: part
)
def test_anchors_are_headings(file, anchor):
    text = (ROOT / "docs" / file).read_text() if file else TEXT
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    assert anchor in [re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings]


def test_the_example_without_a_gpu_is_limited_as_it_says(tmp_path):
    """The library as it is released, and limits in the environment alone."""
    made = build("")
    block = TEXT.partition("### Without a GPU")[2]
    found = re.search(r"CUDA_DEVICE_MEMORY_LIMIT=(\d+)m", block)
    assert found
    with SimulatedGpus(tmp_path, build=made) as gpus:
        environment = gpus.env("reader") | {
            "CUDA_DEVICE_MEMORY_LIMIT": f"{found[1]}m",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(tmp_path / "cache"),
            "LD_PRELOAD": str(made.released),
        }
        done = subprocess.run(
            [sys.executable, "-I", "-S", tenant.__file__],
            input="more\n",
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        peak = gpus.held("reader").peak
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    limit = int(found[1]) << 20
    assert answer["before"][1] == limit
    assert answer["taken"] == limit // tenant.BLOCK * tenant.BLOCK == peak
    assert answer["refused"] == "CUDA_ERROR_OUT_OF_MEMORY"
