"""What the service says is in use, beside what a recount of all pods says."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import aiohttp
import msgspec

from hami.domain.devices import Usage
from hami.domain.units import CorePercent, MemoryMiB
from hami.simulate.result import Simulation
from hami_lab.cluster import EmbeddedCluster, NotInTime
from hami_lab.demo.picture import Cluster, DeviceKey, overcommitted, picture, usages
from hami_lab.demo.run import StepFailed

_PATIENCE = 10.0


class _Device(msgspec.Struct):
    node: str
    id: str
    used_slots: int = msgspec.field(name="usedSlots")
    used_memory_mib: int = msgspec.field(name="usedMemoryMiB")
    used_cores: int = msgspec.field(name="usedCores")


class _Page(msgspec.Struct):
    items: list[_Device]
    more: str = msgspec.field(name="continue", default="")


async def current_picture(cluster: EmbeddedCluster) -> Simulation:
    """What the cluster holds now, from its objects alone."""
    objects = Cluster(nodes=await cluster.nodes(), pods=list(cluster.pods.values()))
    return picture(objects, cluster.vendors)


async def the_books_agree(cluster: EmbeddedCluster) -> list[str]:
    """Every device is in use exactly as its pods' annotations say, and none beyond what it has.

    Raises:
        StepFailed: names the devices and both figures.
    """
    authority = cluster.service.certificate_authority.decode()
    context = ssl.create_default_context(cadata=authority)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:

        async def agreed() -> Simulation | None:
            ours = await current_picture(cluster)
            theirs = await _service_says(session, cluster.service.public)
            return ours if usages(ours) == theirs else None

        try:
            found = await cluster.eventually("agreement", agreed, timeout=_PATIENCE)
        except NotInTime as error:
            ours = usages(await current_picture(cluster))
            theirs = await _service_says(session, cluster.service.public)
            raise StepFailed(_difference(ours, theirs)) from error
    if too_much := overcommitted(found):
        raise StepFailed(f"over-allocated: {'; '.join(too_much)}")
    return [f"{len(found.devices)} devices, {len(found.placed)} pods: none over-allocated"]


async def _service_says(session: aiohttp.ClientSession, url: str) -> Mapping[DeviceKey, Usage]:
    found: dict[DeviceKey, Usage] = {}
    after = ""
    while True:
        query = {"limit": "1000", **({"continue": after} if after else {})}
        try:
            async with session.get(f"{url}/api/v1/devices", params=query) as answer:
                answer.raise_for_status()
                page = msgspec.json.decode(await answer.read(), type=_Page)
        except (aiohttp.ClientError, msgspec.MsgspecError) as error:
            raise StepFailed(f"{url}/api/v1/devices: {error}") from error
        for device in page.items:
            found[device.node, device.id] = Usage(
                device.used_slots,
                MemoryMiB(device.used_memory_mib),
                CorePercent(device.used_cores),
            )
        if not page.more:
            return found
        after = page.more


def _difference(ours: Mapping[DeviceKey, Usage], theirs: Mapping[DeviceKey, Usage]) -> str:
    lines = [
        f"{device} on {node}: the service says {theirs.get((node, device))}, the pods say "
        f"{ours.get((node, device))}"
        for node, device in sorted(ours.keys() | theirs.keys())
        if ours.get((node, device)) != theirs.get((node, device))
    ]
    return "; ".join(lines)
