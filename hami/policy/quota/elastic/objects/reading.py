"""Quota objects of the API as leaves and nodes; what cannot be read means the strictest."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import msgspec

from hami.domain.kubernetes.objects import (
    CompositeElasticQuota,
    ElasticQuota,
    Pod,
    QuotaTree,
    QuotaTreeNode,
    Written,
)
from hami.domain.kubernetes.quantity import BadQuantity, whole_number
from hami.policy.quota.elastic.model import Amounts, Leaf, LeafKey, TreeNode
from hami.policy.quota.elastic.objects.arrangement import ElasticProblem
from hami.policy.quota.elastic.units import Units

PARENT_LABEL = "quota.hami.io/parent"
WEIGHT_LABEL = "quota.hami.io/weight"
BORROW_ANNOTATION = "quota.hami.io/borrow-limit"
LEND_ANNOTATION = "quota.hami.io/lend-limit"
PREEMPTIBLE = "quota.hami.io/preemptible"
"""Annotation or label of a pod; ``"false"``: it is never a victim, and may only use ``min``."""

_LIMITS = msgspec.json.Decoder(Written)


def preemptible(pod: Pod) -> bool:
    """The annotation and the label both may say no."""
    return "false" not in (pod.annotations.get(PREEMPTIBLE), pod.labels.get(PREEMPTIBLE))


def read_leaf(
    quota: ElasticQuota | CompositeElasticQuota, units: Units
) -> tuple[Leaf, tuple[ElasticProblem, ...]]:
    """A quota object and what is wrong with it."""
    reader = _Reader(key_of(quota), units)
    spec = quota.spec
    least, most = reader.amounts("spec.min", spec.min) or {}, reader.amounts("spec.max", spec.max)
    reader.compare("spec.max", least, most)
    named = least.keys() | (most or {}).keys()
    composite = isinstance(quota, CompositeElasticQuota)
    leaf = Leaf(
        kind="CompositeElasticQuota" if composite else "ElasticQuota",
        namespace=quota.namespace,
        name=quota.name,
        namespaces=namespaces_of(quota),
        min=least,
        max=most,
        weight=reader.weight(quota.labels.get(WEIGHT_LABEL)),
        parent=quota.labels.get(PARENT_LABEL, ""),
        borrow=reader.limits(BORROW_ANNOTATION, quota.annotations, named),
        lend=reader.limits(LEND_ANNOTATION, quota.annotations, named),
    )
    return leaf, tuple(reader.problems)


def namespaces_of(quota: ElasticQuota | CompositeElasticQuota) -> tuple[str, ...]:
    if isinstance(quota, CompositeElasticQuota):
        return tuple(quota.spec.namespaces or ())
    return (quota.namespace,)


def key_of(quota: ElasticQuota | CompositeElasticQuota) -> LeafKey:
    composite = isinstance(quota, CompositeElasticQuota)
    kind = "CompositeElasticQuota" if composite else "ElasticQuota"
    return f"{kind} {quota.namespace}/{quota.name}"


def read_tree(
    tree: QuotaTree, units: Units
) -> tuple[tuple[TreeNode, ...], tuple[ElasticProblem, ...]]:
    """The groups of one object and what is wrong with them, each by itself."""
    reader = _Reader(f"QuotaTree {tree.name}", units)
    nodes: list[TreeNode] = []
    for number, node in enumerate(tree.spec.nodes or ()):
        if node.name:
            nodes.append(_node(tree, node, reader))
        else:
            reader.problem(f"spec.nodes[{number}]", "has no name", "does not count")
    return tuple(nodes), tuple(reader.problems)


def _node(tree: QuotaTree, node: QuotaTreeNode, reader: _Reader) -> TreeNode:
    own, most = (
        reader.amounts(f"{node.name}.min", node.min) or {},
        reader.amounts(f"{node.name}.max", node.max),
    )
    reader.compare(f"{node.name}.max", own, most)
    weight = node.weight
    return TreeNode(
        name=node.name,
        parent=node.parent,
        own=own,
        max=most,
        weight=reader.amounts(f"{node.name}.weight", weight, plain=True)
        if isinstance(weight, dict)
        else reader.weight(None if weight is None else str(weight), f"{node.name}.weight"),
        borrow=reader.amounts(f"{node.name}.borrowLimit", node.borrow_limit),
        lend=reader.amounts(f"{node.name}.lendLimit", node.lend_limit),
        tree=tree.name,
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the quantities of one object and keeps what is wrong with it."""

    quota: str
    units: Units
    problems: list[ElasticProblem] = field(default_factory=list)

    def problem(self, key: str, text: str, until_mended: str = "") -> None:
        self.problems.append(ElasticProblem(self.quota, key, text, until_mended))

    def amounts(
        self, key: str, written: Written | None, *, plain: bool = False
    ) -> dict[str, int] | None:
        """None for what is not written; ``plain``: numbers without units, such as weights."""
        if written is None:
            return None
        found: dict[str, int] = {}
        for resource, value in sorted(written.items()):
            text = str(value)
            read = whole_number(text) if plain else self.units.limit(resource, text)
            if isinstance(read, BadQuantity):
                self.problem(f"{key}[{resource}]", str(read), "counts as 0")
                read = 0
            found[resource] = read
        return found

    def limits(
        self, key: str, annotations: Mapping[str, str], named: AbstractSet[str]
    ) -> dict[str, int] | None:
        """A limit in an annotation; one that is no JSON bounds everything that the quota names."""
        text = annotations.get(key)
        if text is None:
            return None
        try:
            written = _LIMITS.decode(text)
        except msgspec.DecodeError as error:
            problem = f'{error}; write JSON such as {{"nvidia.com/gpumem": "8Gi"}}'
            self.problem(key, problem, "counts as 0 of everything in min and max")
            return dict.fromkeys(sorted(named), 0)
        return self.amounts(key, written)

    def weight(self, text: str | None, key: str = WEIGHT_LABEL) -> int | None:
        if text is None:
            return None
        read = whole_number(text)
        if isinstance(read, BadQuantity):
            self.problem(key, str(read), "counts as not written")
            return None
        return read

    def compare(self, key: str, least: Amounts, most: Amounts | None) -> None:
        """A ceiling below the guarantee: the ceiling holds, so the guarantee cannot be used."""
        for resource, amount in least.items():
            ceiling = (most or {}).get(resource)
            if ceiling is not None and ceiling < amount:
                texts = self.units.text(resource, ceiling), self.units.text(resource, amount)
                self.problem(f"{key}[{resource}]", f"{texts[0]} is less than min, {texts[1]}")
