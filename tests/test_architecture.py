"""What holds for every source file: no state at import, small files, one word per idea."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = [
    ROOT / "hami",
    ROOT / "lab/hami_lab",
    ROOT / "shim/simgpu/hami_simgpu",
    *sorted(ROOT.glob("plugins/*/hami_*")),
]
FILES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))

MOST_LINES_IN_A_FILE = 500
MOST_LINES_IN_A_FUNCTION = 60

MUTABLE = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp, ast.GeneratorExp)
MAKERS = frozenset(
    {"dict", "list", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict", "ChainMap",
     "WeakKeyDictionary", "WeakValueDictionary", "iter", "count", "Lock", "RLock", "Event",
     "Condition", "Semaphore", "Queue", "local", "ContextVar", "Random"}
)  # fmt: skip
CACHES = frozenset({"cache", "lru_cache", "cached_property"})
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)

BANNED = frozenset(
    {"card", "cards", "vgpu", "vgpus", "predicate", "predicates", "manager", "managers", "helper",
     "helpers", "util", "utils", "misc", "common", "mem"}
)  # fmt: skip
"""Other projects' words for a device, a filter and a drawer without a label; ``mem`` has no unit."""

ALLOWED = frozenset({"manager"})
"""pluggy's word for what holds its plugins."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_file = pytest.mark.parametrize("path", [pytest.param(path, id=named(path)) for path in FILES])


# State.


def at_import(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement that runs when the module is imported, class bodies too."""
    for statement in body:
        yield statement
        if not isinstance(statement, FUNCTION):
            for field in ("body", "orelse", "finalbody"):
                yield from at_import(getattr(statement, field, ()))
            for handler in getattr(statement, "handlers", ()):
                yield from at_import(handler.body)


def last_name(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return getattr(called, "attr", getattr(called, "id", ""))


def is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Tuple):
        return any(map(is_mutable, value.elts))
    if isinstance(value, ast.IfExp):
        return is_mutable(value.body) or is_mutable(value.orelse)
    return isinstance(value, MUTABLE) or (
        isinstance(value, ast.Call) and last_name(value) in MAKERS
    )


def state_of(tree: ast.Module) -> list[str]:
    """Where a module keeps what can change: its values, its caches, its ``global`` words.

    A field's default in a class body (``items: list[str] = []``) is copied by whoever reads it.
    """
    found = []
    fields = {
        id(field)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
    }
    for statement in at_import(tree.body):
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = getattr(statement, "targets", None) or [statement.target]
            names = {ast.unparse(target) for target in targets}
            if is_mutable(statement.value) and names != {"__all__"} and id(statement) not in fields:
                found.append(f"line {statement.lineno}: {ast.unparse(statement)}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
        if isinstance(node, FUNCTION):
            caches = [d for d in node.decorator_list if last_name(d) in CACHES]
            found += [f"line {d.lineno}: @{ast.unparse(d)} {node.name}" for d in caches]
    return found


@each_file
def test_no_state_at_module_level(path):
    assert state_of(ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("A = {}", 1, id="a dict"),
        pytest.param("A: dict[str, int] = {}", 1, id="an annotated dict"),
        pytest.param("A = [x for x in B]", 1, id="a comprehension"),
        pytest.param("A = (1, [])", 1, id="a list in a tuple"),
        pytest.param("A = threading.Lock()", 1, id="a lock"),
        pytest.param("A = dict(a=1)", 1, id="a dict by name"),
        pytest.param("if B:\n    A = set()", 1, id="behind an if"),
        pytest.param("try:\n    pass\nexcept E:\n    A = []", 1, id="behind an except"),
        pytest.param("class C:\n    seen = []", 1, id="shared by a class"),
        pytest.param("def f():\n    global A", 1, id="a global word"),
        pytest.param("@functools.cache\ndef f(): ...", 1, id="a cache"),
        pytest.param("class C:\n    @lru_cache(maxsize=1)\n    def f(self): ...", 1, id="a cache in a class"),
        pytest.param("A = MappingProxyType({})", 0, id="a read-only view is a value"),
        pytest.param("A = frozenset({1})", 0, id="a frozen set is a value"),
        pytest.param("A = (1, 2)", 0, id="a tuple is a value"),
        pytest.param("A = re.compile('x')", 0, id="a pattern is a value"),
        pytest.param("__all__ = ['a']", 0, id="a list of names is allowed"),
        pytest.param("def f():\n    a = {}", 0, id="within a function it is nobody else's"),
        pytest.param("class C(Struct):\n    a: list[str] = []", 0, id="a field's default"),
    ],
)  # fmt: skip
def test_state_is_found(source, expected):
    assert len(state_of(ast.parse(source))) == expected


# Budgets.


@each_file
def test_a_file_tells_one_story(path):
    lines = len(path.read_text().splitlines())
    assert lines <= MOST_LINES_IN_A_FILE, f"{named(path)} has {lines} lines: split it"


@each_file
def test_a_function_can_be_read_at_a_glance(path):
    long = [
        f"{node.name} has {length} lines"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, FUNCTION)
        and (length := node.end_lineno - node.lineno + 1) > MOST_LINES_IN_A_FUNCTION
    ]
    assert long == []


# Words.


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=named(p)) for p in FILES if p.name == "__init__.py"],
)
def test_a_package_says_what_is_inside(path):
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text, f"{named(path)} has no docstring: say what is inside and whether I/O is allowed"


def test_every_directory_of_sources_is_a_package():
    missing = {named(p.parent) for p in FILES if not (p.parent / "__init__.py").exists()}
    assert missing == set()


def words_of(name: str) -> set[str]:
    """``hasGPUCards_now`` as words in lower case."""
    parts = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+", name)
    return {part.lower() for part in parts}


def names_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Everything that gets a name here: classes, functions, arguments, fields, constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


@each_file
def test_names_use_the_projects_words(path):
    found = [
        f"line {line}: {name}"
        for name, line in [(path.stem, 0), *names_in(ast.parse(path.read_text()))]
        if name not in ALLOWED and words_of(name) & BANNED
    ]
    assert found == []


def test_a_public_class_name_is_there_once():
    """Outside the laboratory: whoever reads a name knows which one is meant."""
    found: dict[str, list[str]] = {}
    for path in FILES:
        if path.is_relative_to(ROOT / "lab"):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(named(path))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("QuotaManager", {"quota", "manager"}, id="camel case"),
        pytest.param("free_mem", {"free", "mem"}, id="snake case"),
        pytest.param("GPUCards", {"gpu", "cards"}, id="an abbreviation before a word"),
        pytest.param("_member", {"member"}, id="a word that only begins alike"),
    ],
)
def test_names_are_split_into_words(name, expected):
    assert words_of(name) == expected
