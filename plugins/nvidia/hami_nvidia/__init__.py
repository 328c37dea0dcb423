"""NVIDIA GPUs for hami: shared by memory and compute, or cut into MIG instances.

``vendor`` is the plugin. Its hooks are in ``scheduler_side`` and ``node_side``, and each calls a
module of one of these folders:

* ``schedule``: the scheduler's decisions, pure;
* ``handover``: what a container gets with its slice;
* ``compat``: the same in the form of HAMi's device plugin;
* ``health``: whether the devices are well;
* ``measurement``: what they and the processes on them use;
* ``devices``: what the node has and publishes;
* ``mig``: MIG instances on the node;
* ``nvml``: what is asked of the driver;
* ``settings``: the configuration, flags and variables.

Not here: what every vendor shares (``hami``), and the library in containers (``shim``).
"""

from hami_nvidia.vendor import NvidiaVendor

__version__ = "1.0.0.dev0"
__all__ = ["NvidiaVendor", "__version__", "plugin"]

plugin = NvidiaVendor()
"""The plugin object."""
