"""The agent keeps its slices on the node's disk, in files that are there whole or not at all.

``store`` has one directory for each slice, with the files that ``hami.slices`` describes; its usage
region lies on a ``tmpfs`` where that can be. ``cdi`` writes CDI specs beside
those of others. What is here blocks, and imports nothing else of the agent.
When a slice is made, changed or removed is decided in ``slice``.
"""
