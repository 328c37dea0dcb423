"""A certificate authority of a test's own."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Authority:
    """``ca.crt`` in ``folder``, and key pairs that it vouches for."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = named("test authority")
        basic = x509.BasicConstraints(ca=True, path_length=None)
        signed = (
            self._draft(self._name, self._key)
            .add_extension(basic, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *addresses: str) -> tuple[Path, Path]:
        """Certificate and key for a server on these IP addresses or host names, or a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        others: list[x509.GeneralName] = [general(address) for address in addresses]
        draft = self._draft(named(name), key)
        if others:
            draft = draft.add_extension(x509.SubjectAlternativeName(others), critical=False)
        signed = draft.sign(self._key, hashes.SHA256())
        certificate = self.folder / f"{name}.crt"
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return certificate, write_key(self.folder / f"{name}.key", key)

    def _draft(self, subject: x509.Name, key: Key) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def general(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def write_key(path: Path, key: Key) -> Path:
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    path.write_bytes(encoded)
    return path


def service_account_key(path: Path) -> Path:
    return write_key(path, rsa.generate_private_key(public_exponent=65537, key_size=2048))
