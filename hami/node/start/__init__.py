"""A container starts: the agent answers kubelet's Allocate and PreStartContainer.

``container_start`` gives each container a fresh slice id, finds in kubelet's checkpoint whose it
is, and has the slice prepared. ``kubelet_mode`` builds that for the mode ``kubelet``, and lists the
ids that kubelet may give away. ``outcomes`` tells the cluster what came of it, by annotations and
events. The gRPC below is in ``kubelet``, the making of a slice in ``slice``; the mode ``lock`` is
in ``compat``.
"""
