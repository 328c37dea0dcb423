"""The mode ``lock``: the agent serves kubelet by HAMi's protocol, and nothing else needs this.

``lock_mode`` puts the parts together. ``replicas`` are the ids that kubelet is told of.
``lock_allocate`` answers Allocate for the pod that ``allocating_pod`` finds, the one that is being
bound here. ``lock_slices`` makes its slices, and verifies their owner before the container starts.
``lock_writes`` writes what HAMi's scheduler waits for: devices off the list, phase, lock. May write
to pods and to the node. The mode ``kubelet`` is in ``start``. Only ``agent`` imports this package.
"""
