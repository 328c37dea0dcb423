"""Which quotas count, for which namespaces, and what hangs on what.

A composite goes before a single quota, and a namespace belongs to one quota. What is left over,
unknown or in a circle is a problem to be shown, and never a reason to stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hami.policy.quota.elastic.model import Leaf, LeafKey, TreeNode

_ON_THE_ROOT = "it hangs on the root"


@dataclass(frozen=True, slots=True)
class ElasticProblem:
    """A quota object that says something unusable; ``until_mended`` is what that means."""

    quota: str
    key: str
    text: str
    until_mended: str = ""

    def __str__(self) -> str:
        so = f"; {self.until_mended} until mended" if self.until_mended else ""
        return f"{self.quota}: {self.key}: {self.text}{so}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Leaves that count, with their own namespaces; nodes with parents that exist."""

    leaves: tuple[Leaf, ...]
    nodes: tuple[TreeNode, ...]
    by_namespace: Mapping[str, LeafKey]
    problems: tuple[ElasticProblem, ...]


def arranged(leaves: Iterable[Leaf], nodes: Iterable[TreeNode]) -> Arrangement:
    """The same result for the same objects, in whatever order they come."""
    problems: list[ElasticProblem] = []
    inner = _nodes(nodes, problems)
    by_namespace: dict[str, LeafKey] = {}
    kept: list[Leaf] = []
    composites_first = sorted(leaves, key=lambda leaf: (leaf.kind, leaf.namespace, leaf.name))
    for leaf in composites_first:
        mine = _namespaces(leaf, by_namespace, problems)
        if not mine:
            continue
        by_namespace |= dict.fromkeys(mine, leaf.key)
        if leaf.parent and leaf.parent not in inner:
            problems.append(_lost(leaf.key, "parent", leaf.parent))
            leaf = replace(leaf, parent="")  # noqa: PLW2901 - the leaf as it counts
        kept.append(replace(leaf, namespaces=mine) if mine != leaf.namespaces else leaf)
    return Arrangement(
        leaves=tuple(kept),
        nodes=tuple(inner.values()),
        by_namespace=by_namespace,
        problems=tuple(problems),
    )


def _namespaces(
    leaf: Leaf, taken: Mapping[str, LeafKey], problems: list[ElasticProblem]
) -> tuple[str, ...]:
    mine = tuple(dict.fromkeys(ns for ns in leaf.namespaces if ns not in taken))
    for namespace in dict.fromkeys(ns for ns in leaf.namespaces if ns in taken):
        text = f'namespace "{namespace}" belongs to {taken[namespace]}'
        so = "" if mine else "this quota does not count"
        problems.append(ElasticProblem(leaf.key, "namespaces", text, so))
    if not leaf.namespaces:
        so = "this quota does not count"
        problems.append(ElasticProblem(leaf.key, "namespaces", "there is none", so))
    return mine


def _nodes(nodes: Iterable[TreeNode], problems: list[ElasticProblem]) -> dict[str, TreeNode]:
    found: dict[str, TreeNode] = {}
    for node in sorted(nodes, key=lambda node: (node.tree, node.name)):
        if node.name in found:
            text = f'"{node.name}" is already a node of QuotaTree {found[node.name].tree}'
            problems.append(ElasticProblem(f"QuotaTree {node.tree}", "nodes", text))
        else:
            found[node.name] = node
    for node in list(found.values()):
        tree, key = f"QuotaTree {node.tree}", f"{node.name}: parent"
        if node.parent and node.parent not in found:
            problems.append(_lost(tree, key, node.parent))
            found[node.name] = replace(node, parent="")
        elif (circle := circle_of(node.name, found)) is not None:
            text = f"{' > '.join(circle)} is a circle"
            problems.append(ElasticProblem(tree, key, text, _ON_THE_ROOT))
            found[node.name] = replace(node, parent="")
    return found


def circle_of(name: str, nodes: Mapping[str, TreeNode]) -> tuple[str, ...] | None:
    """The way from a node up and back to itself, or None."""
    way = [name]
    while (node := nodes.get(way[-1])) is not None and node.parent:
        way.append(node.parent)
        if node.parent == name:
            return tuple(way)
        if node.parent in way[:-1]:
            return None
    return None


def _lost(quota: str, key: str, parent: str) -> ElasticProblem:
    text = f'there is no node "{parent}" in any QuotaTree'
    return ElasticProblem(quota, key, text, _ON_THE_ROOT)
