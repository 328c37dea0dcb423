"""Identity through HAMi's node lock: the parts that serve in the mode ``lock``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hami.domain.errors import Malformed
from hami.domain.profile import VendorProfile
from hami.kube.client import KubeClient
from hami.node.compat.lock_allocate import LockedCalls
from hami.node.compat.lock_slices import start_locked
from hami.node.compat.lock_writes import LockedWrites
from hami.node.kubelet.checkpoint import CheckpointEntry, named_slices
from hami.node.kubelet.tokens import Token, lock_tokens
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.other_agents import start_foreign
from hami.node.slice.preparing import Outcome
from hami.node.start.pre_start import StartReports, Starts

PREFERRED = "enablegetpreferredallocation"
NUMA = "enablenumatopology"


class ByLock:
    """Asks who is being bound at Allocate, and kubelet's checkpoint whether that was right."""

    def __init__(
        self,
        around: AgentContext,
        folder: Path,
        reports: StartReports,
        client: KubeClient,
        node: str,
        profiles: Sequence[VendorProfile],
        resend: Callable[[], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._around = around
        self._folder = folder
        profile = around.vendor.profile
        self._resource = profile.resources.count
        self.starts = Starts(
            self._resource,
            around.kind,
            folder,
            locked=True,
            prepare=self._prepare,
            foreign=self._foreign,
            reports=reports,
            specified=around.folders.written,
            resend=resend,
            disk=around.disk,
        )
        self.calls = LockedCalls(
            client,
            node,
            around,
            LockedWrites(client, node, profile, profiles, on_problem),
            self.starts,
            preferring=lambda: self._says(PREFERRED),
        )

    async def tokens(self) -> Sequence[Token]:
        """Replicas of the devices, as HAMi's plugin lists them."""
        devices = tuple(self._around.devices().values())
        return lock_tokens(devices, numa=self._says(NUMA))

    def slice_ids(self) -> set[str] | Malformed:
        """Those that kubelet's record names. Blocks."""
        return named_slices(self._folder, self._around.kind)

    async def close(self) -> None:
        await self.calls.close()
        await self.starts.close()

    async def _prepare(self, entry: CheckpointEntry) -> Outcome:
        return await start_locked(entry, self._around)

    async def _foreign(self, entry: CheckpointEntry) -> Outcome:
        return await start_foreign(entry, self._around)

    def _says(self, key: str) -> bool:
        """What this node's entries, else the vendor's section, say of one of HAMi's switches."""
        config = self._around.config()
        places: list[Mapping[str, object]] = [
            *reversed(config.get("nodeconfig", ())),
            config.get(self._around.vendor.profile.key.lower()) or {},
        ]
        for place in places:
            for name, value in place.items():
                if name.lower() == key:
                    return value is True
        return False
