"""TLS for the listeners: certificates that change while connections stay, and self-signed ones."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import structlog

from hami.domain.errors import ConfigError
from hami.scheduler.certificates.issuing import issued, new_authority
from hami.scheduler.certificates.served_certificate import ServedCertificate
from hami.settings.watched import WatchedFiles


class TlsOrigin(Protocol):
    """Where a listener's certificate comes from; ``str()`` names it."""

    def context(self) -> ssl.SSLContext:
        """A context with what is there now.

        Raises:
            ConfigError: it cannot be used.
        """
        ...

    def watched(self) -> Callable[[], bool]:
        """Whether something else is there than at the last call; may block for as long as files."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """A certificate chain and its key, PEM; with ``client_ca`` callers must show one of its."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def __str__(self) -> str:
        return str(self.cert)

    def context(self) -> ssl.SSLContext:
        return server_context(self)

    def watched(self) -> Callable[[], bool]:
        return WatchedFiles([p for p in (self.cert, self.key, self.client_ca) if p]).changed


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsServed:
    """The certificate that the service keeps itself; ``client_ca`` as of :class:`TlsFiles`."""

    certificate: ServedCertificate
    client_ca: Path | None = None

    def __str__(self) -> str:
        return "certificate-secret"

    def context(self) -> ssl.SSLContext:
        context = _empty_context(self.client_ca)
        self.certificate.load_into(context)
        return context

    def watched(self) -> Callable[[], bool]:
        files = WatchedFiles([self.client_ca] if self.client_ca else [])
        seen = [self.certificate.now]

        def changed() -> bool:
            former, seen[0] = seen[0], self.certificate.now
            return files.changed() | (former is not seen[0])

        return changed


class LiveTls:
    """A server's TLS context whose origin may change; open connections keep what they have.

    Each reading makes a whole new context, which the next handshake uses: a half-written pair or
    an unreadable CA leaves the former one as it was, and a client CA that is taken out of its
    file is not trusted any more.
    """

    def __init__(self, origin: TlsOrigin) -> None:
        """Reads the origin.

        Raises:
            ConfigError: files are missing or do not belong together.
        """
        self._origin = origin
        self._changed = origin.watched()
        self._current = origin.context()
        self.context = origin.context()
        """For the listener: it hands every connection to the present context."""
        if isinstance(origin, TlsServed):
            origin.certificate.told.append(self.reload)
        # A ticket would let a client back in without its certificate being looked at again.
        self.context.options |= ssl.OP_NO_TICKET
        self.context.num_tickets = 0
        self.context.sni_callback = self._switch

    def _switch(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:  # noqa: ARG002 -- OpenSSL calls it with the name, sent or not
        connection.context = self._current

    async def run(self, interval: float = 1.0) -> None:
        """Look for changes until cancelled."""
        while True:
            await asyncio.sleep(interval)
            if await asyncio.to_thread(self._changed):
                self.reload()

    def reload(self) -> None:
        """Take over what is there, if it can be used."""
        log = structlog.get_logger()
        try:
            self._current = self._origin.context()
        except ConfigError as error:
            log.warning("the certificate stays as it was", problem=str(error))
        else:
            log.info("the certificate was read again", file=str(self._origin))


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for servers: TLS 1.2 or later, client certificates where a CA is given.

    Raises:
        ConfigError: names the files and what is wrong with them.
    """
    context = _empty_context(files.client_ca)
    pair = f"certificate {files.cert} with key {files.key}"
    try:
        # Without a password of its own OpenSSL would ask for one on the terminal.
        context.load_cert_chain(files.cert, files.key, password="")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{pair}: {_cause(error)}; give a certificate chain and its key, PEM, without password"
        ) from error
    return context


def _empty_context(client_ca: Path | None) -> ssl.SSLContext:
    """Without a certificate of its own.

    Raises:
        ConfigError: the client CA cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:
            raise ConfigError(
                f"client CA {client_ca}: {_cause(error)}; give certificates, PEM"
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
    now, lifetime = datetime.now(UTC), timedelta(days=days)
    authority = new_authority(now, lifetime)
    pair = issued(authority, hosts, now, lifetime)
    return CertPair(cert_pem=pair.cert_pem, key_pem=pair.key_pem, ca_pem=authority.cert_pem)
