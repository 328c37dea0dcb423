"""The elastic quota objects as the informers show them, and what all of them say together."""

from __future__ import annotations

from hami.domain.kubernetes.objects import CompositeElasticQuota, ElasticQuota, QuotaTree
from hami.policy.quota.elastic.model import Leaf, LeafKey, TreeNode
from hami.policy.quota.elastic.objects.arrangement import ElasticProblem
from hami.policy.quota.elastic.objects.reading import (
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
