"""What listens: kube-scheduler's extender, the admission webhooks, health and metrics over HTTP.

``applications`` has the routes, ``listeners`` and ``server`` bring them to their addresses, ``tls``
the certificates. ``fast_path`` answers plain requests to the extender without ASGI. The webhooks
answer reviews here. What a filter or bind decides is in ``decide``, which these modules know by a
protocol alone.
"""
