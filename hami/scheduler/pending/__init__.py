"""Pods that wait, grouped by what they ask, and what was answered to them.

``waiting`` and ``kinds`` are what kube-scheduler calls its queue and equivalence classes;
``node_sets`` keeps node names as bits; ``answers`` words a refusal for thousands of nodes.
"""
