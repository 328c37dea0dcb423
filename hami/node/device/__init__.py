"""The agent knows the vendor's devices here, and calls what blocks.

``inventory`` discovers the devices and follows their health. ``advertise`` writes them to the node.
``threads`` runs the vendor's hooks, and everything else that blocks, each call within its time;
``daemon_threads`` let the process end although one hangs. Imports nothing else of the agent.
The list that kubelet gets is in ``kubelet``; the hooks that make a slice are called in ``slice``.
"""
