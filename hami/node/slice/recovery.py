"""After a start: which slices the disk knows, and what belongs to none of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from hami.domain.errors import Malformed
from hami.node.disk.cdi import CdiFolders
from hami.node.disk.store import Damaged, SliceStore
from hami.node.pod.pods import Granted, Granting
from hami.node.slice.live_slices import LiveSlice
from hami.slices.files import StoreFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """``slices`` live on; ``damaged`` cannot be read, and are made anew when they start again.

    ``kept`` are those of the damaged that are still on disk.
    """

    slices: tuple[LiveSlice, ...]
    damaged: tuple[Damaged, ...]
    kept: tuple[str, ...]


def recover(
    store: SliceStore,
    folders: CdiFolders,
    granting: Granting,
    named_by_kubelet: Callable[[], set[str] | Malformed],
    in_use: Callable[[Collection[str]], Collection[str]],
    on_problem: Callable[[str], None],
) -> Recovered:
    """Read every slice; remove damaged ones and CDI specs that kubelet's record does not name.

    Blocks. A slice that kubelet still names is kept, whatever state it is in: its container may
    run. While kubelet's record cannot be read, all are. And since that record may be lost,
    ``in_use`` says of which damaged ones a process has a file.
    """
    named = named_by_kubelet()
    if isinstance(named, Malformed):
        on_problem(
            f"kubelet's record cannot be read ({named.problem}); nothing that may belong to a "
            "container is removed"
        )
    records, damaged = store.recover()
    slices = []
    broken = list(damaged)
    for record in records:
        granted = granting.recovered(record.pod, record.container, record.generation)
        if isinstance(granted, Granted):
            slices.append(LiveSlice(record, granted))
        else:
            broken.append(Damaged(record.slice_id, granted.text))
    kept = []
    unnamed = [
        lost.slice_id
        for lost in broken
        if not isinstance(named, Malformed) and lost.slice_id not in named
    ]
    gone = {*unnamed} - {*in_use(unnamed)}
    for lost in broken:
        may_run = lost.slice_id not in gone
        fate = "kept, since its container may run" if may_run else "removed"
        on_problem(f"slice {lost.slice_id} is damaged ({lost.problem}); it is {fate}")
        if may_run or not _removed(lost.slice_id, store, folders, on_problem):
            kept.append(lost.slice_id)
    specified = _specified(folders, on_problem)
    if not isinstance(named, Malformed):
        for orphan in specified - {live.id for live in slices} - set(kept) - named:
            _removed(orphan, store, folders, on_problem)
    return Recovered(slices=tuple(slices), damaged=tuple(broken), kept=tuple(kept))


def _specified(folders: CdiFolders, on_problem: Callable[[str], None]) -> set[str]:
    try:
        return folders.recover()
    except StoreFailed as error:
        on_problem(str(error))
        return set()


def _removed(
    slice_id: str, store: SliceStore, folders: CdiFolders, on_problem: Callable[[str], None]
) -> bool:
    """Remove a slice and its spec; False if that failed, and the next start tries again."""
    try:
        folders.remove(slice_id)
        store.remove(slice_id)
    except StoreFailed as error:
        on_problem(str(error))
        return False
    return True
