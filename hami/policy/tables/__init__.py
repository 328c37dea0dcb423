"""Every node's devices, and what each pod uses of them, ready to be scanned at once.

``cluster_table`` is the whole: nodes come and go, pods are charged and released. It has a
``device_table`` for each vendor, with a column for each amount, and a record of each device
(``records``). ``node_names`` turns thousands of node names into numbers.
One owner changes the tables, and they only compute. They load numpy, which an agent must not.
"""
