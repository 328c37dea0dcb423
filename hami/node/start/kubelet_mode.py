"""Identity through kubelet's checkpoint: the parts that serve in the mode ``kubelet``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import structlog

from hami.domain.devices import Device
from hami.domain.errors import Malformed
from hami.domain.units import DeviceId
from hami.node.kubelet.checkpoint import CheckpointEntry, named_slices, read_checkpoint
from hami.node.kubelet.device_list import DeviceList
from hami.node.kubelet.tokens import Token, kubelet_tokens
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.preparing import MakeRoom, prepare
from hami.node.start.container_start import KubeletCalls, StartReports, Starts


class ByKubelet:
    """Serves kubelet in the mode ``kubelet``: its checkpoint says at PreStartContainer who asks."""

    def __init__(
        self,
        around: AgentContext,
        folder: Path,
        reports: StartReports,
        make_room: MakeRoom,
        devices: DeviceList,
    ) -> None:
        self._around = around
        self._folder = folder
        profile = around.vendor.profile
        self._resource = profile.resources.count
        self._held: list[CheckpointEntry] = []
        self._log = structlog.get_logger("hami.kubelet")
        made = partial(prepare, around=around, make_room=make_room)
        starts = Starts(around, folder, made, reports, devices)
        self.calls = KubeletCalls(around.kind, profile.hidden_env, starts)
        self.counts = starts.counts

    async def tokens(self) -> Sequence[Token]:
        """The ids that kubelet may give away.

        While kubelet's checkpoint cannot be read, the one that was read last counts.
        """
        found = await self._around.disk.run(self._entries)
        if isinstance(found, Malformed):
            self._log.warning("kubelet's record cannot be read", problem=found.problem)
        else:
            self._held = found
        devices = self._around.inventory.devices
        held: set[str] = set()
        on_failed: set[str] = set()
        for entry in self._held:
            held |= entry.ids
            on_failed.update(sorted(entry.ids)[: self._failed(entry, devices)])
        return kubelet_tokens(tuple(devices.values()), held, on_failed)

    def slice_ids(self) -> set[str] | Malformed:
        """The ids of the slices that kubelet's checkpoint names. Blocks."""
        return named_slices(self._folder, self._around.kind)

    def _failed(self, entry: CheckpointEntry, devices: Mapping[DeviceId, Device]) -> int:
        """How many of its slots are on devices that are not healthy. Its ids do not tell which."""
        live = self._around.slices.get(entry.edits.cdi_device(self._around.kind))
        grants = live.grants if live is not None else ()
        found = (devices.get(grant.device_id) for grant in grants)
        return sum(1 for device in found if device is None or not device.healthy)

    def _entries(self) -> list[CheckpointEntry] | Malformed:
        found = read_checkpoint(self._folder)
        if isinstance(found, Malformed):
            return found
        return [entry for entry in found if entry.resource == self._resource]

    async def close(self) -> None:
        """Nothing to end: the table of slices gives up what is under way."""
