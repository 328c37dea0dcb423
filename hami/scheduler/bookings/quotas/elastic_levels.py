"""The numbers of elastic quotas, resource by resource, for the API and the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from hami.kube.pace import Turns
from hami.policy.quota.elastic import ElasticBook, Leaf, LeafKey


class Level(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One resource of one quota. ``min``, ``max`` and ``used`` are None where nothing is written.

    ``used`` is of running pods, as ``status.used``; ``reserved`` of all. ``guaranteed``: what it
    may use beyond ``min`` before others may take it back. A struct, because hundreds are made in
    one turn of the loop, and a dataclass takes ten times as long.
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
    lent, guaranteed = book.lent(leaf), book.guaranteed(leaf)
    for resource in sorted({*leaf.min, *(leaf.max or {}), *book.borrowed(leaf)}):
        yield _level(book, leaf, resource, lent.get(resource, 0), guaranteed.get(resource, 0))


async def all_levels(book: ElasticBook, turns: Turns) -> Mapping[LeafKey, Sequence[Level]]:
    """As :func:`levels_of`, of every quota; each resource of all of them at one moment.

    What one quota lends follows from what all others use: asked quota by quota, five hundred of
    them would take as long as five hundred times all.
    """
    found: dict[LeafKey, list[Level]] = {}
    named = {r for leaf in book.leaves for r in (*leaf.min, *(leaf.max or {}))}
    for resource in sorted(named | book.pool.keys()):
        await turns.pause()
        shares = book.shares(resource)
        for leaf in book.leaves:
            level = _level(
                book,
                leaf,
                resource,
                shares.lent.get(leaf.key, 0),
                shares.guaranteed.get(leaf.key, 0),
            )
            if resource in leaf.min or level.max is not None or level.borrowed:
                found.setdefault(leaf.key, []).append(level)
    return found


def _level(book: ElasticBook, leaf: Leaf, resource: str, lent: int, guaranteed: int) -> Level:
    node = book.node(leaf)
    return Level(
        resource=resource,
        min=leaf.min.get(resource),
        max=None if leaf.max is None else leaf.max.get(resource),
        used=book.running_of(leaf, resource),
        reserved=node.used(resource),
        borrowed=max(0, -node.left(resource)),
        lent=lent,
        guaranteed=guaranteed,
    )
