"""TLS for the listeners: certificates that change while connections stay, and self-signed ones."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hami.domain.errors import ConfigError
from hami.settings.watched import WatchedFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """A certificate chain and its key, PEM; with ``client_ca`` callers must show one of its."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(p for p in (self.cert, self.key, self.client_ca) if p is not None)


class LiveTls:
    """A server's TLS context whose files may be replaced; open connections keep what they have.

    Each reading makes a whole new context, which the next handshake uses: a half-written pair or
    an unreadable CA leaves the former one as it was, and a client CA that is taken out of its
    file is not trusted any more.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Reads the files.

        Raises:
            ConfigError: they are missing or do not belong together.
        """
        self._files = files
        self._watched = WatchedFiles(files.paths)
        self._current = server_context(files)
        self.context = server_context(files)
        """For the listener: it hands every connection to the present context."""
        # A ticket would let a client back in without its certificate being looked at again.
        self.context.options |= ssl.OP_NO_TICKET
        self.context.num_tickets = 0
        self.context.sni_callback = self._switch

    def _switch(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:  # noqa: ARG002 -- OpenSSL calls it with the name, sent or not
        connection.context = self._current

    async def run(self, interval: float = 1.0) -> None:
        """Look for changed files until cancelled."""
        while True:
            await asyncio.sleep(interval)
            if await asyncio.to_thread(self._watched.changed):
                self.reload()

    def reload(self) -> None:
        """Take over the files as they are, if they can be used."""
        log = structlog.get_logger()
        try:
            self._current = server_context(self._files)
        except ConfigError as error:
            log.warning("the certificate stays as it was", problem=str(error))
        else:
            log.info("the certificate was read again", file=str(self._files.cert))


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for servers: TLS 1.2 or later, client certificates where a CA is given.

    Raises:
        ConfigError: names the files and what is wrong with them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    pair = f"certificate {files.cert} with key {files.key}"
    try:
        # Without a password of its own OpenSSL would ask for one on the terminal.
        context.load_cert_chain(files.cert, files.key, password="")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{pair}: {_cause(error)}; give a certificate chain and its key, PEM, without password"
        ) from error
    if files.client_ca is not None:
        try:
            context.load_verify_locations(files.client_ca)
        except OSError as error:
            raise ConfigError(
                f"client CA {files.client_ca}: {_cause(error)}; give certificates, PEM"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _cause(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "no usable PEM"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertPair:
    """A certificate with its key, and the CA that vouches for it; all PEM."""

    cert_pem: bytes
    key_pem: bytes
    ca_pem: bytes

    def write(self, directory: Path) -> TlsFiles:
        """As ``tls.crt``, ``tls.key`` (for its owner alone) and ``ca.crt``."""
        cert, key = directory / "tls.crt", directory / "tls.key"
        cert.write_bytes(self.cert_pem)
        key.touch(mode=0o600)
        key.write_bytes(self.key_pem)
        (directory / "ca.crt").write_bytes(self.ca_pem)
        return TlsFiles(cert=cert, key=key)


def self_signed(hosts: Sequence[str], days: int = 365) -> CertPair:
    """A certificate for these names and addresses, from a CA of its own (ECDSA P-256).

    For servers and for clients. The CA's key is thrown away: a new pair comes with a new CA.
    """
    now = datetime.now(UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name, name = _named("hami self-signed CA"), _named(hosts[0] if hosts else "hami")
    lifetime = (now - timedelta(hours=1), now + timedelta(days=days))
    ca = (
        _begun(ca_name, ca_name, ca_key.public_key(), lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(_key_id(ca_key), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    cert = (
        _begun(name, ca_name, key.public_key(), lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName([*map(_general_name, hosts)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    return CertPair(
        cert_pem=cert.public_bytes(serialization.Encoding.PEM),
        key_pem=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        ca_pem=ca.public_bytes(serialization.Encoding.PEM),
    )


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    lifetime: tuple[datetime, datetime],
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(lifetime[0])
        .not_valid_after(lifetime[1])
    )


def _named(text: str) -> x509.Name:
    # X.520 allows 64 characters; the names that count are in the extension.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _key_id(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


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
