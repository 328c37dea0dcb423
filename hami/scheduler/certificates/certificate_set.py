"""What the Secret holds, and what comes next: a pure step from one set of certificates to another.

A rotation of the CA takes three steps, and a service that is killed between two of them goes on
where it was: the new CA is put in front of those that are trusted; once every webhook trusts it, a
certificate of it is served; once every replica serves that one, the former CA goes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hami.scheduler.certificates.issuing import (
    BACKDATED,
    Pair,
    hosts_of,
    issued,
    key_pem_of,
    new_authority,
    pem_of,
)

CA_CERT, CA_KEY = "ca.crt", "ca.key"
CERT, KEY = "tls.crt", "tls.key"
"""The Secret's entries, named as in a Secret of the type kubernetes.io/tls."""

MOST_TRUSTED = 4
"""CAs at once: more come only of a Secret that somebody breaks again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateTimes:
    """``serving`` and ``authority``: how long a certificate and a CA hold; both are renewed when a
    third of that is left. ``drain``: how long every replica may take to serve a new certificate.
    """

    serving: timedelta
    authority: timedelta
    drain: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSet:
    """``trusted``: the CAs, the newest first, whose key is ``ca_key``. ``serving``: what listeners
    show. What is missing or damaged is empty.
    """

    trusted: tuple[x509.Certificate, ...] = ()
    ca_key: ec.EllipticCurvePrivateKey | None = None
    serving: Pair | None = None

    @property
    def bundle(self) -> bytes:
        """The CAs, PEM: what whoever calls us must trust."""
        return b"".join(map(pem_of, self.trusted))

    @property
    def authority(self) -> Pair | None:
        """The newest CA, if its key is here."""
        if not self.trusted or self.ca_key is None:
            return None
        return Pair(cert=self.trusted[0], key=self.ca_key)

    def data(self) -> dict[str, str]:
        """As the data of a Secret, base64."""
        entries = {
            CA_CERT: self.bundle,
            CA_KEY: key_pem_of(self.ca_key) if self.ca_key else b"",
            CERT: self.serving.cert_pem if self.serving else b"",
            KEY: self.serving.key_pem if self.serving else b"",
        }
        return {name: base64.b64encode(text).decode("ascii") for name, text in entries.items()}


def read_set(data: Mapping[str, str]) -> CertificateSet:
    """What is usable of a Secret's data: each damaged part counts as missing."""
    trusted = _certificates(data.get(CA_CERT, ""))
    ca_key = _key(data.get(CA_KEY, ""))
    if not trusted or ca_key is None or not _belongs(ca_key, trusted[0]):
        ca_key = None
    certs, key = _certificates(data.get(CERT, "")), _key(data.get(KEY, ""))
    serving = None
    if certs and key is not None and _belongs(key, certs[0]):
        serving = Pair(cert=certs[0], key=key)
    return CertificateSet(trusted=trusted, ca_key=ca_key, serving=serving)


def next_set(
    found: CertificateSet,
    *,
    served: CertificateSet,
    names: Sequence[str],
    now: datetime,
    times: CertificateTimes,
    known_everywhere: bool,
) -> CertificateSet:
    """What should be in the Secret; ``found`` itself when nothing is to be done.

    ``served``: what this replica serves and trusts at the moment, for a Secret that was deleted or
    damaged. ``known_everywhere``: whoever calls us trusts each CA of ``found``.
    """
    step = _with_authority(found, served, now, times)
    known = known_everywhere and step is found
    step = _with_certificate(step, served, names, now, times, known_everywhere=known)
    return _without_former(step, now, times)


def _with_authority(
    found: CertificateSet, served: CertificateSet, now: datetime, times: CertificateTimes
) -> CertificateSet:
    """A new CA is trusted before anything else happens; its forerunners' keys are not kept."""
    authority = found.authority
    if authority is not None and _lasts(authority.cert, now, times.authority):
        return found
    new = new_authority(now, times.authority)
    former = [ca for ca in found.trusted or served.trusted if _holds(ca, now)]
    return replace(found, trusted=(new.cert, *former)[:MOST_TRUSTED], ca_key=new.key)


def _with_certificate(
    found: CertificateSet,
    served: CertificateSet,
    names: Sequence[str],
    now: datetime,
    times: CertificateTimes,
    *,
    known_everywhere: bool,
) -> CertificateSet:
    authority = found.authority
    assert authority is not None  # It was made one step before.
    usable = [
        pair
        for pair in (found.serving, served.serving)
        if pair and _holds(pair.cert, now) and any(_vouches(ca, pair.cert) for ca in found.trusted)
    ]
    best = usable[0] if usable else None
    of_newest = any(_vouches(authority.cert, pair.cert) for pair in usable)
    if (
        best
        and best is found.serving
        and _vouches(authority.cert, best.cert)
        and _lasts(best.cert, now, times.serving)
        and set(hosts_of(best.cert)) == set(names)
    ):
        return found
    if best and not of_newest and not known_everywhere:
        return found if best is found.serving else replace(found, serving=best)
    return replace(found, serving=issued(authority, names, now, times.serving))


def _without_former(
    found: CertificateSet, now: datetime, times: CertificateTimes
) -> CertificateSet:
    newest, *former = found.trusted
    assert found.serving is not None
    made = found.serving.cert.not_valid_before_utc + BACKDATED
    if _vouches(newest, found.serving.cert) and now - made >= times.drain:
        former = []
    kept = (newest, *(ca for ca in former if _holds(ca, now)))
    return found if kept == found.trusted else replace(found, trusted=kept)


def _holds(cert: x509.Certificate, now: datetime) -> bool:
    return cert.not_valid_before_utc <= now < cert.not_valid_after_utc


def _lasts(cert: x509.Certificate, now: datetime, lifetime: timedelta) -> bool:
    """Whether it holds and need not be renewed yet."""
    return _holds(cert, now) and cert.not_valid_after_utc - now >= lifetime / 3


def _vouches(ca: x509.Certificate, cert: x509.Certificate) -> bool:
    try:
        cert.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _belongs(key: ec.EllipticCurvePrivateKey, cert: x509.Certificate) -> bool:
    try:
        return key.public_key() == cert.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return False


def _certificates(text: str) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(base64.b64decode(text, validate=True)))
    except (ValueError, binascii.Error):
        return ()


def _key(text: str) -> ec.EllipticCurvePrivateKey | None:
    try:
        pem = base64.b64decode(text, validate=True)
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, binascii.Error):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None
