"""The embedded cluster: an API server, a scheduler, kubelets and the real service, on one machine.

The service is a process of its own, the same that runs in a real cluster, and so are node agents;
everything else lives in the caller's event loop. I/O is allowed: sockets on loopback and in a
temporary folder, those processes.
"""

from hami_lab.cluster.cluster import ClusterSettings, EmbeddedCluster
from hami_lab.cluster.problems import NotInTime, ServiceDied

__all__ = ["ClusterSettings", "EmbeddedCluster", "NotInTime", "ServiceDied"]
