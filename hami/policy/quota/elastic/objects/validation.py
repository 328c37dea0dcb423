"""What the webhook refuses and warns of; nos' own messages where nos has the rule.

Deleting is always allowed. A quota that is already there may be changed even while another one
overlaps it, as in nos, but never into one that contradicts itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hami.domain.kubernetes.objects import CompositeElasticQuota, ElasticQuota, QuotaTree
from hami.policy.quota.elastic.model import Amounts, Leaf, TreeNode
from hami.policy.quota.elastic.objects.arrangement import circle_of
from hami.policy.quota.elastic.objects.reading import namespaces_of, read_leaf, read_tree
from hami.policy.quota.elastic.units import Units

QuotaObject = ElasticQuota | CompositeElasticQuota | QuotaTree
Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class Validation:
    """Allowed when there is no refusal; then warnings are shown to whoever applies the object."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def validate(
    quota: QuotaObject, operation: Operation, others: Sequence[QuotaObject], units: Units
) -> Validation:
    """``others``: every quota object that exists; an older state of this one is not looked at."""
    if operation == "DELETE":
        return Validation()
    rest = [other for other in others if not _same(other, quota)]
    if isinstance(quota, QuotaTree):
        return _tree(quota, rest, units)
    leaf, problems = read_leaf(quota, units)
    refusals = [f"{problem.key}: {problem.text}" for problem in problems]
    if isinstance(quota, CompositeElasticQuota):
        refusals += [*_composite(quota, rest), *_repeated(quota)]
    elif operation == "CREATE":
        refusals += _single(quota, rest)
    if refusals:
        return Validation(refusals=tuple(refusals))
    trees = [other for other in rest if isinstance(other, QuotaTree)]
    nodes = {node.name: node for tree in trees for node in read_tree(tree, units)[0]}
    warnings = list(_unknown_parent(leaf, nodes))
    if not warnings and leaf.parent:
        leaves = [leaf, *_leaves(rest, units)]
        warnings += _above_parent(nodes[leaf.parent], leaves, nodes, units)
    return Validation(warnings=tuple(warnings))


def _same(one: QuotaObject, other: QuotaObject) -> bool:
    return type(one) is type(other) and (one.metadata.namespace or "", one.name) == (
        other.metadata.namespace or "",
        other.name,
    )


def _leaves(others: Iterable[QuotaObject], units: Units) -> list[Leaf]:
    return [read_leaf(o, units)[0] for o in others if not isinstance(o, QuotaTree)]


# One quota a namespace.


def _single(quota: ElasticQuota, others: Iterable[QuotaObject]) -> Iterator[str]:
    for other in others:
        if isinstance(other, ElasticQuota) and other.namespace == quota.namespace:
            yield (
                f"only 1 ElasticQuota per namespace is allowed - ElasticQuota "
                f'"{other.name}" already exists in namespace "{other.namespace}"'
            )
        elif isinstance(other, CompositeElasticQuota) and quota.namespace in namespaces_of(other):
            yield (
                f'the CompositeElasticQuota "{other.namespace}/{other.name}" already defines '
                f'quotas for namespace "{quota.namespace}"'
            )


def _composite(quota: CompositeElasticQuota, others: Iterable[QuotaObject]) -> Iterator[str]:
    composites = [other for other in others if isinstance(other, CompositeElasticQuota)]
    for namespace in dict.fromkeys(namespaces_of(quota)):
        for other in composites:
            if namespace in namespaces_of(other):
                yield (
                    f"a namespace can belong to only 1 CompositeElasticQuota: namespace "
                    f'"{namespace}" already belongs to CompositeElasticQuota '
                    f'"{other.namespace}/{other.name}"'
                )


def _repeated(quota: CompositeElasticQuota) -> Iterator[str]:
    namespaces = namespaces_of(quota)
    if not namespaces:
        yield "spec.namespaces: there is none: a composite quota names those that it is for"
    for namespace in dict.fromkeys(namespaces):
        if namespaces.count(namespace) > 1:
            yield f'spec.namespaces: "{namespace}" is there {namespaces.count(namespace)} times'


# Groups.


def _tree(tree: QuotaTree, others: Sequence[QuotaObject], units: Units) -> Validation:
    nodes, problems = read_tree(tree, units)
    refusals = [f"{problem.key}: {problem.text}" for problem in problems]
    known: dict[str, TreeNode] = {}
    for other in others:
        if isinstance(other, QuotaTree):
            known |= {node.name: node for node in read_tree(other, units)[0]}
    for node in nodes:
        if node.name in known:
            owner = known[node.name].tree
            refusals.append(f'{node.name}: "{node.name}" is already a node of QuotaTree {owner}')
        known.setdefault(node.name, node)
    warnings: list[str] = []
    for node in nodes:
        if (circle := circle_of(node.name, known)) is not None:
            refusals.append(f"{node.name}.parent: {' > '.join(circle)} is a circle")
        elif node.parent and node.parent not in known:
            warnings.append(f"{node.name}: {_no_node(node.parent)}")
    if refusals:
        return Validation(refusals=tuple(refusals))
    leaves = _leaves(others, units)
    for node in nodes:
        warnings += _above_parent(node, leaves, known, units)
    return Validation(warnings=tuple(warnings))


def _unknown_parent(leaf: Leaf, nodes: Mapping[str, TreeNode]) -> Iterator[str]:
    if leaf.parent and leaf.parent not in nodes:
        yield _no_node(leaf.parent)


def _no_node(name: str) -> str:
    return f'there is no node "{name}" in any QuotaTree; until there is, it hangs on the root'


def _above_parent(
    group: TreeNode, leaves: Iterable[Leaf], nodes: Mapping[str, TreeNode], units: Units
) -> Iterator[str]:
    """Guarantees that a group's ``max`` does not let its members have all at once."""
    promised: dict[str, int] = dict(group.own)
    below: list[Amounts] = [leaf.min for leaf in leaves if _within(group, leaf.parent, nodes)]
    below += [node.own for node in nodes.values() if _within(group, node.parent, nodes)]
    for amounts in below:
        for resource, amount in amounts.items():
            promised[resource] = promised.get(resource, 0) + amount
    for resource, ceiling in sorted((group.max or {}).items()):
        amount = promised.get(resource, 0)
        if amount > ceiling:
            yield (
                f"{group.name}: what is guaranteed in it is {units.text(resource, amount)} of "
                f"{resource}, more than its max, {units.text(resource, ceiling)}"
            )


def _within(group: TreeNode, parent: str, nodes: Mapping[str, TreeNode]) -> bool:
    """The way up from ``parent`` comes by the group."""
    seen: set[str] = set()
    while parent and parent not in seen:
        if parent == group.name:
            return True
        seen.add(parent)
        parent = nodes[parent].parent if parent in nodes else ""
    return False
