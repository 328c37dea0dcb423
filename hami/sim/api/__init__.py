"""An API server in memory: the part of Kubernetes that we, kube-scheduler and kubectl use.

Inside: the objects and their history, the verbs, admission (defaults, priorities, quotas, webhooks
called out over HTTPS), what the built-in controllers write back, faults on demand, and the HTTP
server in front. Not here: a scheduler, a kubelet, controllers of workloads. I/O is allowed: it
listens, calls webhooks and may keep its objects in a file. Where it differs from a real
kube-apiserver it is wrong; ``tests/api`` runs against both.
"""

from hami.sim.api.calls import Call, Calls
from hami.sim.api.faults import Fault, Faults
from hami.sim.api.server import ApiServer
from hami.sim.api.tls import TlsFiles

__all__ = ["ApiServer", "Call", "Calls", "Fault", "Faults", "TlsFiles"]
