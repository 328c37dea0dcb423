"""The demo's nodes, each with a real node agent on GPUs that are not there."""

from __future__ import annotations

import asyncio

import yaml

from hami.domain.units import VendorKey
from hami_lab.cluster import EmbeddedCluster

NODES = (("a100-1", "a100-40gx1"), ("t4-1", "t4x2"))
"""Names and devices, as simulated hardware spells them."""
VENDOR = VendorKey("NVIDIA")


async def start_nodes(cluster: EmbeddedCluster) -> None:
    """Both nodes with their agents, which start at the same time.

    Raises:
        ConfigError: the vendor's plugin has nothing for nodes.
        HamiError: an agent does not come up.
    """
    starts = [_start_node(cluster, name, devices) for name, devices in NODES]
    # Not a task group: that would wrap the error, of which one is enough.
    for problem in await asyncio.gather(*starts, return_exceptions=True):
        if problem is not None:
            raise problem


async def _start_node(cluster: EmbeddedCluster, name: str, devices: str) -> None:
    node = await cluster.add_plugin_node(name)
    hardware = node.folder / "gpus.yaml"
    hardware.write_text(yaml.safe_dump({"node": name, "gpus": devices}))
    # In the place of a library that somebody else installed: no process is there to load it. An
    # agent that brings a library of its own puts that beside it.
    library = node.folder / "local" / "vgpu" / "libvgpu.so"
    library.parent.mkdir(parents=True)
    library.touch()
    await cluster.start_agent(
        node,
        VENDOR.lower(),
        f"--simulated-nvml={hardware}",
        f"--hook-path={node.folder / 'local'}",
    )
