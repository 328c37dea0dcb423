"""The node monitor: what runs on a node, measured, fed back and shown.

``table`` is what one round of measuring (a tick) found, as values; ``compat`` reads slices of
HAMi's own library into it. ``exposition`` (Prometheus), ``node_api`` (JSON) and ``routes`` show it;
``usage_history`` keeps the last hour, ``metrics`` what the process counts of itself.
Not here: making, changing and removing slices (``hami.node``). The monitor may do I/O on its node;
agent and monitor start, run and stop without each other.
"""
