"""A cluster on paper: manifests in, placements and refusals out.

Inside: reading Kubernetes manifests, the part of kube-scheduler that says which nodes a pod may
go to, and the simulation that puts both before the real policies. Not here: files, the terminal
(``hami.cli``) and the decisions themselves (``hami.policy``). No I/O and no clock: the caller
hands in texts and gets values.
"""
