"""An API server in memory: the part of Kubernetes that we, kube-scheduler and kubectl use.

A request comes in through ``http``; a write goes on through ``writes``, past ``typed`` (types,
defaults, checks), ``patches`` and ``admission`` (quotas, webhooks called out over HTTPS), to
``objects``, where everything is kept with its history; ``builtin`` is what the built-in controllers
write back, and ``reviews`` answers who somebody is and what he may do. ``server`` is all of it, on
a port. Not here: a scheduler, a kubelet, controllers of workloads. I/O is allowed: it listens,
calls webhooks and may keep its objects in a file. Where it differs from a real kube-apiserver it is
wrong; ``lab/tests/api`` runs against both.
"""

from hami_lab.api.http.calls import Call, Calls
from hami_lab.api.http.faults import Fault, Faults
from hami_lab.api.http.tls import TlsFiles
from hami_lab.api.server import ApiServer

__all__ = ["ApiServer", "Call", "Calls", "Fault", "Faults", "TlsFiles"]
