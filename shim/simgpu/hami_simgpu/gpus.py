"""GPUs by the name of their model, as ``simgpud`` reads them, and the files of such a node.

``gpus.yaml`` describes the models.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from hami.domain.errors import ConfigError, shortened

_ITEM = re.compile(r"(?P<model>[A-Za-z0-9._-]+?)(?P<mig>:mig)?(?:x(?P<count>\d{1,2}))?")
_MOST = 16
"""As many GPUs as one ``simgpud`` has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGpu:
    """One GPU. ``memory`` in MiB; ``mig``: it is cut into instances.

    ``links``: where each NVLink leads, the index of a GPU or ``switch``.
    """

    uuid: str
    pci: str
    name: str
    memory: int
    numa: int
    mig: bool
    links: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """Of ``simgpud``'s file (shim/simgpu/README.md)."""
        links = [f"nvlink={','.join(self.links)}"] if self.links else []
        words = [
            f'name="{self.name}"', f"memory={self.memory}", f"uuid={self.uuid}", f"pci={self.pci}",
            f"numa={self.numa}", f"mig={int(self.mig)}", *links,
        ]  # fmt: skip
        return " ".join(["gpu", *words])


def read_gpus(text: str, node: str) -> tuple[SimulatedGpu, ...]:
    """The GPUs of ``a100-40g:migx2,t4``: of each model so many, ``:mig`` where they can be cut.

    Those of one entry are linked with each other where the model has NVLinks. UUIDs follow from the
    node's name. Half of the GPUs are on each of two NUMA nodes.

    Raises:
        ConfigError: an entry or a model in it cannot be used.
    """
    models = builtin_models()
    items = [_item(entry.strip(), models) for entry in text.split(",")]
    total = sum(count for _, _, count in items)
    if total > _MOST:
        raise ConfigError(f"simulated GPUs: {total} are too many; write at most {_MOST}")
    gpus: list[SimulatedGpu] = []
    for model, mig, count in items:
        first = len(gpus)
        gpus += [
            SimulatedGpu(
                uuid=simulated_uuid("GPU", node, index),
                pci=f"00000000:{index + 7:02X}:00.0",
                name=model["name"],
                memory=model["memoryMiB"],
                numa=int(2 * index >= total),
                mig=mig,
                links=_links(model, index - first, count, first),
            )
            for index in range(first, first + count)
        ]
    return tuple(gpus)


def builtin_models() -> Mapping[str, Mapping[str, Any]]:
    """By name, as ``gpus.yaml`` has them."""
    source = resources.files("hami_simgpu").joinpath("gpus.yaml").read_text("utf-8")
    found: Mapping[str, Mapping[str, Any]] = yaml.safe_load(source)["models"]
    return found


def simulated_uuid(kind: str, *parts: object) -> str:
    """``GPU-`` or ``MIG-`` and a UUID that follows from the parts: the same after every start."""
    text = hashlib.sha256("\0".join(map(str, (kind, *parts))).encode()).hexdigest()
    return f"{kind}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def peers(place: int, count: int, links: int) -> list[int]:
    """To which of ``count`` GPUs the links of one lead; symmetric.

    With too few for all, to the nearest in a ring.
    """
    others = [(place + step) % count for step in range(1, count)]
    if len(others) <= links:
        return others * (links // len(others))
    return [
        peer for step, peer in enumerate(others, start=1) if min(step, count - step) <= links // 2
    ]


def mig_minors_text(gpus: int) -> str:
    """``/proc/driver/nvidia-caps/mig-minors`` as the driver writes it, for this many GPUs.

    Every GPU has room for 15 GPU instances of 8 compute instances each.
    """
    lines, minor = ["config 1", "monitor 2"], 3
    for gpu in range(gpus):
        for instance in range(15):
            place = f"gpu{gpu}/gi{instance}"
            lines.append(f"{place}/access {minor}")
            lines += [f"{place}/ci{part}/access {minor + 1 + part}" for part in range(8)]
            minor += 9
    return "".join(f"{line}\n" for line in lines)


def write_node(gpus: Sequence[SimulatedGpu], library: Path, folder: Path) -> Mapping[str, str]:
    """What a node with these GPUs has below ``/``, in ``folder``: the driver, ``/sys``, ``/proc``.

    Returns the section ``nvidia:`` of the configuration with which an agent reads it there.
    ``library`` is the simulated libnvidia-ml.so.1.
    """
    below = {"containerDriverRoot": "driver", "sysRoot": "sys", "procRoot": "proc"}
    driver = folder / below["containerDriverRoot"] / "usr" / "lib64" / library.name
    driver.parent.mkdir(parents=True)
    driver.symlink_to(library)
    minors = folder / below["procRoot"] / "driver" / "nvidia-caps" / "mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text(mig_minors_text(len(gpus)))
    for gpu in gpus:
        numa = folder / below["sysRoot"] / "bus/pci/devices" / gpu.pci.lower()[4:] / "numa_node"
        numa.parent.mkdir(parents=True)
        numa.write_text(f"{gpu.numa}\n")
    return {key: str(folder / place) for key, place in below.items()}


def _item(entry: str, models: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool, int]:
    match = _ITEM.fullmatch(entry)
    count = int(match["count"] or 1) if match else 0
    if match is None or not count:
        raise ConfigError(
            f"simulated GPUs: {shortened(entry)!r} is not <model>[:mig][x<count>], for example "
            f"a100-40gx2"
        )
    model = models.get(match["model"])
    if model is None:
        raise ConfigError(
            f"simulated GPUs: there is no model {shortened(match['model'])!r}; known are "
            f"{', '.join(sorted(models))}"
        )
    if match["mig"] and not model.get("mig"):
        raise ConfigError(f"simulated GPUs: {match['model']} has no MIG; leave :mig out")
    return model, match["mig"] is not None, count


def _links(model: Mapping[str, Any], place: int, count: int, first: int) -> tuple[str, ...]:
    links: int = model.get("nvlinks", 0)
    if count < 2 or not links:
        return ()
    if model.get("linkedTo") == "switch":
        return ("switch",) * links
    return tuple(str(first + peer) for peer in peers(place, count, links))
