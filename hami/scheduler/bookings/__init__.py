"""Who has what: the state of the service, in memory, each part with one owner.

``state`` puts the parts together. ``inventory`` has the nodes and their devices; ``bookings``
decides where a pod goes and books it, with ``reservations`` and ``holds``; ``bound_pods`` charges
what runs, with ``resizes`` of it, and ``strangers`` doubts what others bound; ``quotas`` are the
limits as their objects set them; ``charge_book`` keeps devices and quotas in step. What they tell
each other is in ``hami.scheduler.events``. Nothing here waits or calls the API server, and nobody
else changes anything of it.
"""
