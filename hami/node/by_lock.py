"""Identity through HAMi's node lock: the parts that serve in the mode ``lock``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from hami.domain.errors import Malformed
from hami.domain.profile import VendorProfile
from hami.domain.units import PodUid
from hami.kube.client import KubeClient
from hami.node.checkpoint import Entry, read_checkpoint
from hami.node.foreign import start_foreign
from hami.node.locked import LockedCalls
from hami.node.locked_slices import start_locked
from hami.node.locked_writes import LockedWrites
from hami.node.preparing import Outcome
from hami.node.starting import Reports, Starts
from hami.node.surroundings import Surroundings
from hami.node.tokens import Token, lock_tokens

PREFERRED = "enablegetpreferredallocation"
NUMA = "enablenumatopology"


class ByLock:
    """Asks who is being bound at Allocate, and kubelet's checkpoint whether that was right."""

    def __init__(
        self,
        around: Surroundings,
        folder: Path,
        reports: Reports,
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
        self._starts = Starts(
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
            self._starts,
            preferring=lambda: self._says(PREFERRED),
        )

    def busy(self, slice_id: str) -> bool:
        """It is being prepared, or something else is done with it."""
        return self._starts.busy(slice_id)

    async def alone(self, pod: PodUid, slice_id: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do something else with a slice, when nothing of its pod is being prepared."""
        await self._starts.alone(pod, slice_id, work)

    async def tokens(self) -> Sequence[Token]:
        """Replicas of the devices, as HAMi's plugin lists them."""
        devices = tuple(self._around.devices().values())
        return lock_tokens(devices, numa=self._says(NUMA))

    def slice_ids(self) -> set[str] | Malformed:
        """Those that kubelet's record names. Blocks."""
        found = read_checkpoint(self._folder)
        if isinstance(found, Malformed):
            return found
        kind = self._around.kind
        return {entry.slice_id(kind) or entry.locked_slice_id(kind) for entry in found}

    async def close(self) -> None:
        await self.calls.close()
        await self._starts.close()

    async def _prepare(self, entry: Entry) -> Outcome:
        return await start_locked(entry, self._around)

    async def _foreign(self, entry: Entry) -> Outcome:
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
