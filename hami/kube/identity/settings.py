"""Where the API server is, and how many calls we may make to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeSettings:
    """How to reach the API server.

    Without ``kubeconfig``: the files that ``$KUBECONFIG`` lists, else ``~/.kube/config``, else the
    pod's own service account, whose token and CA are files under ``service_account``. ``context``
    is one of the kubeconfig's; None means its current one.

    ``qps`` limits calls per second after a first ``burst``; 0 is no limit, since the API server has
    its own (https://kubernetes.io/docs/concepts/cluster-administration/flow-control/). ``timeout``
    is for one call, in seconds, watches excepted.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    qps: float = 0.0
    burst: int = 10
    timeout: float = 30.0
    service_account: Path = SERVICE_ACCOUNT
