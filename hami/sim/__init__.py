"""The laboratory: clusters without machines.

``api`` is an API server, ``kube_scheduler``, ``kubelet`` and ``controllers`` stand in for the
components around it, ``cluster`` puts them together with the real scheduler service and node agents
in processes of their own, and ``demo`` tells a story with it. Sockets on loopback, and a temporary
folder. Not here: what only reads manifests and decides (``hami.simulate``), and the terminal
(``hami.cli``). Nothing that an operator installs needs it.
"""
