"""Which node takes a pod: the decision behind kube-scheduler's call of ``filter``.

``decision`` drops nodes in one pass over the tables, ranks the others and fits them exactly, one by
one. ``gangs`` judges pods that run together or not at all. Nothing here reserves or writes: the
caller charges what was placed. ``fit`` chooses devices on one node; ``quota`` says whether the pod
may have them.
"""
