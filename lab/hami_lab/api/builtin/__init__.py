"""What the built-in controllers write back, in the same turn of the loop as the change.

Service accounts of a new namespace, taints of a node, the resources of a new definition; budgets of
disruptions. Not here: controllers of workloads (``hami_lab.controllers``). No I/O.
"""
