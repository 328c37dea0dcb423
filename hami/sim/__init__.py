"""Clusters without machines: on paper, and embedded.

On paper (``simulate`` and what it reads): manifests in, placements and refusals out; no I/O and no
clock. Embedded (``api``, ``kube_scheduler``, ``kubelet``, ``controllers``, ``cluster``, ``demo``):
an API server, stand-ins for the components around it, and the real scheduler service and node
agents in processes of their own; sockets on loopback and a temporary folder. Not here: files that
people name, the terminal (``hami.cli``) and the decisions themselves (``hami.policy``).
"""
