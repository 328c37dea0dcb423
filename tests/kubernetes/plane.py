"""A real control plane on this machine: etcd, kube-apiserver, kube-controller-manager, and a
kube-scheduler when asked for. It needs no root, is ready in 3 to 5 s and takes about 450 MiB.

    python tests/kubernetes/plane.py [STATE]     # runs until Ctrl-C; prints the kubeconfig's path

Three users: ``admin`` and ``kube-scheduler`` may do everything, ``hami`` nothing but what RBAC
gives it. The audit log tells their writes apart.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

if __package__:
    from .binaries import binaries
    from .client import Client, Object, Refused
    from .pki import Authority, service_account_key
    from .processes import Processes, free_port
else:  # run as a script
    from binaries import binaries
    from client import Client, Object, Refused
    from pki import Authority, service_account_key
    from processes import Processes, free_port

USERS = ("admin", "kube-scheduler", "hami")
LOCAL = "127.0.0.1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = ("ClusterRole", "Role")

MANAGED = (
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "hygon.com/dcunum",
    "hygon.com/dcumem",
    "hygon.com/dcucores",
)
"""The resources for which kube-scheduler asks the extender."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write as the API server's audit log has it; ``what`` is ``pods/binding`` and the like."""

    user: str
    verb: str
    what: str
    namespace: str
    name: str
    status: int
    agent: str


class ControlPlane:
    """A context manager; ``state`` is emptied first, and has the logs afterwards."""

    def __init__(
        self, binaries: Path, state: Path, *, audit: bool = True, gates: Sequence[str] = (),
        apis: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """``gates`` are features that are off by default; ``apis`` are versions that are not
        served.
        """
        self.bin, self.state, self.audit = binaries, state.resolve(), audit
        self._gates = ["--feature-gates", ",".join(f"{gate}=true" for gate in gates)]
        self._apis = ["--runtime-config", ",".join(f"{api}=true" for api in apis)]
        self.processes = Processes(self.state / "logs")
        self.url = f"https://{LOCAL}:{free_port()}"

    def __enter__(self) -> ControlPlane:
        shutil.rmtree(self.state, ignore_errors=True)
        (self.state / "logs").mkdir(parents=True)
        self.authority = Authority(self.state / "pki")
        self.admin = self.client("admin")
        try:
            self._start_etcd()
            self._start_api_server()
            self._start_controllers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.close()
        self.processes.stop_all()

    def client(self, user: str) -> Client:
        return Client(self.url, token=f"{user}-token", ca=self.authority.certificate)

    def kubeconfig(self, user: str = "admin", *, server: str = "", token: str = "") -> Path:
        """A kubeconfig, also for another address (a proxy's); plain http takes no certificates.
        ``token`` may be another than the user's own.
        """
        url = server or self.url
        cluster: Object = {"server": url}
        if url.startswith("https:"):
            cluster["certificate-authority"] = str(self.authority.certificate)
        path = self.state / f"{user}-{url.rsplit(':', 1)[1]}.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": user,
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token or f"{user}-token"}}],
            "contexts": [{"name": user, "context": {"cluster": "test", "user": user}}],
        }
        path.write_text(json.dumps(config))
        return path

    def kube_scheduler(
        self,
        extender: Mapping[str, Any] | None = None,
        *,
        profile: str = "hami-scheduler",
        election: Mapping[str, Any] | None = None,
    ) -> None:
        """(Re)starts it with the profiles default-scheduler and ``profile``."""
        config: Object = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": dict(election or {"leaderElect": False}),
            "percentageOfNodesToScore": 100,
            "podMaxBackoffSeconds": 1,
            "clientConnection": {
                "kubeconfig": str(self.kubeconfig("kube-scheduler")),
                "qps": 5000,
                "burst": 10000,
            },
            "profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": profile}],
        }
        if extender:
            config["extenders"] = [dict(extender)]
        path = self.state / "kube-scheduler.yaml"
        path.write_text(json.dumps(config))
        self.stop_kube_scheduler()
        self.processes.start(
            "kube-scheduler", self.bin / "kube-scheduler", "--config", path, "--secure-port", "0",
            *self._gates,
        )  # fmt: skip

    def stop_kube_scheduler(self) -> None:
        if self.processes.running("kube-scheduler"):
            self.processes.stop("kube-scheduler")

    def writes(self) -> Iterator[Write]:
        """All answered writes, of every user."""
        assert self.audit, "this control plane writes no audit log"
        for line in (self.state / "audit.log").read_text().splitlines():
            event = json.loads(line)
            about = event.get("objectRef", {})
            sub = about.get("subresource")
            yield Write(
                user=event["user"].get("username", ""),
                verb=event["verb"],
                what=about.get("resource", "") + (f"/{sub}" if sub else ""),
                namespace=about.get("namespace", ""),
                name=about.get("name", ""),
                status=event.get("responseStatus", {}).get("code", 0),
                agent=event.get("userAgent", ""),
            )

    def _start_etcd(self) -> None:
        clients, peers = (f"http://{LOCAL}:{free_port()}" for _ in range(2))
        self._etcd = clients
        self.processes.start(
            "etcd", self.bin / "etcd", "--data-dir", self.state / "etcd", "--unsafe-no-fsync",
            "--listen-client-urls", clients, "--advertise-client-urls", clients,
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
            "--initial-cluster", f"default={peers}",
        )  # fmt: skip

    def _start_api_server(self) -> None:
        pki = self.authority.folder
        self._key = service_account_key(pki / "service-account.key")
        certificate, key = self.authority.issue("kube-apiserver", LOCAL, "localhost")
        tokens = pki / "tokens.csv"
        rows = (
            f"{user}-token,{user},{user}" + (',"system:masters"' if user != "hami" else "")
            for user in USERS
        )
        tokens.write_text("".join(f"{row}\n" for row in rows))
        self.processes.start(
            "kube-apiserver", self.bin / "kube-apiserver", "--etcd-servers", self._etcd,
            "--bind-address", LOCAL, "--secure-port", self.url.rsplit(":", 1)[1],
            # Without these two it looks for an address other than the loopback's, and for a route.
            "--advertise-address", "192.0.2.1", "--endpoint-reconciler-type", "none",
            "--tls-cert-file", certificate, "--tls-private-key-file", key,
            "--token-auth-file", tokens, "--authorization-mode", "RBAC",
            "--service-account-key-file", self._key, "--service-account-signing-key-file", self._key,
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-cluster-ip-range", "10.96.0.0/16", "--allow-privileged",
            "--kubelet-preferred-address-types", "InternalIP", *self._audit_flags(),
            *self._gates, *self._apis,
        )  # fmt: skip
        self.processes.wait(
            "kube-apiserver", "the API server is ready", lambda: self._serves("/readyz")
        )

    def _audit_flags(self) -> Sequence[object]:
        if not self.audit:
            return ()
        policy = self.state / "audit-policy.yaml"
        reads = {"level": "None", "verbs": ["get", "list", "watch"]}
        rules = [reads, {"level": "Metadata", "omitStages": ["RequestReceived"]}]
        policy.write_text(
            json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules})
        )
        return (
            "--audit-policy-file", policy, "--audit-log-path", self.state / "audit.log",
            "--audit-log-mode", "blocking",
        )  # fmt: skip

    def _start_controllers(self) -> None:
        self.processes.start(
            "kube-controller-manager", self.bin / "kube-controller-manager",
            "--kubeconfig", self.kubeconfig(), "--service-account-private-key-file", self._key,
            "--root-ca-file", self.authority.certificate, "--use-service-account-credentials",
            "--leader-elect=false", "--secure-port", free_port(), "--bind-address", LOCAL,
            "--kube-api-qps", "1000", "--kube-api-burst", "2000",
            # It takes pods away whose node is no object, at moments of its own.
            "--controllers", "*,-pod-garbage-collector-controller",
            # Most nodes here are an object and nobody's machine: no kubelet renews them.
            "--node-monitor-grace-period", "1h",
        )  # fmt: skip
        self.processes.wait(
            "kube-controller-manager",
            "the default service account is there",
            lambda: self._serves("/api/v1/namespaces/default/serviceaccounts/default"),
        )

    def allow_hami(self, namespace: str) -> None:
        """Give the user ``hami`` the rights that docs/scheduler.md lists, those of its Roles in
        ``namespace``, and those of a service that keeps a Lease of its own. Idempotent.
        """
        own = {"kind": "Role", "metadata": {"name": "own-lease"}, "rules": documented_own_lease()}
        for role in (*documented_roles(), own):
            kind = role["kind"]
            path = RBAC
            if kind == "Role":
                if role["metadata"].get("namespace") != "kube-node-lease":
                    role["metadata"]["namespace"] = namespace
                path += f"/namespaces/{role['metadata']['namespace']}"
            binding = {
                "metadata": {"name": role["metadata"]["name"]},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": kind,
                    "name": role["metadata"]["name"],
                },
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "hami"}
                ],
            }
            for where, body in ((f"{kind.lower()}s", role), (f"{kind.lower()}bindings", binding)):
                try:
                    self.admin.create(f"{path}/{where}", body)
                except Refused as error:
                    if error.status != 409:
                        raise

    def _serves(self, path: str) -> bool:
        try:
            self.admin.text(path)
        except Refused:
            return False
        return True


def documented_roles() -> list[Object]:
    """The ClusterRole and the Roles of docs/scheduler.md."""
    roles = [found for found in _documented() if found.get("kind") in ROLES]
    assert {role["kind"] for role in roles} == set(ROLES)
    return roles


def documented_own_lease() -> list[Object]:
    """The rules there of a service that keeps a Lease of its own."""
    (found,) = [found["rules"] for found in _documented() if set(found) == {"rules"}]
    return list(found)


def _documented() -> list[Object]:
    text = (Path(__file__).parents[2] / "docs/scheduler.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    documents = (found for block in blocks for found in yaml.safe_load_all(block))
    return [found for found in documents if isinstance(found, dict)]


def extender(url: str, **fields: Any) -> Object:
    """The stanza of docs and chart; ``fields`` replace some of it."""
    return {
        "urlPrefix": url,
        "filterVerb": "filter",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "nodeCacheCapable": True,
        "weight": 1,
        "httpTimeout": "30s",
        "managedResources": [{"name": name, "ignoredByScheduler": True} for name in MANAGED],
        **fields,
    }


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    state = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="kubernetes-"))
    try:
        with ControlPlane(binaries(), state) as plane:
            plane.kube_scheduler()
            sys.stdout.write(f"export KUBECONFIG={plane.kubeconfig()}\n")
            sys.stdout.flush()
            signal.pause()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
