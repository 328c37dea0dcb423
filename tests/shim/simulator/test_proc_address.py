"""cuGetProcAddress of the simulated driver: which spelling a name means at which CUDA version."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..builds import SHIM
from ..simulated import SimulatedGpus

NEWEST = 13050
LEGACY, PER_THREAD = 1, 2
FOUND, UNKNOWN, TOO_NEW = 0, 1, 2
INVALID_VALUE, NOT_FOUND = 1, 500
TOOLKITS = [
    Path(folder) / "cudaTypedefs.h"
    for folder in (
        os.environ.get("CUDA_INCLUDE", ""),
        f"{os.environ.get('CUDA_HOME', '')}/include",
        "/usr/local/cuda/include",
    )
    if folder
]

# Asks for each [symbol, version, flags] of the JSON on its standard input and answers with
# [result, status, name] each; `v1` asks the spelling without a status.
ASK = """
import ctypes, json, sys
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]
driver, libc = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
libc.dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(Info)]
def ask(symbol, version, flags, v1=False):
    address, status, info = ctypes.c_void_p(1), ctypes.c_int(-1), Info()
    arguments = [symbol.encode(), ctypes.byref(address), version, ctypes.c_uint64(flags)]
    if v1:
        result = driver.cuGetProcAddress(*arguments)
    else:
        result = driver.cuGetProcAddress_v2(*arguments, ctypes.byref(status))
    if not address.value or address.value == 1 or not libc.dladdr(address, ctypes.byref(info)):
        return [result, status.value, None]
    return [result, status.value, info.name.decode()]
json.dump([ask(*question) for question in json.load(sys.stdin)], sys.stdout)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    name: str
    base: str
    since: int
    per_thread: bool


def spellings() -> list[Spelling]:
    """The simulator's table."""
    text = (SHIM / "lib/hooks.def").read_text() + (SHIM / "simgpu/proc_address.def").read_text()
    return [
        Spelling(name=name, base=base, since=int(since), per_thread=stream == "1")
        for name, base, since, stream in re.findall(
            r"^(?:HAMI_HOOK|SIM_PROC)\((\w+), (\w+), (\d+), ([01])", text, re.MULTILINE
        )
    ]


TABLE = spellings()
BASES = sorted({spelling.base for spelling in TABLE})


def expected(base: str, version: int, flags: int, driver: int = NEWEST) -> str | None:
    """The newest spelling that the version has; of two the per-thread one where it is asked for."""
    candidates = [
        spelling
        for spelling in TABLE
        if spelling.base == base
        and spelling.since <= min(version, driver)
        and (flags == PER_THREAD or not spelling.per_thread)
    ]
    best = max(candidates, key=lambda each: (each.since, each.per_thread), default=None)
    if base == "cuGraphInstantiate" and version >= 12000 <= driver:
        return "cuGraphInstantiateWithFlags"
    return best.name if best else None


def answers(plain_gpus: SimulatedGpus, questions: list, **knobs: object) -> list:
    done = subprocess.run(
        [sys.executable, "-c", ASK], input=json.dumps(questions), env=plain_gpus.env(**knobs),
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    found: list = json.loads(done.stdout)
    return found


@pytest.fixture
def driver_of_cuda(shim, tmp_path):
    with SimulatedGpus(tmp_path, build=shim) as gpus:
        yield gpus


def test_each_version_gets_its_own_spelling(driver_of_cuda):
    questions = [
        [base, version, flags]
        for base in BASES
        for version in sorted(
            {
                version
                for spelling in TABLE
                if spelling.base == base
                for version in (spelling.since - 10, spelling.since, spelling.since + 10, 12000)
                if 2000 <= version <= NEWEST
            }
        )
        for flags in (0, LEGACY, PER_THREAD)
    ]
    assert len(questions) > 2000
    for (base, version, flags), (result, status, name) in zip(
        questions, answers(driver_of_cuda, questions), strict=True
    ):
        wanted = expected(base, version, flags)
        assert (result, status, name) == (0, FOUND if wanted else TOO_NEW, wanted), (
            base, version, flags,
        )  # fmt: skip


def test_the_spelling_without_a_status_says_it_by_its_result(driver_of_cuda):
    questions = [
        ["cuMemAlloc", 3010, 0, True],
        ["cuMemAlloc", 3020, 0, True],
        ["cuMemCreate", 10010, 0, True],
        ["cuNoSuchFunction", 12000, 0, True],
    ]
    assert [[result, name] for result, _, name in answers(driver_of_cuda, questions)] == [
        [0, "cuMemAlloc"], [0, "cuMemAlloc_v2"], [NOT_FOUND, None], [NOT_FOUND, None],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (["cuMemAlloc_v2", 12000, 0], [0, UNKNOWN, None]),
        (["cuNoSuchFunction", 12000, 0], [0, UNKNOWN, None]),
        (["", 12000, 0], [0, UNKNOWN, None]),
        (["cuMemAlloc", NEWEST + 10, 0], [INVALID_VALUE, -1, None]),
        (["cuMemAlloc", 0, 0], [INVALID_VALUE, -1, None]),
        (["cuMemAlloc", 12000, 3], [INVALID_VALUE, -1, None]),
        (["cuGetProcAddress", 11030, 0], [0, FOUND, "cuGetProcAddress"]),
        (["cuGetProcAddress", 12000, 0], [0, FOUND, "cuGetProcAddress_v2"]),
        (["cuCtxSynchronize", 12090, 0], [0, FOUND, "cuCtxSynchronize"]),
        (["cuCtxSynchronize", 13000, 0], [0, FOUND, "cuCtxSynchronize_v2"]),
        (["cuStreamGetCaptureInfo", 11020, 2], [0, FOUND, "cuStreamGetCaptureInfo_ptsz"]),
        (["cuStreamGetCaptureInfo", 12020, 2], [0, FOUND, "cuStreamGetCaptureInfo_v2_ptsz"]),
        (["cuStreamGetCaptureInfo", 12030, 2], [0, FOUND, "cuStreamGetCaptureInfo_v3_ptsz"]),
        (["cuMemcpyHtoD", 6050, 2], [0, FOUND, "cuMemcpyHtoD_v2"]),
        (["cuMemcpyHtoD", 7000, 2], [0, FOUND, "cuMemcpyHtoD_v2_ptds"]),
        (["cuGraphInstantiate", 10000, 0], [0, FOUND, "cuGraphInstantiate"]),
        (["cuGraphInstantiate", 11080, 0], [0, FOUND, "cuGraphInstantiate_v2"]),
        (["cuGraphInstantiate", 12000, 0], [0, FOUND, "cuGraphInstantiateWithFlags"]),
    ],
)
def test_answers_known_from_the_documentation(driver_of_cuda, question, answer):
    assert answers(driver_of_cuda, [question]) == [answer]


def test_an_older_driver_has_no_newer_spelling(driver_of_cuda):
    questions = [
        ["cuCtxCreate", 12040, 0], ["cuMemGetMemPool", 12040, 0], ["cuCtxCreate", 13000, 0],
    ]  # fmt: skip
    assert answers(driver_of_cuda, questions, DRIVER_VERSION=12040) == [
        [0, FOUND, "cuCtxCreate_v3"], [0, UNKNOWN, None], [INVALID_VALUE, -1, None],
    ]  # fmt: skip


def test_the_table_is_what_the_driver_exports(shim):
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(shim.simulator / "libcuda.so.1")],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    exported = {line.split()[-1] for line in listed.splitlines()}
    of_ours = {name for name in exported if name.startswith("hami_sim_")}
    assert sorted(spelling.name for spelling in TABLE) == sorted(exported - of_ours)


@pytest.mark.skipif(
    not any(header.is_file() for header in TOOLKITS),
    reason="no CUDA toolkit (CUDA_INCLUDE) to compare with",
)
def test_the_table_agrees_with_the_toolkits_typedefs():
    file = next(header for header in TOOLKITS if header.is_file())
    header = file.read_text()
    told = re.search(r"#define CUDA_VERSION (\d+)", file.with_name("cuda.h").read_text())
    assert told is not None
    newest = int(told[1])
    typedefs: dict[str, set[int]] = {}
    per_thread: dict[str, set[int]] = {}
    for base, since, suffix in re.findall(r"\*PFN_(cu\w+?)_v(\d{4,5})(_pt[sd][sz])?\)\(", header):
        (per_thread if suffix else typedefs).setdefault(base, set()).add(int(since))
    # A header may lack a function altogether (12.9: cuLibraryGetKernelCount).
    compared = [
        spelling
        for spelling in TABLE
        if spelling.since <= newest and spelling.base in typedefs.keys() | per_thread.keys()
    ]
    assert len(compared) > 300
    for spelling in compared:
        known = (per_thread if spelling.per_thread else typedefs).get(spelling.base, set())
        assert spelling.since in known, spelling
