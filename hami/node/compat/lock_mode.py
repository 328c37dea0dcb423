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
from hami.node.compat.replicas import replicas
from hami.node.kubelet.checkpoint import named_slices
from hami.node.kubelet.device_list import DeviceList
from hami.node.kubelet.tokens import Token
from hami.node.slice.agent_context import AgentContext
from hami.node.start.container_start import StartReports, Starts

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
        devices: DeviceList,
        on_problem: Callable[[str], None],
    ) -> None:
        self._around = around
        self._folder = folder
        profile = around.vendor.profile
        starts = Starts(
            around,
            folder,
            lambda entry: start_locked(entry, around),
            reports,
            devices,
            locked=True,
        )
        self.counts = starts.counts
        self.calls = LockedCalls(
            client,
            node,
            around,
            LockedWrites(client, node, profile, profiles, on_problem),
            starts,
            preferring=lambda: self._says(PREFERRED),
        )

    async def tokens(self) -> Sequence[Token]:
        """Replicas of the devices, as HAMi's plugin lists them."""
        devices = tuple(self._around.inventory.devices.values())
        return replicas(devices, numa=self._says(NUMA))

    def slice_ids(self) -> set[str] | Malformed:
        """Those that kubelet's record names. Blocks."""
        return named_slices(self._folder, self._around.kind)

    async def close(self) -> None:
        await self.calls.close()

    def _says(self, key: str) -> bool:
        """What this node's entries, else the vendor's section, say of one of HAMi's switches."""
        config = self._around.config.now
        places: list[Mapping[str, object]] = [
            *reversed(config.get("nodeconfig", ())),
            config.get(self._around.vendor.profile.key.lower()) or {},
        ]
        for place in places:
            for name, value in place.items():
                if name.lower() == key:
                    return value is True
        return False
