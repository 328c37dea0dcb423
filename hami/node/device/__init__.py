"""The agent knows the vendor's devices here.

``inventory`` discovers the devices and follows their health. ``advertise`` writes them to the node.
Imports nothing else of the agent; what blocks runs in threads of ``hami.blocking``.
The list that kubelet gets is in ``kubelet``; the hooks that make a slice are called in ``slice``.
"""
