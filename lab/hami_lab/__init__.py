"""The laboratory: clusters without machines.

``api`` is an API server, ``kube_scheduler``, ``kubelet`` and ``controllers`` stand in for the
components around it, ``cluster`` puts them together with the real scheduler service and node agents
in processes of their own, ``demo`` tells a story with it, ``cli`` adds ``hami demo`` and
``hami up`` to the command, and ``pytest_plugin`` gives tests a cluster. Sockets on loopback, and a
temporary folder. Not here: what only reads manifests and decides (``hami.simulate``). Nothing that
an operator installs needs it.
"""

__version__ = "1.0.0.dev0"
