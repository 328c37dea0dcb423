"""A real process in a slice of the demo, on a simulated driver: what its limits page does to it.

The slice's files are the agent's own. The resize is asked of the scheduler, as anybody may who has
the right; agent, page and process follow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hami.cli.commands import resize
from hami.cli.commands.api_client import Api
from hami.domain.allocations import PodAllocation
from hami.domain.devices import Device
from hami.domain.errors import HamiError
from hami.domain.units import MIB, MemoryMiB, VendorKey
from hami.slices.limits_page import PageLimits, read_page
from hami.wire.resizes import NotResizedBody
from hami_lab.cluster import EmbeddedCluster
from hami_lab.demo.containers import LIMITS, USAGE, started_container
from hami_lab.demo.nodes import VENDOR
from hami_lab.demo.run import Skipped, StepFailed
from hami_lab.demo.simulated_device import SimulatedDevice, answer_of, script, simulated_device
from hami_lab.demo.tenant import BLOCK
from hami_lab.live import LivePod
from hami_lab.simgpu import SimulatedDriver, installed_driver

PROGRAM = Path(__file__).with_name("tenant.py")
MORE = MemoryMiB(10240)
_OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"

Finder = Callable[[VendorKey], SimulatedDriver | None]


class _Answer(msgspec.Struct):
    """What the program says; each pair is free and total bytes."""

    before: tuple[int, int]
    taken: int
    refused: str
    after: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforced:
    """The step, on the container of a pod that runs and has a part of one device."""

    cluster: EmbeddedCluster
    find: Finder = installed_driver

    async def run(self, pod: LivePod, allocation: PodAllocation) -> list[str] | Skipped:
        """The program is held to its slice, and to the larger one after a resize.

        Skipped without a library for this machine, with what to do to have one.

        Raises:
            StepFailed: it got more, or less, or its slice does not follow.
        """
        try:
            driver = self.find(VENDOR)
        except HamiError as error:
            return Skipped(why=str(error))
        if driver is None:
            return Skipped(why=f"no simulated driver for {VENDOR} is installed")
        folder = self._slice(pod)
        device = await self._device(allocation)
        place = self.cluster.agents.nodes[allocation.node].folder / "driver"
        async with simulated_device(driver, device, place) as simulated:
            given = started_container(self.cluster, pod).env
            async with script(PROGRAM, simulated.environment(given, folder)) as process:

                async def take() -> _Answer:
                    line = await answer_of(process, f"the program of {pod.name}", b"more\n")
                    return msgspec.json.decode(line, type=_Answer)

                before = MemoryMiB(allocation.grants[0].memory_mib)
                context = _reserve(folder)
                first = await take()
                lines = _held(first, context, before, device)
                lines.append(await _by_the_ledger(simulated, before))
                lines.append(await self._resized(pod, folder))
                lines += _held(await take(), context + first.taken, MORE, device)
                lines.append(await _by_the_ledger(simulated, MORE))
        return [f"{pod.name}: {line}" for line in lines]

    def _slice(self, pod: LivePod) -> Path:
        """The directory on the node with the two files that its container has mounted."""
        mounts = {m.container_path: m for m in started_container(self.cluster, pod).mounts}
        limits, usage = (Path(mounts[place].host_path) for place in (LIMITS, USAGE))
        if limits.parent != usage.parent:
            raise StepFailed(f"{limits} and {usage} are not of one slice")
        return limits.parent

    async def _device(self, allocation: PodAllocation) -> Device:
        """The one that it was granted a part of, as its node published it."""
        (grant,) = allocation.grants
        vendor = self.cluster.vendors[VENDOR]
        node = next(node for node in await self.cluster.nodes() if node.name == allocation.node)
        published = vendor.node_devices(node)
        if isinstance(published, Sequence):
            for device in published:
                if device.id == grant.device_id:
                    return device
        raise StepFailed(f"node {node.name} publishes no device {grant.device_id}: {published}")

    async def _resized(self, pod: LivePod, folder: Path) -> str:
        """Until the page that the process has mapped says ``MORE``."""
        begin = time.monotonic()
        await asyncio.to_thread(self._ask_for_more, pod)

        async def says_so() -> bool | None:
            sizes = [device.memory_bytes for device in _page(folder).devices]
            return True if sizes == [MORE * MIB] else None

        await self.cluster.eventually(f"{MORE} MiB on the limits page of {pod.full_name}", says_so)
        took = (time.monotonic() - begin) * 1000
        return f"its allocation became {MORE} MiB; its limits page says so {took:.0f} ms later"

    def _ask_for_more(self, pod: LivePod) -> None:
        """As ``hami resize`` does, with the kubeconfig of this cluster."""
        caller = resize.find_caller(self.cluster.kubeconfig, None, {})
        wanted = resize.read_wanted("", f"{MORE}Mi", None, None, "")
        api = Api(self.cluster.service.metrics)
        answer = resize.ask(api, caller, (pod.namespace, pod.name), wanted)
        if isinstance(answer, NotResizedBody):
            raise StepFailed(f"pod {pod.full_name} was not resized: {answer.message}")


def _page(folder: Path) -> PageLimits:
    limits = read_page((folder / "limits").read_bytes())
    if not isinstance(limits, PageLimits):
        raise StepFailed(f"{folder / 'limits'}: {limits.problem}")
    return limits


def _reserve(folder: Path) -> int:
    """Bytes that its context is charged."""
    return sum(device.context_reserve_bytes for device in _page(folder).devices)


def _held(answer: _Answer, held: int, limit: int, device: Device) -> list[str]:
    """It saw ``limit`` MiB, and got to the last block what it did not hold of it (bytes)."""
    (free, total), left = answer.before, limit * MIB - held
    exact = (free, total, answer.refused) == (left, limit * MIB, _OUT_OF_MEMORY)
    saw = f"{free // MIB} of {total // MIB} MiB"
    if not exact or not 0 <= left - answer.taken < BLOCK:
        raise StepFailed(
            f"a program with {limit} MiB, of which it held {held // MIB}, saw {saw} free, took "
            f"{answer.taken // MIB} MiB, and was then refused with {answer.refused}"
        )
    return [
        f"its program holds {held // MIB} MiB, its CUDA context included",
        f"cuMemGetInfo says {saw} are free on the {device.memory_mib} MiB of {device.model}",
        f"cuMemAlloc gives {answer.taken // MIB} MiB in blocks, then {answer.refused}",
    ]


async def _by_the_ledger(simulated: SimulatedDevice, limit: int) -> str:
    """What the library cannot make up: the driver's side of it."""
    most = await simulated.most_held()
    if most > limit * MIB:
        raise StepFailed(f"the driver gave {most} bytes to a program with {limit} MiB")
    return f"the driver's own ledger: never more than {most // MIB} MiB at once, context included"
