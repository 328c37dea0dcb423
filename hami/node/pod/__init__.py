"""The agent knows here whose a slice is, and what its pod was granted.

``pods`` mirrors the pods of this node, finds one by its UID, verifies its signed allocation and
reads from it what a container may have. May ask the API server; writes nothing, and imports nothing
else of the agent. What is written to pods is in ``start.outcomes`` and ``compat.lock_writes``,
which pods still have processes in ``hami.slices.cgroups``.
"""
