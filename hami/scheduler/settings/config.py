"""The service's configuration: every setting with its type, its default and its rules.

One model serves flags, environment, file and documentation. The flag ``--node-lock-timeout`` is
the key ``node-lock-timeout`` of the file and the variable ``HAMI_SCHEDULER_NODE_LOCK_TIMEOUT``.
Where values come from is :mod:`hami.scheduler.settings.config_source`'s business.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from hami.domain.scheduling import NodePolicy, SchedulingPolicy
from hami.durations import go_duration
from hami.http.addresses import Bind, parse_bind
from hami.policy.fit.rank import DEVICE_POLICIES, device_policy
from hami.policy.pods.admission import AdmissionSettings
from hami.policy.quota.elastic.model import Options
from hami.scheduler.settings.certificate_settings import (
    SYSTEM_NAMESPACE,
    CertificateSettings,
    is_object_name,
)
from hami.settings.model import LIVE, Duration, Positive, Setting

_LEASE_OF_KUBE_SCHEDULER = "kube-scheduler"
_OWN_LEASE = "hami-scheduler-extender"
_GIVE = "give cert-file and key-file too, or certificate-secret"
RETRY_JITTER = 1.2
"""The same as in ``hami.kube.leases.own_lease``, which takes too long to import for commands."""


def _is_bind(text: str) -> str:
    if text:
        parse_bind(text)
    return text


def _is_device_policy(text: str) -> str:
    for word in text.split(","):
        if word.strip() not in DEVICE_POLICIES:
            raise ValueError(
                f"{word.strip()!r} is no policy; write one or several (with commas) of "
                f"{', '.join(DEVICE_POLICIES)}"
            )
    return text


BindText = Annotated[str, AfterValidator(_is_bind)]


class SchedulerConfig(CertificateSettings):
    """All settings, checked.

    Immutable; a changed file makes a new one.
    """

    # Listeners.
    http_bind: BindText = Field(
        "", description="One listener for everything but metrics, as HAMi has it."
    )
    extender_bind: BindText = Field(
        "127.0.0.1:8080", description="Where kube-scheduler calls /filter and /bind."
    )
    public_bind: BindText = Field(
        ":9443", description="Where the API server calls /webhook; also metrics and API."
    )
    metrics_bind_address: BindText = Field(
        ":9395", description="Metrics, health and API without TLS; empty or 0: nowhere."
    )
    extender_tls: bool | None = Field(
        None,
        description="TLS on the extender's listener. By default only with a client CA, or beyond "
        "loopback when there is a certificate.",
    )
    client_ca_file: Path | None = Field(
        None, description="Callers of the extender's listener need a certificate of this CA."
    )
    insecure_extender: bool = Field(
        default=False, description="Let anyone who reaches the port call /filter and /bind."
    )
    shutdown_grace: Positive = Field(
        10.0, description="How long requests that are under way may take at the end."
    )
    address_file: Path | None = Field(
        None, description="Written once the service listens: its addresses, as JSON."
    )

    # Scheduling.
    scheduler_name: Annotated[str, LIVE] = Field(
        "hami-scheduler", description="Put into pods that ask for devices; empty: into none."
    )
    force_overwrite_default_scheduler: Annotated[bool, LIVE] = Field(
        default=True, description="Take over pods that name default-scheduler."
    )
    node_scheduler_policy: Annotated[Literal["binpack", "spread"], LIVE] = Field(
        "binpack", description="How nodes are chosen for pods that do not say."
    )
    gpu_scheduler_policy: Annotated[str, AfterValidator(_is_device_policy), LIVE] = Field(
        "spread", description="How devices are chosen for pods that do not say."
    )
    quota_admission: Annotated[Literal["impossible", "deny", "pending"], LIVE] = Field(
        "impossible",
        description="What the webhook denies: what no quota could ever admit, what does not fit "
        "now, or nothing.",
    )
    quota_pool: Literal["sumMin", "capacity", "off"] = Field(
        "sumMin",
        description="What all elastic quotas may use together: the sum of their minimums, what "
        "the cluster has, or anything.",
    )
    quota_labels: Literal["cumulative", "firstFit"] = Field(
        "cumulative",
        description="Which pods of a quota are over it: all from the first that crosses min on, "
        "or those that do not fit into it.",
    )
    quota_fair_share: Literal["floor", "hamilton", "waterfill"] = Field(
        "floor", description="How unused guarantees are shared out among elastic quotas."
    )
    quota_strict_core: bool = Field(
        default=False, description="Elastic quotas limit cpu and memory even unsaid, as in nos."
    )
    quota_preemption_rules: Literal["stable", "nos"] = Field(
        "stable",
        description="Whom elastic quotas evict: nos' rules, or those with three more that keep "
        "pods from evicting each other for ever.",
    )
    quota_min_runtime: Duration = Field(
        0.0, description="How long a pod may run before it can be evicted for another quota."
    )
    quota_gpu_memory_gb: Annotated[int, Field(ge=0)] = Field(
        32, description="GB of gpu-memory of a whole GPU that is not ours to hand out."
    )
    preemption_scope: Literal["cluster", "node"] = Field(
        "cluster",
        description="Where elastic quotas look for victims: also where only quota is freed, or "
        "on one node alone.",
    )
    priority_preemption: bool = Field(
        default=True, description="Evict pods of lower priority for one that then has devices."
    )
    preemption_hold: Positive = Field(
        60.0, description="How long what was freed by evictions waits for its pod."
    )
    device_config_file: Annotated[Path | None, LIVE] = Field(
        None, description="The device configuration: a section per vendor, in HAMi's format."
    )
    devices: Annotated[dict[str, Any], LIVE] = Field(
        default_factory=dict,
        description="The device configuration itself, in the file; sections of "
        "device-config-file replace those of the same name.",
    )
    profiles: Path | None = Field(
        None,
        description="A folder, such as a mounted ConfigMap, with vendors that are only data: a "
        "YAML profile each. Read at start.",
    )
    node_label_selector: str = Field(
        "", description="Only nodes with these labels (k=v,k=v) have devices for us."
    )
    reservation_ttl: Annotated[Positive, LIVE] = Field(
        300.0, description="How long devices are kept for a pod between filter and bind."
    )
    bind_timeout: Positive = Field(
        5.0, description="How long a binding request may take; also the leader's safety margin."
    )
    node_lock_timeout: Annotated[
        Positive, Setting(live=True, environment=("HAMI_NODELOCK_EXPIRE",))
    ] = Field(300.0, description="When another one's lock on a node has expired.")
    node_lock_retry_timeout: Annotated[Duration, LIVE] = Field(
        28.0, description="How long the bind of a gang's pod waits for the node's lock; 0: not."
    )

    # Leadership.
    leader_elect: bool = Field(
        default=False, description="HAMi's spelling of --leader-mode=colocated."
    )
    leader_mode: Literal["none", "colocated", "own"] | None = Field(
        None,
        description="Lead always, when the kube-scheduler beside us leads, or by a Lease of our "
        "own.",
    )
    leader_elect_resource_name: str = Field(
        "", description=f"The Lease; {_LEASE_OF_KUBE_SCHEDULER} or {_OWN_LEASE} by default."
    )
    leader_elect_resource_namespace: str = Field(
        "", description="Its namespace; by default kube-system, or the pod's for our own Lease."
    )
    leader_elect_lease_duration: Positive = Field(
        15.0, description="How long our own Lease holds without being renewed."
    )
    leader_elect_renew_deadline: Positive = Field(
        10.0, description="How long a leader tries to renew it before it gives up."
    )
    leader_elect_retry_period: Positive = Field(2.0, description="The time between two tries.")
    identity: str = Field(
        "",
        description="Who we are in our own Lease; by default the pod's or the host's name and a "
        "random part.",
    )
    hostname: str = Field(
        "", description="What kube-scheduler's holder identity begins with; by default the host's."
    )

    # Signatures.
    signing_key_file: Path | None = Field(
        None, description="Ed25519 keys that sign allocations, PEM; the first one signs."
    )
    signing_key_secret: Annotated[str, AfterValidator(is_object_name)] = Field(
        "", description="The same in a Secret, [NAMESPACE/]NAME, which is made when it is missing."
    )
    public_keys: Annotated[str, AfterValidator(is_object_name)] = Field(
        "hami-signing-keys",
        description="The ConfigMap, [NAMESPACE/]NAME, in which nodes find the public keys; empty: "
        "none.",
    )

    # Observation.
    legacy_metrics: bool = Field(default=False, description="HAMi's older metric names as well.")

    _instance: str = PrivateAttr(default_factory=lambda: secrets.token_hex(4))

    @model_validator(mode="before")
    @classmethod
    def _nowhere(cls, values: Any) -> Any:
        # controller-runtime's way to switch metrics off.
        if isinstance(values, dict) and str(values.get("metrics_bind_address")) == "0":
            return values | {"metrics_bind_address": ""}
        return values

    @model_validator(mode="after")
    def _rules(self) -> Self:
        if problem := next(self._problems(), None):
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        """What is wrong with settings together; the first problem is reported."""
        if self.client_ca_file is not None and not self.has_certificate:
            yield f"client-ca-file needs TLS: {_GIVE}"
        if self.extender_tls and not self.has_certificate:
            yield f"extender-tls needs a certificate: {_GIVE}"
        yield from self.certificate_problems()
        if self.extender_tls is False and self.client_ca_file is not None:
            yield "client-ca-file needs TLS on the extender's listener: leave extender-tls out"
        yield from self._listener_problems()
        if self.signing_key_file is not None and self.signing_key_secret:
            yield "signing-key-file and signing-key-secret are both given; leave one out"
        if self.leader_elect and self.leader_mode == "none":
            yield "leader-elect contradicts leader-mode none; leave one out"
        yield from self._time_problems()

    def _time_problems(self) -> Iterator[str]:
        lease, deadline = self.leader_elect_lease_duration, self.leader_elect_renew_deadline
        retry, bind = self.leader_elect_retry_period, self.bind_timeout
        if not retry < deadline < lease:
            yield (
                "leader-elect-retry-period, -renew-deadline and -lease-duration must rise, as in "
                "2s, 10s, 15s"
            )
        if self.election != "none" and bind >= lease:
            yield (
                f"bind-timeout {go_duration(bind)} leaves no time in a lease of "
                f"{go_duration(lease)}; shorten it or lengthen leader-elect-lease-duration"
            )
        # What one renewal lasts, and what two of them take at the longest.
        lasts, two = min(deadline, lease - bind), 2 * retry * RETRY_JITTER
        if self.election == "own" and lasts <= two:
            yield (
                f"a renewed lease is led under for {go_duration(lasts)} (leader-elect-renew-"
                f"deadline, or -lease-duration less bind-timeout), which two tries to renew it, "
                f"{go_duration(two)}, do not fit into; shorten leader-elect-retry-period or "
                f"bind-timeout, or lengthen the others"
            )
        if self.shutdown_grace < bind:
            yield (
                f"shutdown-grace {go_duration(self.shutdown_grace)} is shorter than bind-timeout "
                f"{go_duration(bind)}, so that a bind under way could outlive us; lengthen it or "
                f"shorten bind-timeout"
            )

    def _listener_problems(self) -> Iterator[str]:
        if self.http_bind:
            for field in ("extender_bind", "public_bind"):
                if getattr(self, field) != type(self).model_fields[field].default:
                    yield (
                        f"http-bind is one listener instead of two, and "
                        f"{field.replace('_', '-')} is given as well; leave http-bind out"
                    )
            if self.client_ca_file is not None:
                yield (
                    "http-bind serves the webhook too, and the API server shows no client "
                    "certificate; give extender-bind and public-bind instead"
                )
            if not parse_bind(self.http_bind).local and not self.insecure_extender:
                yield (
                    f"http-bind {self.http_bind} would let anyone who reaches the port call "
                    f"/filter and /bind; give extender-bind 127.0.0.1:8080 (kube-scheduler's "
                    f"urlPrefix) and public-bind {self.http_bind} (the webhook's) instead, or "
                    f"accept it with insecure-extender"
                )
            return
        if not self.extender_bind or not self.public_bind:
            empty = "extender-bind" if not self.extender_bind else "public-bind"
            yield f"{empty} is empty; write HOST:PORT or leave it out"
            return
        exposed = not parse_bind(self.extender_bind).local and self.client_ca_file is None
        if exposed and not self.insecure_extender:
            yield (
                f"extender-bind {self.extender_bind} would let anyone who reaches the port call "
                f"/filter and /bind; bind it to 127.0.0.1, ask callers for certificates with "
                f"client-ca-file, or accept it with insecure-extender"
            )

    # What the parts of the service take.

    @property
    def policy(self) -> SchedulingPolicy:
        """The defaults for pods that choose no policy."""
        return SchedulingPolicy(
            node=NodePolicy(self.node_scheduler_policy),
            device=device_policy(self.gpu_scheduler_policy),
        )

    @property
    def admission(self) -> AdmissionSettings:
        return AdmissionSettings(
            scheduler_name=self.scheduler_name,
            take_default_scheduler=self.force_overwrite_default_scheduler,
            quota=self.quota_admission,
            policy=self.policy,
        )

    @property
    def elastic(self) -> Options:
        """The options of elastic quotas and preemption."""
        stable = self.quota_preemption_rules == "stable"
        return Options(
            pool=self.quota_pool,
            labels=self.quota_labels,
            fair_share=self.quota_fair_share,
            strict_core=self.quota_strict_core,
            rule_f1=stable,
            rule_f2=stable,
            rule_p1=stable,
            min_runtime=self.quota_min_runtime,
            scope=self.preemption_scope,
            priority=self.priority_preemption,
            gpu_memory_gb=self.quota_gpu_memory_gb,
        )

    @property
    def election(self) -> Literal["none", "colocated", "own"]:
        """How the leader is found; counts HAMi's flag too."""
        return self.leader_mode or ("colocated" if self.leader_elect else "none")

    @property
    def lease(self) -> tuple[str, str]:
        """Namespace and name of the Lease that :attr:`election` is about."""
        own = self.election == "own"
        namespace = self.leader_elect_resource_namespace or (
            (self.pod_namespace if own else "") or SYSTEM_NAMESPACE
        )
        name = self.leader_elect_resource_name or (_OWN_LEASE if own else _LEASE_OF_KUBE_SCHEDULER)
        return namespace, name

    @property
    def host(self) -> str:
        return self.hostname or socket.gethostname()

    @property
    def holder(self) -> str:
        """Our identity in our own Lease, unique among replicas.

        By default each process has another one: a restarted container must not take its earlier
        process's lease for its own.
        """
        return self.identity or f"{self.pod_name or self.host}_{self._instance}"

    @property
    def signing_secret(self) -> tuple[str, str] | None:
        """Namespace and name of the Secret with the signing keys, if a Secret has them."""
        return self.object_named(self.signing_key_secret) if self.signing_key_secret else None

    @property
    def public_key_map(self) -> tuple[str, str] | None:
        """Namespace and name of the nodes' ConfigMap, if there are keys to publish."""
        keys = self.signing_key_file is not None or self.signing_key_secret
        return self.object_named(self.public_keys) if keys and self.public_keys else None

    @property
    def extender_speaks_tls(self) -> bool:
        if self.extender_tls is not None:
            return self.extender_tls
        if not self.has_certificate:
            return False
        return self.client_ca_file is not None or not self.bind("extender_bind").local

    def bind(self, field: str) -> Bind:
        """The address in this field, which must not be empty."""
        return parse_bind(getattr(self, field))
