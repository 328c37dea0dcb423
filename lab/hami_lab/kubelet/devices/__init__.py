"""kubelet's device manager, for one simulated node: the other side of every device plugin.

``devices`` puts it together: ``ledger`` is what it knows and decides (pure), ``checkpoint`` its
file, ``endpoints`` and ``registration`` its gRPC over the node's plugin folder, ``races`` what goes
wrong in the real one. It follows kubelet 1.36: where the two differ, this one is wrong. Not here:
pods' lives, and what a runtime makes of the answers (``hami_lab.kubelet.runtime``).
"""
