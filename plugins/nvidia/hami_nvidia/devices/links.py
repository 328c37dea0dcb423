"""How well the GPUs of a node are linked, in HAMi's scores: what topology-aware scheduling reads.

10 to 60 for the way over PCIe, and 100 for each NVLink.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType

from hami.domain.units import DeviceId
from hami_nvidia.nvml.interface import Ancestor, Gpu, NvLink, Nvml, NvmlAway, NvmlFailed
from hami_nvidia.schedule.topology import PairScore

PCIE_SCORES: Mapping[Ancestor, int] = MappingProxyType(
    {
        Ancestor.SYSTEM: 10,
        Ancestor.CPU: 20,
        Ancestor.HOST_BRIDGE: 30,
        Ancestor.SWITCHES: 40,
        Ancestor.SWITCH: 50,
        Ancestor.BOARD: 60,
    }
)
NVLINK_SCORE = 100
_MOST_NVLINKS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Each GPU's scores, by peer; ``reports`` say what could not be found out or is odd."""

    scores: Mapping[DeviceId, tuple[PairScore, ...]]
    reports: tuple[str, ...] = ()


def topology(nvml: Nvml, gpus: Sequence[Gpu]) -> Topology:
    """The scores of every pair; a pair that cannot be asked scores what is known of it.

    Raises:
        NvmlAway: there is no driver.
    """
    reports: list[str] = []
    links = {gpu.uuid: _links(nvml, gpu, reports) for gpu in gpus}
    found: dict[DeviceId, dict[DeviceId, int]] = {gpu.uuid: {} for gpu in gpus}
    for one, other in combinations(gpus, 2):
        pcie = _pcie_score(nvml, one, other, reports)
        there = nvlink_count(links[one.uuid], links[other.uuid], other.pci_bus_id)
        back = nvlink_count(links[other.uuid], links[one.uuid], one.pci_bus_id)
        if (there == 0) != (back == 0):
            reports.append(
                f"{one.uuid} and {other.uuid} do not agree on whether NVLink joins them; they "
                f"score 0: check the NVLinks and the driver (nvidia-smi nvlink --status)"
            )
            pcie = there = back = 0
        found[one.uuid][other.uuid] = pcie + NVLINK_SCORE * there
        found[other.uuid][one.uuid] = pcie + NVLINK_SCORE * back
    scores = {
        uuid: tuple(PairScore(peer=peer, score=score) for peer, score in sorted(peers.items()))
        for uuid, peers in found.items()
    }
    return Topology(scores=scores, reports=tuple(reports))


def nvlink_count(here: Sequence[NvLink], there: Sequence[NvLink], bus_id: str) -> int:
    """How many NVLinks lead from one GPU to another: directly, else through NVSwitches.

    Through switches it is as many as both have. HAMi knows no more than 18, and takes another
    number for no link.
    """
    remote = Counter(plain_bus_id(link.remote_bus_id) for link in here)
    count = remote[plain_bus_id(bus_id)]
    if not count:
        count = min(sum(link.switch for link in links) for links in (here, there))
    return count if count <= _MOST_NVLINKS else 0


def plain_bus_id(bus_id: str) -> str:
    """As sysfs writes it: ``00000000:0A:00.0`` becomes ``0000:0a:00.0``."""
    domain, colon, rest = bus_id.lower().partition(":")
    short = domain[4:] if len(domain) == 8 and domain.startswith("0000") else domain
    return f"{short}{colon}{rest}"


def _links(nvml: Nvml, gpu: Gpu, reports: list[str]) -> Sequence[NvLink]:
    try:
        return nvml.links(gpu.uuid)
    except NvmlAway:
        raise
    except NvmlFailed as failed:
        reports.append(f"{failed}; its NVLinks do not count")
        return ()


def _pcie_score(nvml: Nvml, one: Gpu, other: Gpu, reports: list[str]) -> int:
    try:
        return PCIE_SCORES[nvml.ancestor(one.uuid, other.uuid)]
    except NvmlAway:
        raise
    except NvmlFailed as failed:
        reports.append(f"{failed}; their way over PCIe does not count")
        return 0
