"""Hygon DCUs and HCUs, the scheduler's side: two vendor profiles, no other code.

Inside: the profiles ``DCU`` and ``HCU`` and how the section ``hygon:`` of the device configuration
changes them. Every hook but ``hami_vendors`` is the core's default. Not here: the node's side
(discovery, compute-unit slices). No I/O.
"""

from hami_hygon import plugin

__version__ = "1.0.0.dev0"
__all__ = ["plugin"]
