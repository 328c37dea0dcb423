"""``hami simulate``: manifests in, placements and refusals out.

``documents`` reads YAML and JSON. ``manifests`` makes nodes, pods and quotas of them; ``expanded``
makes the pods that workloads would run now. ``simulation`` puts every pod through admission,
kube-scheduler's filters (``kube_filter``) and ours. ``result`` is the outcome. No I/O, no clock.
Not here: the files that people name and the terminal (``hami.cli``), and the decisions themselves
(``hami.policy``). ``hami_lab`` runs a live cluster instead.
"""
