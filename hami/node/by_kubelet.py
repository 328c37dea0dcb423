"""Identity through kubelet's checkpoint: the parts that serve in the mode ``kubelet``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hami.domain.errors import Malformed
from hami.node.checkpoint import Entry, read_checkpoint
from hami.node.foreign import start_foreign
from hami.node.kubelet_calls import KubeletCalls
from hami.node.preparing import MakeRoom, Outcome, prepare
from hami.node.starting import Reports, Starts
from hami.node.surroundings import Surroundings
from hami.node.tokens import Token, kubelet_tokens


class ByKubelet:
    """Knows nothing at Allocate, and everything at PreStartContainer."""

    pre_start = True

    def __init__(
        self,
        around: Surroundings,
        folder: Path,
        reports: Reports,
        make_room: MakeRoom,
        resend: Callable[[], None],
    ) -> None:
        self._around = around
        self._folder = folder
        self._make_room = make_room
        profile = around.vendor.profile
        self._resource = profile.resources.count
        self._starts = Starts(
            self._resource,
            around.kind,
            folder,
            prepare=self._prepare,
            foreign=self._foreign,
            reports=reports,
            resend=resend,
            disk=around.disk,
        )
        self.calls = KubeletCalls(around.kind, profile.hidden_env, self._starts)

    def busy(self, slice_id: str) -> bool:
        """It is being prepared."""
        return self._starts.busy(slice_id)

    async def tokens(self) -> Sequence[Token]:
        """What kubelet may give away."""
        entries = await self._around.disk.run(self._entries)
        devices = self._around.devices()
        healthy = {id for id, device in devices.items() if device.healthy}
        held: set[str] = set()
        on_failed: set[str] = set()
        for entry in entries:
            held |= entry.ids
            live = self._around.slices.get(entry.slice_id(self._around.kind))
            if live is not None and not live.devices & healthy:
                on_failed |= entry.ids
        return kubelet_tokens(tuple(devices.values()), held, on_failed)

    def slice_ids(self) -> set[str]:
        """Those that kubelet's record names; empty when it cannot be read. Blocks."""
        kind = self._around.kind
        return {e.slice_id(kind) or e.locked_slice_id(kind) for e in self._entries()}

    def _entries(self) -> list[Entry]:
        found = read_checkpoint(self._folder)
        if isinstance(found, Malformed):
            return []
        return [entry for entry in found if entry.resource == self._resource]

    async def close(self) -> None:
        await self._starts.close()

    async def _prepare(self, entry: Entry) -> Outcome:
        return await prepare(entry, self._around, self._make_room)

    async def _foreign(self, entry: Entry) -> Outcome:
        return await start_foreign(entry, self._around)
