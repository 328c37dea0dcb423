"""A slice as it lies on a node: what the agent and the monitor both read.

``c_layout`` has the bytes of the two files that the C library knows, ``limits_page`` and
``usage_region`` read them (the first also writes its own), ``record`` says whose a slice is, and
``files`` reads and writes whole files in folders that others may touch, ``open_pages`` keeps limits
pages open for writing, ``lock_file`` keeps a second process away. ``cgroups`` finds the
processes of a pod, ``mounts`` what they have mounted as their slice.
Not here: making, changing and removing slices (``hami.node``). What is here blocks.
"""
