"""The agent knows here whose a slice is, and what its pod was granted.

``pods`` mirrors the pods of this node and finds one by its UID. ``cgroups`` says which of them
still have processes. ``granting`` verifies a pod's signed allocation and reads from it what a
container may have. May ask the API server and read cgroups; writes nothing, and imports nothing
else of the agent.
What is written to pods is in ``start.outcomes`` and ``compat.lock_writes``.
"""
