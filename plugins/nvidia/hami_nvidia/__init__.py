"""NVIDIA GPUs for hami: shared by memory and compute, or cut into MIG instances.

The scheduler's side (``scheduling``) is pure: the profile that the configuration gives
(``config``, ``profile``), what admission adds to a container (``admission``), the texts on nodes
and pods (``nodes``, ``allocations``), which MIG instance a slice becomes (``mig``) and which
devices are linked best (``topology``).

The node's side (``node_side``) reads and changes the node. Its settings and flags are in
``node_config`` and ``options``. What the hardware is: ``nvml`` says what is asked, ``driver`` and
``simulated_nvml`` answer it, ``discovery``, ``links``, ``mig_devices``, ``health`` and
``instances`` make something of it. What a container gets: ``enforce`` decides, ``locked`` is
HAMi's answer to kubelet, ``prepared`` our CDI spec, ``library`` puts ``libvgpu.so`` onto the node.

``vendor`` ties both to the hooks. Not here: what every vendor shares (``hami``).
"""

from hami_nvidia.vendor import NvidiaVendor

__version__ = "1.0.0.dev0"
__all__ = ["NvidiaVendor", "__version__", "plugin"]

plugin = NvidiaVendor()
"""The plugin object."""
