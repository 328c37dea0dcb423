"""The settings of the listeners' certificate, and the pod that the service runs in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from hami.settings.model import Positive, ServiceSettings, Setting

SYSTEM_NAMESPACE = "kube-system"
_SERVICE = "hami-scheduler"
AUTHORITY_LIVES = 36
"""A CA of a certificate of 30 days lives for three years."""


def is_object_name(text: str) -> str:
    """What a validator checks: ``NAME`` or ``NAMESPACE/NAME``, or nothing."""
    namespace, slash, name = text.rpartition("/")
    if text and (not name or (slash and not namespace) or "/" in namespace):
        raise ValueError("is no object's name; write NAME or NAMESPACE/NAME")
    return text


def _as_names(value: Any) -> Any:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


def _are_webhooks(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        kind, slash, rest = name.partition("/")
        if kind not in ("mutating", "validating") or not slash or not rest or "/" in rest:
            raise ValueError(f"{name!r} is no webhook; write mutating/NAME or validating/NAME")
    return names


def _are_hosts(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_.:*-]+", name):
            raise ValueError(f"{name!r} is no name of a host; write DNS names or IP addresses")
    return names


NameList = Annotated[tuple[str, ...], BeforeValidator(_as_names), Setting(metavar="NAME,...")]


class CertificateSettings(ServiceSettings):
    """A certificate from files, or from a Secret that the service keeps itself; or none."""

    cert_file: Path | None = Field(None, description="The server's certificate chain, PEM.")
    key_file: Path | None = Field(None, description="Its private key, PEM, without a password.")
    certificate_secret: Annotated[str, AfterValidator(is_object_name)] = Field(
        "",
        description="In their place: a Secret, [NAMESPACE/]NAME, in which the leader keeps a CA "
        "and a certificate of its making, and renews them.",
    )
    certificate_names: Annotated[NameList, AfterValidator(_are_hosts)] = Field(
        (),
        description="Names and addresses that this certificate is for; by default those of the "
        f"Service {_SERVICE} beside us.",
    )
    certificate_lifetime: Positive = Field(
        30 * 86400.0,
        description=f"How long it holds, and its CA {AUTHORITY_LIVES} times as long; both are "
        "renewed when a third is left.",
    )
    webhook_configurations: Annotated[NameList, AfterValidator(_are_webhooks)] = Field(
        (),
        description="Whose caBundle the leader keeps at that CA: mutating/NAME,validating/NAME.",
    )
    pod_name: Annotated[str, Setting(environment=("POD_NAME",))] = Field(
        "", description="Our own pod, which carries the role label."
    )
    pod_namespace: Annotated[str, Setting(environment=("POD_NAMESPACE",))] = Field(
        "", description="Our own pod's namespace."
    )

    def certificate_problems(self) -> Iterator[str]:
        """What is wrong with these settings together."""
        if (self.cert_file is None) != (self.key_file is None):
            missing = "key-file" if self.key_file is None else "cert-file"
            yield f"cert-file and key-file come together: {missing} is missing; give both or none"
        if not self.certificate_secret:
            for field in ("certificate_names", "webhook_configurations"):
                if getattr(self, field):
                    yield (
                        f"{field.replace('_', '-')} is about the certificate that we make; give "
                        f"certificate-secret too, or leave it out"
                    )
        elif self.cert_file is not None:
            yield "cert-file and certificate-secret are both given; leave one out"

    def object_named(self, text: str) -> tuple[str, str]:
        """Namespace and name; without a namespace it is our pod's."""
        namespace, _, name = text.rpartition("/")
        return namespace or self.pod_namespace or SYSTEM_NAMESPACE, name

    @property
    def has_certificate(self) -> bool:
        """Whether there is TLS at all: from files, or from a Secret of our making."""
        return self.cert_file is not None or bool(self.certificate_secret)

    @property
    def certificate_home(self) -> tuple[str, str] | None:
        """Namespace and name of the Secret with the certificate that we make, if we do."""
        return self.object_named(self.certificate_secret) if self.certificate_secret else None

    @property
    def certificate_hosts(self) -> tuple[str, ...]:
        """The names and addresses of that certificate."""
        service = f"{_SERVICE}.{self.pod_namespace or SYSTEM_NAMESPACE}"
        names = (f"{service}.svc", service, f"{service}.svc.cluster.local", "localhost")
        return self.certificate_names or names
