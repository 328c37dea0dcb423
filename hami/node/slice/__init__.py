"""A slice's life: the agent prepares, enforces, resizes, recovers and releases it here.

``live_slices`` holds those of now. ``preparing`` makes one real before its container starts: it
asks ``occupancy`` whether it fits, has the vendor's hooks called (``enforcing``), and writes it to
disk. ``container`` adds what the core itself gives. ``other_agents`` lets a container start whose
devices another plugin gave. ``agent_context`` is what the parts share. May call all parts below:
``kubelet``'s record, ``pod``, ``device``, ``disk``. When kubelet asks for a slice is in ``start``.
"""
