"""Stand-ins for the workload controllers: Deployment, ReplicaSet, StatefulSet and Job make pods.

``plans`` says what is missing and what is too much, without I/O; ``controllers`` is the client of
the API server. Not here: rolling updates (all pods are replaced at once), disruption, cron.
"""

from hami_lab.controllers.controllers import WorkloadControllers

__all__ = ["WorkloadControllers"]
