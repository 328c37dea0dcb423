"""A libcuda.so.1 of names alone: every function of ``hooks.def``, distinct, doing nothing.

It can be what the simulated driver cannot: without some functions, with one function under two
names, with functions that it does not export.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .builds import SHIM
from .hook_list import CALLS, HOOKS, NVML_CALLS, NVML_HOOKS

SOURCES = SHIM / "tests" / "resolution"
_PROC = ("cuGetProcAddress", "cuGetProcAddress_v2")

_LOOK_UP = """
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int unlisted(void) { return 77; }
struct spelling { const char *base; int since, per_thread; void *function; };
static const struct spelling spellings[];
static const int count;

static int look_up(const char *symbol, void **function, int version, uint64_t flags, int *status)
{
    const char *hidden = getenv("FAKE_UNLISTED");
    const struct spelling *best = NULL;
    int known = 0, scratch;

    if (!symbol || !function) return 1;
    if (!status) status = &scratch;
    for (int i = 0; i < count; i++) {
        const struct spelling *one = &spellings[i];
        if (strcmp(one->base, symbol) != 0) continue;
        known = 1;
        if (one->since > version || (one->per_thread && !(flags & 2))) continue;
        if (!best || one->per_thread > best->per_thread ||
            (one->per_thread == best->per_thread && one->since > best->since)) best = one;
    }
    *function = best ? best->function : NULL;
    if (hidden && strcmp(hidden, symbol) == 0) *function = (void *)unlisted;
    *status = *function ? 0 : known ? 2 : 1;
    return *function ? 0 : 500;
}
int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{ return look_up(symbol, function, version, flags, NULL); }
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status)
{ return look_up(symbol, function, version, flags, status); }
"""


def _functions(names: Sequence[str], aliases: Mapping[str, str]) -> list[str]:
    lines = [f"int {name}(void) {{ return 0; }}" for name in names if name not in aliases]
    return lines + [
        f'int {name}(void) __attribute__((alias("{other}")));' for name, other in aliases.items()
    ]


def _driver(without: Sequence[str], aliases: Mapping[str, str]) -> str:
    hooks = [hook for hook in HOOKS if hook.name not in without]
    names = [hook.name for hook in hooks if hook.name not in _PROC]
    names += [name for name in (*CALLS, "cuDriverGetVersion") if name not in without]
    rows = [
        f'{{"{hook.base}", {hook.since}, {int(hook.per_thread)}, (void *){hook.name}}},'
        for hook in hooks
    ]
    rows += ['{"cuGraphInstantiate", 12000, 0, (void *)cuGraphInstantiateWithFlags},']
    rows += ['{"cuDriverGetVersion", 2020, 0, (void *)cuDriverGetVersion},']
    return "\n".join(
        (
            *_functions(names, aliases),
            _LOOK_UP,
            "static const struct spelling spellings[] = {",
            *rows,
            "};",
            f"static const int count = {len(rows)};",
            (SOURCES / "asks.c").read_text(),
        )
    )


def compiled(source: Path, target: Path, *flags: str) -> Path:
    """Compile a program, or with ``-shared`` a library."""
    command = ["cc", "-D_GNU_SOURCE", "-fPIC", "-O0", "-w", str(source), "-o", str(target)]
    done = subprocess.run([*command, *flags, "-ldl", "-pthread"], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return target


def make_driver(
    folder: Path,
    *,
    without: Sequence[str] = (),
    aliases: Mapping[str, str] | None = None,
    hash_style: str = "gnu",
) -> Path:
    """Make both libraries in ``folder``."""
    folder.mkdir()
    source = folder / "driver.c"
    for soname, code in (
        ("libcuda.so.1", _driver(without, aliases or {})),
        ("libnvidia-ml.so.1", "\n".join(_functions([*NVML_HOOKS, *NVML_CALLS], {}))),
    ):
        source.write_text(code)
        linked = f"-Wl,-Bsymbolic,-soname,{soname},--hash-style={hash_style}"
        compiled(source, folder / soname, "-shared", linked)
    return folder
