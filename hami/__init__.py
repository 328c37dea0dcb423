"""hami: accelerators shared between Kubernetes pods, with every vendor as a plugin.

Inside: the vendor contract (``hookspecs``), the registry of vendors (``vendors``) and the layers
that the architecture page names. This package itself holds no code and does no I/O.
"""

__version__ = "1.0.0.dev0"
