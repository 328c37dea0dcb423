"""A ResourceQuota's limits on managed resources, and the refusal that names all its numbers.

Keys ``limits.<resource>`` for every count, memory and core resource that a vendor manages. Keys
``requests.<resource>`` belong to Kubernetes' own quota, which counts them at creation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from hami.domain.kubernetes import quantity
from hami.domain.kubernetes.objects import ResourceQuota
from hami.domain.kubernetes.quantity import BadQuantity
from hami.domain.profile import VendorProfile
from hami.domain.units import with_unit
from hami.policy.ports import VendorRegistry
from hami.policy.quota.scopes import Scopes, read_scopes

PREFIX = "limits."


@dataclass(frozen=True, slots=True)
class QuotaProblem:
    """A quota object that says something unusable; until it is mended it means the strictest."""

    quota: str
    key: str
    text: str

    def __str__(self) -> str:
        return f"ResourceQuota {self.quota}: {self.key}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRefusal:
    """One limit of one object that a pod would exceed; memory in MiB."""

    rule: ClassVar = "hard"

    namespace: str
    name: str
    resource: str
    used: int
    asked: int
    limit: int
    unit: str = ""

    def __str__(self) -> str:
        used, asked, limit = (with_unit(n, self.unit) for n in (self.used, self.asked, self.limit))
        return (
            f"ResourceQuota {self.namespace}/{self.name}: {PREFIX}{self.resource}: "
            f"used {used} + asked {asked} > limit {limit}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """One object: every limit must hold, whatever other objects of the namespace say.

    ``limits`` are in the order of their names.
    """

    namespace: str
    name: str
    limits: Mapping[str, int]
    memory_names: frozenset[str]
    scopes: Scopes

    def refusal(self, resource: str, used: int, asked: int) -> QuotaRefusal | None:
        """Why ``asked`` on top of ``used`` is too much; asking nothing is never refused."""
        limit = self.limits.get(resource)
        if limit is None or asked <= 0 or used + asked <= limit:
            return None
        return QuotaRefusal(
            namespace=self.namespace,
            name=self.name,
            resource=resource,
            used=used,
            asked=asked,
            limit=limit,
            unit="MiB" if resource in self.memory_names else "",
        )


def read_quota(
    quota: ResourceQuota, vendors: VendorRegistry
) -> tuple[Constraint, tuple[QuotaProblem, ...]]:
    """The constraint that an object makes (without limits when none is for us)."""
    full_name = f"{quota.namespace}/{quota.name}"
    problems: list[QuotaProblem] = []
    limits: dict[str, int] = {}
    memory_names: set[str] = set()
    profiles = [vendors[key].profile for key in vendors]
    for key, text in sorted((quota.spec.hard or {}).items()):
        resource = key.removeprefix(PREFIX)
        if resource == key or not vendors.manages(resource):
            continue
        owner = next(p for p in profiles if resource in p.resources.quota_names)
        if resource == owner.resources.memory:
            memory_names.add(resource)
        limit = _limit(owner, resource, text)
        if isinstance(limit, BadQuantity):
            problems.append(QuotaProblem(full_name, key, f"{limit}; counts as 0 until mended"))
            limit = 0
        limits[resource] = limit  # Each with the same prefix, so these are sorted too.
    scopes, unknown = read_scopes(quota)
    problems += [
        QuotaProblem(full_name, "scopes", f"{scope!r} is no known scope; the quota counts all pods")
        for scope in unknown
    ]
    constraint = Constraint(
        namespace=quota.namespace,
        name=quota.name,
        limits=limits,
        memory_names=frozenset(memory_names),
        scopes=scopes,
    )
    return constraint, tuple(problems)


def _limit(owner: VendorProfile, resource: str, text: str) -> int | BadQuantity:
    if resource == owner.resources.memory:
        return quantity.limited_memory(text, owner.memory_factor)
    return quantity.whole_number(text)
