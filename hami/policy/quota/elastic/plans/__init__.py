"""Plans: whom to evict, so that a pending pod gets what it is entitled to.

``plan`` tries the kinds of plan in order; ``rights`` and ``shares`` say who may be evicted for
whom, ``victims`` in which order, ``search`` finds the node and the fewest victims, ``disruption``
counts PodDisruptionBudgets; ``ground`` is what a plan asks of the cluster. Nothing is evicted here.
No I/O, no clock.
"""
