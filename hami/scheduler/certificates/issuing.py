"""A CA, and what it vouches for: X.509 with keys on the curve P-256."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED = timedelta(hours=1)
"""How long before it is made a certificate begins to hold: clocks of others may be behind ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate with its private key."""

    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def cert_pem(self) -> bytes:
        return pem_of(self.cert)

    @property
    def key_pem(self) -> bytes:
        return key_pem_of(self.key)


def new_authority(now: datetime, lifetime: timedelta) -> Pair:
    """A CA of a name that no other has, so that nobody takes one for the other."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _named(f"hami CA {serial:x}")
    cert = (
        _begun(name, name, key.public_key(), serial, (now - BACKDATED, now + lifetime))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(cert=cert, key=key)


def issued(authority: Pair, hosts: Sequence[str], now: datetime, lifetime: timedelta) -> Pair:
    """A certificate for these names and addresses, for servers and clients.

    It ends with its CA at the latest.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    until = min(now + lifetime, authority.cert.not_valid_after_utc)
    vouched = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    cert = (
        _begun(
            _named(hosts[0] if hosts else "hami"),
            authority.cert.subject,
            key.public_key(),
            x509.random_serial_number(),
            (now - BACKDATED, until),
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName([*map(_general_name, hosts)]), critical=False)
        .add_extension(vouched, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Pair(cert=cert, key=key)


def hosts_of(cert: x509.Certificate) -> tuple[str, ...]:
    """The names and addresses that a certificate is for."""
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):  # or they cannot be read
        return ()
    return tuple(str(name.value) for name in names)


def pem_of(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def key_pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS#8, without a password."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    serial: int,
    lifetime: tuple[datetime, datetime],
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(lifetime[0])
        .not_valid_after(lifetime[1])
    )


def _named(text: str) -> x509.Name:
    # X.520 allows 64 characters; the names that count are in the extension.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
