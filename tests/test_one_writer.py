"""What the scheduler knows of the cluster is changed by its owners alone, in hami/scheduler/bookings.

Everybody else is handed a ``ClusterState`` and reads it; what they want changed they ask of
``bookings``, ``bound``, ``quota_objects``, ``inventory`` or ``pending``, by a method.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import hami
from hami.scheduler.bookings.bookings import Bookings
from hami.scheduler.bookings.inventory import ClusterInventory
from hami.scheduler.bookings.resizes import Resizes
from hami.scheduler.pending.pending_pods import PendingPods

SCHEDULER = Path(hami.__file__).parent / "scheduler"
OUTSIDE = sorted(
    path for path in SCHEDULER.rglob("*.py") if {"bookings", "pending"}.isdisjoint(path.parts)
)

CHANGES = {
    "table": {"charge", "release", "set_node", "remove_node"},
    "ledger": {
        "ask", "charge", "hopeless", "known", "look_again", "release", "remove_quota", "reserve",
        "seen", "set_elastic", "set_quota", "withdraw",
    },
    "reservations": {
        "bound", "clear", "lost", "not_bound", "pop", "popitem", "setdefault", "update",
    },
    "charges": {"clear", "pop", "popitem", "setdefault", "update"},
    "nodes": {"clear", "pop", "popitem", "setdefault", "update"},
    "pods": {"clear", "pop", "popitem", "setdefault", "update"},
    "quotas": {"clear", "pop", "popitem", "setdefault", "update"},
    "unjudged": {"clear", "pop", "popitem", "setdefault", "update"},
    "leaving": {"add", "clear", "discard", "remove"},
    "holds": {"begin", "end", "forget", "keeps", "lets_go", "spares"},
    "locks": {"node_seen", "node_gone"},
    "freed": {"set"},
    "claims": {"set"},
}  # fmt: skip
"""By part of the state: the methods that change it."""

KNOWN_TO_PLANNERS = "known"
"""Lets the ledger look a pod up, and changes no amount."""


def changes_in(tree: ast.AST) -> Iterator[str]:
    """Calls and assignments that change a part of a state, as they are written; also by a name that
    a function gives to a part.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _changes_in(node, dict(_names_in(node)))
    if isinstance(tree, ast.Module):
        loose = [n for n in tree.body if not isinstance(n, ast.FunctionDef | ast.ClassDef)]
        yield from _changes_in(ast.Module(loose, []), {})


def _names_in(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """``ledger, table = state.ledger, state.table``; ``reservation = state.reservations.get(uid)``."""
    for node in ast.walk(function):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = list(zip(names, values, strict=True))
            case ast.Assign(targets=[name], value=value) | ast.NamedExpr(target=name, value=value):
                pairs = [(name, value)]
            case ast.For(target=name, iter=value):
                pairs = [(name, value)]
        for name, value in pairs:
            part = value
            while isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
                part = part.func.value
            if isinstance(name, ast.Name) and isinstance(part, ast.Attribute | ast.Subscript):
                yield name.id, part


def _changes_in(tree: ast.AST, names: dict[str, ast.expr]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            part = _of_state(node.func.value, names)
            if node.func.attr in CHANGES.get(part, ()) and node.func.attr != KNOWN_TO_PLANNERS:
                yield ast.unparse(node)
        targets: list[ast.expr] = []
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                pass
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                targets = [target]
        for target in targets:
            if isinstance(target, ast.Attribute | ast.Subscript) and _of_state(target.value, names):
                yield ast.unparse(node)


def _of_state(value: ast.expr, called: dict[str, ast.expr]) -> str:
    """The last part of ``state.reservations`` or ``self._state.bound.leaving``; the state itself is
    ``state``; empty for anything else.
    """
    names: list[str] = []
    if isinstance(value, ast.Name) and value.id in called:
        value = called[value.id]
    while isinstance(value, ast.Attribute | ast.Subscript):
        names += [value.attr] if isinstance(value, ast.Attribute) else []
        value = value.value
    names += [value.id] if isinstance(value, ast.Name) else []
    if not {"state", "_state"}.intersection(names):
        return ""
    return "state" if names[0] in ("state", "_state") else names[0]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: path.relative_to(SCHEDULER).as_posix())
def test_nobody_else_changes_the_state(path: Path) -> None:
    assert list(changes_in(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "text",
    [
        "state.table.charge(uid, allocation)",
        "self._state.reservations[uid] = former",
        "state.reservations[uid].phase = phase",
        "del state.charges[uid]",
        "state.scheduler_name = name",
        "self._state.pending.following = False",
        "state.bookings.change += 1",
        "state.pending.freed.set()",
        "ledger, pod = state.ledger, pods[uid]; ledger.release(pod.uid)",
        "reservation = self._state.reservations.get(uid); reservation.phase = Phase.BOUND",
        "for each in state.reservations.unbound(): each.since = now",
    ],
)
def test_such_a_change_is_found(text: str) -> None:
    (found,) = changes_in(ast.parse(f"def function(state):\n    {text}"))
    assert found in text


@pytest.mark.parametrize("owner", [ClusterInventory, Bookings, PendingPods, Resizes])
def test_no_method_of_the_owners_waits(owner: type) -> None:
    methods = [member for _, member in inspect.getmembers(owner, inspect.isfunction)]
    assert methods
    assert not [m.__name__ for m in methods if inspect.iscoroutinefunction(m)]
