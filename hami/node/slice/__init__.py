"""A slice's life: the agent prepares, resizes, recovers and releases it here.

``live_slices`` holds those of now: what room they leave, and who works on them. ``preparing`` makes
one real before its container starts: it has the vendor enforce it, and writes it to disk; ``views``
are the forms in which the vendor, the disk and the container get it. ``reconciling`` has the vendor
take away what belongs to no slice. ``other_agents`` lets a container start whose devices another
plugin gave. ``agent_context`` is what the parts share. May call all parts below: ``kubelet``'s
record, ``pod``, ``device``, ``disk``. When kubelet asks for a slice is in ``start``.
"""
