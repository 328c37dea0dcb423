"""The numbers of one elastic quota, resource by resource, for the API and the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hami.policy.quota.elastic import ElasticBook, Leaf


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One resource of one quota. ``min``, ``max`` and ``used`` are None where nothing is written.

    ``used`` is of running pods, as ``status.used``; ``reserved`` of all. ``guaranteed``: what it
    may use beyond ``min`` before others may take it back.
    """

    resource: str
    min: int | None
    max: int | None
    used: int | None
    reserved: int
    borrowed: int
    lent: int
    guaranteed: int


def levels_of(book: ElasticBook, leaf: Leaf) -> Iterator[Level]:
    """Of everything that it names or borrows, in the order of the names."""
    used, reserved = book.running_used(leaf), book.used(leaf)
    borrowed, lent, guaranteed = book.borrowed(leaf), book.lent(leaf), book.guaranteed(leaf)
    most = leaf.max or {}
    for resource in sorted({*leaf.min, *most, *borrowed}):
        yield Level(
            resource=resource,
            min=leaf.min.get(resource),
            max=most.get(resource),
            used=used.get(resource),
            reserved=reserved.get(resource, 0),
            borrowed=borrowed.get(resource, 0),
            lent=lent.get(resource, 0),
            guaranteed=guaranteed.get(resource, 0),
        )
