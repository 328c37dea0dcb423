"""After a start: which slices the disk knows, and what belongs to none of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hami.node.cdi import CdiFolders
from hami.node.granting import Granted, Granting
from hami.node.store import Damaged, SliceStore
from hami.node.table import LiveSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """``slices`` live on; ``damaged`` cannot be read, and are made anew when they start again."""

    slices: tuple[LiveSlice, ...]
    damaged: tuple[Damaged, ...]


def recover(
    store: SliceStore,
    folders: CdiFolders,
    granting: Granting,
    named_by_kubelet: Callable[[], set[str]],
    on_problem: Callable[[str], None],
) -> Recovered:
    """Read every slice; remove damaged ones and CDI specs that kubelet's record does not name.

    Blocks. A slice that kubelet still names is kept, whatever state it is in: its container may
    run. So is one whose pod nobody can tell.
    """
    named = named_by_kubelet()
    records, damaged = store.recover()
    slices = []
    broken = list(damaged)
    for record in records:
        granted = granting.recovered(record.pod, record.container, record.generation)
        if isinstance(granted, Granted):
            slices.append(LiveSlice(record, granted))
        else:
            broken.append(Damaged(record.slice_id, granted.text))
    known = {live.id for live in slices}
    for lost in broken:
        kept = lost.slice_id in named
        known.add(lost.slice_id)
        fate = "kept, since kubelet names it" if kept else "removed"
        on_problem(f"slice {lost.slice_id} is damaged ({lost.problem}); it is {fate}")
        if not kept:
            folders.remove(lost.slice_id)
            store.remove(lost.slice_id)
    for orphan in folders.recover() - known - named:
        folders.remove(orphan)
    return Recovered(slices=tuple(slices), damaged=tuple(broken))
