"""What the configuration chooses between: where keys are, how a leader is found, what it says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import assert_never

from hami.domain.kubernetes.objects import Pod
from hami.kube.client import KubeClient
from hami.kube.events import EventRecorder
from hami.kube.leases.leadership import AlwaysLeads, Leadership, ObservedLease
from hami.kube.leases.own_lease import LeaseTimes, OwnLease
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.certificates.ca_bundles import CaBundles, NamedConfiguration
from hami.scheduler.certificates.certificate_set import CertificateTimes
from hami.scheduler.certificates.keeper import CertificateKeeper, KeeperSettings
from hami.scheduler.certificates.served_certificate import ServedCertificate
from hami.scheduler.publish.key_secret import KeySecret
from hami.scheduler.publish.public_keys import PublicKeys
from hami.scheduler.publish.roles import RoleLabel
from hami.scheduler.resize.resizer import Resizer, ResizeSettings, Told
from hami.scheduler.settings.certificate_settings import AUTHORITY_LIVES
from hami.scheduler.settings.config import SchedulerConfig
from hami.signing import KeyFile, KeySource, Signer

HEARD, DRAIN, CERTIFICATE_EVERY = 60.0, 3600.0, 5.0
"""Seconds: until every API server has heard of a changed caBundle; until every replica serves a new
certificate; between two looks at the Secret and the webhooks. Less where certificates live short.
"""


def role_label(
    config: SchedulerConfig, client: KubeClient, on_problem: Callable[[str], None]
) -> RoleLabel | None:
    """The label that says who leads; for a service that runs in a pod and knows which."""
    if not (config.pod_name and config.pod_namespace):
        return None
    return RoleLabel(client, config.pod_namespace, config.pod_name, on_problem=on_problem)


def key_source(config: SchedulerConfig, client: KubeClient) -> KeySource | None:
    if config.signing_key_file is not None:
        return KeyFile(config.signing_key_file)
    if config.signing_secret is not None:
        return KeySecret(client, *config.signing_secret)
    return None


def certificate_keeper(
    config: SchedulerConfig,
    client: KubeClient,
    on_problem: Callable[[str], None],
    leading: Callable[[], bool],
) -> CertificateKeeper | None:
    """Who keeps the certificate, where the service makes it itself."""
    if config.certificate_home is None:
        return None
    namespace, name = config.certificate_home
    lives = config.certificate_lifetime
    webhooks = [
        NamedConfiguration("mutating" if kind == "mutating" else "validating", rest)
        for kind, _, rest in (text.partition("/") for text in config.webhook_configurations)
    ]
    # Whoever copies the CA by hand needs longer than an API server that watches.
    overlap = min(HEARD, lives / 10) if webhooks else lives / 4
    return CertificateKeeper(
        client,
        KeeperSettings(
            namespace=namespace,
            name=name,
            names=config.certificate_hosts,
            times=CertificateTimes(
                serving=timedelta(seconds=lives),
                authority=timedelta(seconds=lives * AUTHORITY_LIVES),
                drain=timedelta(seconds=min(DRAIN, lives / 3)),
            ),
            overlap=overlap,
            every=min(CERTIFICATE_EVERY, lives / 30),
        ),
        ServedCertificate(),
        CaBundles(client, webhooks, on_problem),
        leading=leading,
        on_problem=on_problem,
    )


def lease_of(
    config: SchedulerConfig, client: KubeClient, on_problem: Callable[[str], None]
) -> AlwaysLeads | ObservedLease | OwnLease:
    namespace, name = config.lease
    match config.election:
        case "none":
            return AlwaysLeads()
        case "colocated":
            return ObservedLease(
                client,
                namespace,
                name,
                config.host,
                margin=config.bind_timeout,
                on_problem=on_problem,
            )
        case "own":
            times = LeaseTimes(
                duration=config.leader_elect_lease_duration,
                renew_deadline=config.leader_elect_renew_deadline,
                retry=config.leader_elect_retry_period,
                margin=config.bind_timeout,
            )
            return OwnLease(
                client, namespace, name, config.holder, times=times, on_problem=on_problem
            )
        case _:
            assert_never(config.election)


def public_keys(
    config: SchedulerConfig,
    client: KubeClient,
    on_problem: Callable[[str], None],
    signer: Callable[[], Signer],
    leading: Callable[[], bool],
) -> PublicKeys | None:
    """Where nodes find the public keys, for a service that has keys and was told where."""
    if config.public_key_map is None:
        return None
    return PublicKeys(
        client, *config.public_key_map, signer=signer, leading=leading, on_problem=on_problem
    )


def resizer_of(
    state: ClusterState,
    client: KubeClient,
    leadership: Leadership,
    events: EventRecorder,
    signer: Callable[[], Signer],
    timeout: Callable[[], float],
) -> Resizer:
    """Who carries resizes out, and tells of them on the pod; ``timeout`` of a write, in seconds."""

    def tell(pod: Pod, told: Told) -> None:
        events.record(pod, told.reason, told.text, warning=told.warning)

    return Resizer(
        state,
        client,
        leadership,
        settings=lambda: ResizeSettings(timeout=timeout()),
        signer=signer,
        told=tell,
    )
