"""Pods that wait, grouped by what they ask, and what was answered to them.

``pending_pods`` and ``equivalence`` are what kube-scheduler calls its queue and equivalence
classes; ``wake_round`` says who is tried next; ``expected_pods`` waits for an informer that is
late; ``node_sets`` keeps node names as bits; ``answers`` words a refusal for thousands of nodes.
"""
