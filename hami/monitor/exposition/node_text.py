"""Writes the table of a node in Prometheus' text format, version 0.0.4.

The text is written by hand: 10 000 slices make 200 000 lines. What stays from one scrape to the
next, the labels of each row, is kept ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from hami.http.metrics import escaped, header
from hami.monitor.exposition.compat.host_families import (
    CONTROLLER,
    HOST_FAMILIES,
    LEGACY_DEVICES,
    LEGACY_MIG,
    MIG,
    USED_FAMILIES,
    last_kernel,
    legacy_containers,
)
from hami.monitor.exposition.families import (
    CONTAINER_FAMILIES,
    CONTAINER_LABELS,
    DEVICE_FAMILIES,
    DEVICE_LABELS,
    SLICE_GROUPS,
    VENDOR_GROUPS,
    FamilyGroup,
    Names,
    NodeFamily,
)
from hami.monitor.exposition.shown import (
    ShownDevice,
    Values,
    shown_devices,
    shown_held,
    shown_instances,
    shown_slices,
    shown_vendors,
)
from hami.monitor.table import NodeTable, SliceDevice

T = TypeVar("T")

PIECE = 500
"""Lines made at once. A piece that stays in the processor's cache takes half the time."""

_ZONE = ',zone="vGPU"} '
"""What HAMi adds to every metric."""


class NodeText:
    """Writes tables; keeps the labels of what the last one showed.

    Two threads may write at the same time: each replaces the kept labels by its own.
    """

    def __init__(self, *, legacy: bool = False) -> None:
        self._legacy = legacy
        self._kept: Mapping[Names, Mapping[Values, str]] = {}

    def pieces(self, table: NodeTable) -> Iterator[bytes]:
        """The text, piece by piece."""
        scrape = _Scrape(self._kept)
        slices = shown_slices(table.slices)
        devices, held = shown_devices(table), shown_held(slices.values())
        yield from scrape.lines(device_groups(legacy=self._legacy), devices)
        yield from scrape.lines(container_groups(table.taken_at, legacy=self._legacy), held)
        yield from scrape.lines(SLICE_GROUPS, slices)
        mig = (MIG, LEGACY_MIG) if self._legacy else (MIG,)
        yield from scrape.lines(mig, shown_instances(slices.values()))
        yield from scrape.lines(VENDOR_GROUPS, shown_vendors(table))
        self._kept = scrape.kept


def device_groups(*, legacy: bool) -> tuple[FamilyGroup[ShownDevice], ...]:
    """What is shown of each device."""
    ours = FamilyGroup(DEVICE_LABELS, (*HOST_FAMILIES, *DEVICE_FAMILIES))
    return (ours, CONTROLLER, *(LEGACY_DEVICES if legacy else ()))


def container_groups(now: float, *, legacy: bool) -> tuple[FamilyGroup[SliceDevice], ...]:
    """What is shown of each device of each container; ``now`` in Unix seconds."""
    families = (*USED_FAMILIES, last_kernel(now), *CONTAINER_FAMILIES)
    return (
        FamilyGroup(CONTAINER_LABELS, families),
        *(legacy_containers(now) if legacy else ()),
    )


class _Scrape:
    """The labels of one scrape, by their names and values; taken from ``former`` where known."""

    def __init__(self, former: Mapping[Names, Mapping[Values, str]]) -> None:
        self._former = former
        self.kept: dict[Names, dict[Values, str]] = {}

    def lines(self, groups: Iterable[FamilyGroup[T]], rows: Mapping[Values, T]) -> Iterator[bytes]:
        """Every metric of ``groups``; the keys of ``rows`` are what their labels are made of."""
        for group in groups:
            former = self._former.get(group.labels, {})
            found = {group.values(key, row): row for key, row in rows.items()}
            shown = {each: former.get(each) or _block(group.labels, each) for each in found}
            self.kept[group.labels] = shown
            blocks, held = list(shown.values()), list(found.values())
            for family in group.families:
                yield header(family.name, family.help, family.type).encode()
                for first in range(0, len(held), PIECE):
                    piece = slice(first, first + PIECE)
                    yield _lines(family, blocks[piece], held[piece])


def _lines(family: NodeFamily[T], blocks: Sequence[str], rows: Sequence[T]) -> bytes:
    name = family.name
    lines = [
        f"{name}{block}{value}\n"
        for block, value in zip(blocks, map(family.value, rows), strict=True)
        if value is not None
    ]
    # Names of pods come from the API, ids from drivers: one that cannot be encoded must not stop
    # a scrape.
    return "".join(lines).encode("utf-8", "replace")


def _block(names: Names, values: Values) -> str:
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{escaped(str(value))}"' for name, value in pairs) + _ZONE
