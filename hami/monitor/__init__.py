"""The node monitor: what runs on a node, measured, fed back and shown.

``monitor`` builds every part and runs it. At each ``tick`` the vendors are asked what is in use
(``measuring``), it is found out whose the ``processes`` are, and the slices' ``files`` are read and
told. ``table`` is what one tick found, as values; ``compat`` reads slices of HAMi's own library
into it. ``exposition`` (Prometheus), ``node_api`` (JSON) and ``routes`` show it; ``usage_history``
keeps the last hour, ``metrics`` what the process counts of itself. ``pods`` knows the node's pods,
``settings`` what the process is told.
Not here: making, changing and removing slices (``hami.node``). The monitor may do I/O on its node;
agent and monitor start, run and stop without each other.
"""
