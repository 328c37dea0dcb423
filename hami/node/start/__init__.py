"""A container starts: the agent answers kubelet's Allocate and PreStartContainer.

``allocate`` gives each container a fresh slice id. ``pre_start`` finds in kubelet's checkpoint
whose it is, and has the slice prepared. ``kubelet_mode`` joins both for the mode ``kubelet``.
``outcomes`` tells the cluster what came of it, by annotations and events. The gRPC below is in
``kubelet``, the making of a slice in ``slice``; the mode ``lock`` is in ``compat``.
"""
