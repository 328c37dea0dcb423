"""The scheduler service: extender, webhook, metrics, read-only API.

``service`` puts the parts together; ``wiring`` makes those that the configuration chooses between.
One folder is one story, and imports go down this list only: ``web`` (what listens), ``readonly``
(the API for people), ``exposition`` (metrics that are scraped), ``publish`` (what is written back
to the cluster), ``cluster`` (what the cluster says), ``reclaim`` (evictions); then ``decide``
(filter, bind, gangs, locks, wake-ups); then ``bookings`` (who has what, the one mutable state);
then ``pending`` (pods that wait). ``settings`` and ``metrics`` are below all.
What is decided without I/O is ``hami.policy``; talking to the API server is ``hami.kube``.
"""
