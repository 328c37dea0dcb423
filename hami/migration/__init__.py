"""From HAMi to hami: its chart's values translated, and what a cluster of HAMi's shows.

``keys`` is one key of HAMi's values.yaml, ``table`` has all of them, by groups in
``scheduler_keys``, ``node_keys`` and ``vendor_keys``; ``rules`` are what is done with a value.
``conversion`` reads a file of values and writes ours. ``seen`` is what of a cluster counts,
``readiness`` what a move would change there, ``steps`` the commands, there and back. No I/O, no
clock. Not here: files, the API server, the terminal (``hami.cli.migrating``).
"""
