"""What elastic quotas are made of: quotas, the nodes above them, pods that hold, pods that claim.

Everything is a whole number in one unit per resource: milli for cpu, bytes for memory and
ephemeral storage, MiB for the vendors' device memory, GB for ``nos.nebuly.com/gpu-memory``, and
plain counts for the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from hami.domain.units import PodUid, with_unit

Amounts = Mapping[str, int]
"""Whole numbers by resource name; a name that is missing means none of it."""

LeafKey = str
"""A quota by its kind, namespace and name: ``ElasticQuota team-a/quota``."""

GPU_MEMORY = "nos.nebuly.com/gpu-memory"
"""GB of device memory, worked out from everything a pod asks of GPUs; nobody requests it."""
MIB_PER_GB = 1024
"""As nos counts it."""

LeafKind = Literal["ElasticQuota", "CompositeElasticQuota"]

Rule = Literal["max", "min of non-preemptible pods", "borrow limit", "pool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One quota object: what its namespaces are guaranteed together, and what they may reach.

    ``max``: None and a missing key both mean no ceiling. ``weight``: its share of what is over;
    None means by ``min``. ``borrow`` and ``lend`` bound what it takes from others and what others
    take of its unused guarantee; None and a missing key mean no bound. ``parent`` names a
    ``TreeNode``; empty is the root.
    """

    kind: LeafKind = "ElasticQuota"
    namespace: str
    name: str
    namespaces: tuple[str, ...]
    min: Amounts
    max: Amounts | None = None
    weight: Amounts | int | None = None
    parent: str = ""
    borrow: Amounts | None = None
    lend: Amounts | None = None

    @property
    def key(self) -> LeafKey:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """An inner node: a group of quotas.

    ``own`` is quota of the group itself, on top of what its members are guaranteed; any of them
    may borrow it. ``tree`` is the object that says so.
    """

    name: str
    parent: str = ""
    own: Amounts
    max: Amounts | None = None
    weight: Amounts | int | None = None
    borrow: Amounts | None = None
    lend: Amounts | None = None
    tree: str = ""


class Member(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that holds quota: reserved or bound, and not ended.

    ``created`` is its creation timestamp as the API server writes it, so that text order is time
    order. ``since``: when it began to run, in seconds since 1970; None before that. A struct like
    the pods themselves, because one is made in every decision: a dataclass takes ten times as long.
    """

    uid: PodUid
    namespace: str
    name: str
    created: str = ""
    priority: int = 0
    vector: Amounts
    running: bool = False
    preemptible: bool = True
    node: str = ""
    since: float | None = None

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that wants in. ``never_preempts``: its ``preemptionPolicy`` is ``Never``."""

    uid: PodUid
    namespace: str
    name: str
    priority: int = 0
    vector: Amounts
    preemptible: bool = True
    never_preempts: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How elastic quotas behave where there is a choice.

    ``pool``: together quotas use at most the sum of their minimums, what the cluster has, or
    there is no common bound. ``labels``: after the first pod that crosses ``min`` all later ones
    are over-quota, or only those that do not fit. ``fair_share``: how unused guarantees are
    shared out. ``strict_core``: cpu and memory are always limited, and where nothing is written
    to 0, as in nos. ``rule_f1``: a fair-share plan takes no quota below its ``min``.
    ``rule_f2``: it is for pods alone of which the quota's ``min`` names all that is shared.
    ``rule_p1``: priority swaps inside a quota and does not make it borrow more.
    ``min_runtime``: seconds that a pod may run before it can be a victim. ``scope``: victims are
    looked for on one node, or also elsewhere where only quota is missing. ``priority``: plain
    priority preemption. ``gpu_memory_gb``: GB that one ``nvidia.com/gpu`` counts for a pod whose
    devices we do not grant.
    """

    pool: Literal["sumMin", "capacity", "off"] = "sumMin"
    labels: Literal["cumulative", "firstFit"] = "cumulative"
    fair_share: Literal["floor", "hamilton", "waterfill"] = "floor"
    strict_core: bool = False
    rule_f1: bool = True
    rule_f2: bool = True
    rule_p1: bool = True
    min_runtime: float = 0
    scope: Literal["cluster", "node"] = "cluster"
    priority: bool = True
    gpu_memory_gb: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticRefusal:
    """One rule that a pod would break, with its numbers.

    ``quota`` is a quota's key, ``QuotaTree node <name>``, or ``all elastic quotas``. For the
    pool, ``limit`` is what all may use together now that every lend limit is respected.
    """

    rule: Rule
    quota: str
    resource: str
    used: int
    asked: int
    limit: int
    unit: str = ""

    def __str__(self) -> str:
        used, asked, limit = (with_unit(n, self.unit) for n in (self.used, self.asked, self.limit))
        what = f"{self.quota}: {self.rule}: {self.resource}"
        return f"{what}: used {used} + asked {asked} > limit {limit}"
