"""Devices that kubelet itself chooses, whole: its answer is all that they need."""

from __future__ import annotations

from collections.abc import Sequence

from hami.blocking.threads import Threads
from hami.domain.devices import Device
from hami.domain.errors import HamiError
from hami.domain.slices import ContainerEdits
from hami.node.device.inventory import HookConfig, Inventory
from hami.node.kubelet.server import CallRefused
from hami.node.kubelet.tokens import Token
from hami.vendors.boundary import Vendor

EDITS_SECONDS = 5.0


def static_tokens(devices: Sequence[Device]) -> tuple[Token, ...]:
    """The list of these devices, each once, with its NUMA node for Topology Manager."""
    return tuple(
        Token(device.id, device.healthy, device.numa if device.numa >= 0 else None)
        for device in devices
    )


class StaticCalls:
    """Answers for one resource of ``hami_static_devices``."""

    def __init__(
        self,
        resource: str,
        vendor: Vendor,
        hooks: Threads,
        inventory: Inventory,
        config: HookConfig,
    ) -> None:
        self._resource = resource
        self._vendor = vendor
        self._hooks = hooks
        self._inventory = inventory
        self._config = config

    async def allocate(self, requests: Sequence[tuple[str, ...]]) -> Sequence[ContainerEdits]:
        known = {device.id: device for device in self._inventory.static.get(self._resource, ())}
        answers = []
        for ids in requests:
            unknown = [id for id in ids if id not in known]
            if unknown:
                raise CallRefused(
                    f"invalid allocation request for {self._resource!r}: unknown device: "
                    f"{', '.join(unknown)}"
                )
            chosen = tuple(known[id] for id in ids)  # type: ignore[index]
            try:
                answers.append(
                    await self._hooks.call(
                        ("hami_static_edits", *ids),
                        EDITS_SECONDS,
                        self._vendor.static_edits,
                        chosen,
                        self._config.now,
                    )
                )
            except HamiError as error:
                raise CallRefused(str(error)) from error
        return answers

    async def prefer(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        chosen = list(dict.fromkeys(must_include))
        return [*chosen, *(id for id in available if id not in chosen)][:size]

    async def prepare(self, ids: frozenset[str]) -> None:
        """Kubelet does not call this: it was not asked for."""
