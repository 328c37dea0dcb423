"""NVIDIA GPUs for hami: shared by memory and compute, or cut into MIG instances.

Inside: the profile that the configuration gives (``config``, ``profile``), what admission adds to
a container (``admission``), the texts on nodes and pods (``nodes``, ``allocations``), which MIG
instance a slice becomes (``mig``) and which devices are linked best (``topology``); ``plugin``
ties them to the hooks. Pure: no I/O, no clock. Not here: what every vendor shares (``hami``).
"""

from hami_nvidia import plugin

__all__ = ["__version__", "plugin"]

__version__ = "1.0.0.dev0"
