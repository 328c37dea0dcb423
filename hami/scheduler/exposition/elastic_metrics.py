"""Elastic quotas as metrics: what the objects' status and annotations say, and a recount.

cpu is in cores and memory in bytes, as in Kubernetes' own metrics; everything else is in the unit
in which its quota is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hami.http.metrics import escaped, header
from hami.kube.pace import Turns
from hami.policy.quota.elastic import ElasticBook, Leaf, Member
from hami.scheduler.bookings.quotas.elastic_levels import Level, all_levels

_CPU, _MILLI = "cpu", 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticRows:
    """One quota at one moment.

    ``drift``, by resource: what is booked less what its pods hold.
    """

    leaf: Leaf
    levels: Sequence[Level]
    drift: Mapping[str, int]


async def elastic_rows(book: ElasticBook, turns: Turns) -> Sequence[ElasticRows]:
    """The rows of all quotas.

    The levels of one resource are of one moment for all quotas; each quota's recount is of a moment
    of its own.
    """
    levels = await all_levels(book, turns)
    rows = []
    for leaf in book.leaves:
        await turns.pause()
        here = next((one for one in map(book.leaf_of, leaf.namespaces) if one), None)
        if here is None or here.key != leaf.key:
            continue  # The quota went while others were read.
        # Members never change, so a list of them can be added up at any later moment.
        booked, shown = book.used(here), levels.get(here.key, ())
        members = [member for name in here.namespaces for member in book.in_namespace(name)]
        held = await _sums(members, turns)
        rows.append(ElasticRows(leaf=here, levels=shown, drift=_differences(booked, held, shown)))
    return rows


async def _sums(members: Sequence[Member], turns: Turns) -> Mapping[str, int]:
    sums: dict[str, int] = {}
    for number, member in enumerate(members, start=1):
        for resource, amount in member.vector.items():
            sums[resource] = sums.get(resource, 0) + amount
        if number % 100 == 0:
            await turns.pause()
    return sums


def _differences(
    booked: Mapping[str, int], held: Mapping[str, int], levels: Sequence[Level]
) -> Mapping[str, int]:
    """The difference for each resource of the quota, and for any other resource that has one."""
    about = {level.resource for level in levels}
    found = {r: booked.get(r, 0) - held.get(r, 0) for r in sorted({*about, *booked, *held})}
    return {r: drift for r, drift in found.items() if drift or r in about}


@dataclass(frozen=True, slots=True)
class ElasticFamily:
    """One metric with a line per quota and resource; a ``value`` of None makes no line."""

    name: str
    help: str
    value: Callable[[Level], int | None]


FAMILIES = (
    ElasticFamily(
        "hami_quota_used",
        "Held by an elastic quota's running pods, of what its min names: its status.used",
        lambda level: level.used,
    ),
    ElasticFamily(
        "hami_quota_reserved",
        "Held by all pods that an elastic quota counts",
        lambda level: level.reserved,
    ),
    ElasticFamily("hami_quota_min", "Guaranteed by an elastic quota", lambda level: level.min),
    ElasticFamily("hami_quota_max", "Ceiling of an elastic quota", lambda level: level.max),
    ElasticFamily(
        "hami_quota_borrowed",
        "Held by an elastic quota beyond its min",
        lambda level: level.borrowed,
    ),
    ElasticFamily(
        "hami_quota_lent",
        "Of an elastic quota's unused min, what others hold",
        lambda level: level.lent,
    ),
    ElasticFamily(
        "hami_quota_guaranteed_overquota",
        "What an elastic quota may hold beyond its min before others may take it back",
        lambda level: level.guaranteed,
    ),
)
DRIFT = "hami_quota_ledger_drift"
DRIFT_HELP = "Booked for an elastic quota less the sum of its pods; anything but 0 is a bug"


UNBACKED = "hami_quota_unbacked"
UNBACKED_HELP = "Guaranteed by all elastic quotas together beyond what the cluster has"


def unbacked_lines(unbacked: Mapping[str, int]) -> Iterator[str]:
    """Lines of the resources of which the cluster has less than all quotas guarantee."""
    yield header(UNBACKED, UNBACKED_HELP)
    for resource, amount in sorted(unbacked.items()):
        number = amount / _MILLI if resource == _CPU else amount
        yield f'{UNBACKED}{{resource="{escaped(resource)}"}} {number}\n'


def elastic_lines(rows: Sequence[ElasticRows]) -> Iterator[str]:
    """The metrics of these rows in Prometheus' text format."""
    for family in FAMILIES:
        yield header(family.name, family.help)
        for row in rows:
            for level in row.levels:
                amount = family.value(level)
                if amount is not None:
                    yield _line(family.name, row.leaf, level.resource, amount)
    yield header(DRIFT, DRIFT_HELP)
    for row in rows:
        for resource, drift in row.drift.items():
            yield _line(DRIFT, row.leaf, resource, drift)


def _line(name: str, leaf: Leaf, resource: str, amount: int) -> str:
    """One line; ``kind`` is a label, because objects of both kinds may have the same name."""
    labels = (
        f'quota="{escaped(leaf.name)}",namespace="{escaped(leaf.namespace)}",'
        f'resource="{escaped(resource)}",kind="{leaf.kind}"'
    )
    return f"{name}{{{labels}}} {amount / _MILLI if resource == _CPU else amount}\n"
