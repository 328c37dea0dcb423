"""The elastic quota objects as the informers show them, made one arrangement of the ledger.

Objects come one by one, at a start by the hundred; what they say together is worked out once per
turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hami.domain.objects import CompositeElasticQuota, ElasticQuota, QuotaTree
from hami.policy.quota.elastic.arrangement import ElasticProblem
from hami.policy.quota.elastic.model import Leaf, LeafKey, TreeNode
from hami.policy.quota.elastic.objects import (
    BORROW_ANNOTATION,
    LEND_ANNOTATION,
    key_of,
    read_leaf,
    read_tree,
)
from hami.policy.quota.elastic.units import Units

NamespacedQuota = ElasticQuota | CompositeElasticQuota
QuotaObject = NamespacedQuota | QuotaTree


class ElasticObjects:
    """Every object by its key, ``QuotaTree <name>`` for a tree."""

    def __init__(self) -> None:
        self.objects: dict[str, QuotaObject] = {}

    def quota(self, key: LeafKey) -> NamespacedQuota | None:
        found = self.objects.get(key)
        return None if isinstance(found, QuotaTree) else found

    def put(self, quota: QuotaObject) -> bool:
        """Whether it says something new; a status or an annotation of ours does not."""
        key = object_key(quota)
        known = self.objects.get(key)
        self.objects[key] = quota
        return known is None or _meant(known) != _meant(quota)

    def remove(self, quota: QuotaObject) -> None:
        self.objects.pop(object_key(quota), None)

    def read(self, units: Units) -> tuple[list[Leaf], list[TreeNode], list[ElasticProblem]]:
        """What all of them say."""
        leaves: list[Leaf] = []
        nodes: list[TreeNode] = []
        problems: list[ElasticProblem] = []
        for quota in self.objects.values():
            if isinstance(quota, QuotaTree):
                groups, found = read_tree(quota, units)
                nodes += groups
            else:
                leaf, found = read_leaf(quota, units)
                leaves.append(leaf)
            problems += found
        return leaves, nodes, problems


def object_key(quota: QuotaObject) -> str:
    return f"QuotaTree {quota.name}" if isinstance(quota, QuotaTree) else key_of(quota)


def _meant(quota: QuotaObject) -> tuple[object, ...]:
    """All that is read of it."""
    if isinstance(quota, QuotaTree):
        return (quota.spec,)
    limits = tuple(quota.annotations.get(key) for key in (BORROW_ANNOTATION, LEND_ANNOTATION))
    return quota.spec, quota.labels, limits


class ElasticFeed:
    """From an informer into the state; ``arrange`` is called once per turn of the loop."""

    def __init__(self, objects: ElasticObjects, arrange: Callable[[], None]) -> None:
        self._objects = objects
        self._arrange = arrange
        self._waiting: asyncio.Handle | None = None

    def changed(self, new: QuotaObject, old: QuotaObject | None) -> None:  # noqa: ARG002 -- Handler's signature
        if self._objects.put(new):
            self._later()

    def gone(self, last: QuotaObject) -> None:
        self._objects.remove(last)
        self._later()

    def _later(self) -> None:
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().call_soon(self._now)

    def _now(self) -> None:
        self._waiting = None
        self._arrange()
