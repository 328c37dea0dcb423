"""The table of a node as Prometheus' text, made when it is scraped.

``families`` are the metrics of our own, ``compat`` those under HAMi's names, so that its dashboards
keep working. ``shown`` is the table as it is scraped, each series once; ``node_text`` writes it.
No I/O. Not here: what the monitor process counts of itself (``hami.monitor.metrics``).
"""
