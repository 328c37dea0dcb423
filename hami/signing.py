"""Signed allocations: Ed25519 keys, signing, verifying, and where the keys come from.

Only the scheduler has the private key. Nodes get the public ones, so that neither a tenant nor a
compromised node can forge an allocation. During a rotation there are two keys: the first private
key signs, all keys verify.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hami.domain.allocations import PodAllocation
from hami.domain.errors import ConfigError, HamiError, Malformed
from hami.domain.units import PodUid
from hami.wire.signature import Signature, decode_signature, encode_signature, payload

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)
_REMEDY = "write Ed25519 keys as PKCS#8, as `openssl genpkey -algorithm ed25519` does"


@dataclass(frozen=True, slots=True)
class Verified:
    """One of our keys signed exactly this allocation, as this generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class BadSignature:
    """None of our keys signed this; ``problem`` says what is wrong, for people."""

    problem: str


Verdict = Verified | BadSignature


class Signer:
    """A set of keys. Immutable; may be used from several threads at once."""

    def __init__(
        self, private: Ed25519PrivateKey | None, public: Mapping[str, Ed25519PublicKey]
    ) -> None:
        self._private = private
        self._key_id = key_id(private.public_key()) if private is not None else ""
        self._public = MappingProxyType(dict(public))

    @classmethod
    def from_pem(cls, pem: bytes, *, source: str = "the signing key") -> Signer:
        """Read PEM blocks: PKCS#8 private keys and SPKI public keys; other text is ignored.

        Raises:
            ConfigError: no block, or a block that is no Ed25519 key; the text names ``source``.
        """
        private: Ed25519PrivateKey | None = None
        public: dict[str, Ed25519PublicKey] = {}
        blocks = list(_BLOCK.finditer(pem))
        if len(blocks) != pem.count(b"-----BEGIN "):
            raise ConfigError(f"{source}: a PEM block has no end; copy it whole, {_REMEDY}")
        if not blocks:
            raise ConfigError(f"{source} holds no PEM block; {_REMEDY}")
        for number, block in enumerate(blocks, start=1):
            key = _read_block(block, f"{source}: PEM block {number}")
            if isinstance(key, Ed25519PrivateKey):
                private = private or key
                key = key.public_key()
            known = public.setdefault(key_id(key), key)
            if known != key:
                raise ConfigError(
                    f"{source}: two different keys have the id {key_id(key)}; make another key"
                )
        return cls(private, public)

    @classmethod
    def none(cls) -> Signer:
        """A signer without keys: it signs nothing and verifies nothing."""
        return cls(None, {})

    @property
    def signs(self) -> bool:
        """Whether there is a private key."""
        return self._private is not None

    @property
    def verifies(self) -> bool:
        """Whether there is any key."""
        return bool(self._public)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The keys' ids in the order of the PEM blocks; the signing key may be any of them."""
        return tuple(self._public)

    def public_pem(self) -> bytes:
        """Every public key, for nodes; empty without keys."""
        spki = serialization.PublicFormat.SubjectPublicKeyInfo
        return b"".join(
            key.public_bytes(serialization.Encoding.PEM, spki) for key in self._public.values()
        )

    def sign(self, uid: PodUid, allocation: PodAllocation, generation: int) -> str:
        """The annotation's value; empty without a private key.

        Raises:
            ValueError: the generation is negative or has more than 63 bits.
        """
        if self._private is None:
            return ""
        value = self._private.sign(payload(uid, allocation, generation))
        return encode_signature(Signature(key_id=self._key_id, generation=generation, value=value))

    def verify(self, uid: PodUid, allocation: PodAllocation, text: str) -> Verdict:
        """Whether ``text`` is a signature of this allocation of this pod.

        Takes about 110 µs; 40 µs for a signature of our own private key.
        """
        signature = decode_signature(text)
        if isinstance(signature, Malformed):
            return BadSignature(f"{signature.text!r} {signature.problem}")
        key = self._public.get(signature.key_id)
        if key is None:
            known = ", ".join(self._public) or "none"
            return BadSignature(
                f"is of key {signature.key_id}, which is not one of ours ({known}): "
                "it is forged, or the key was removed before its pods were gone"
            )
        signed = payload(uid, allocation, signature.generation)
        if signature.key_id == self._key_id and self._makes(signature.value, signed):
            return Verified(signature.generation)
        try:
            key.verify(signature.value, signed)
        except InvalidSignature:
            return BadSignature(
                "is of another allocation: the pod's annotations were edited after it was bound"
            )
        return Verified(signature.generation)

    def _makes(self, value: bytes, signed: bytes) -> bool:
        """Whether our private key makes this signature; Ed25519 makes one signature for each text.

        Signing takes a third of the time of verifying.
        """
        assert self._private is not None  # It has the key id.
        return hmac.compare_digest(self._private.sign(signed), value)

    def verify_many(self, signed: Iterable[tuple[PodUid, PodAllocation, str]]) -> list[Verdict]:
        """:meth:`verify` for each. Meant for a thread: OpenSSL computes without Python's lock."""
        return [self.verify(uid, allocation, text) for uid, allocation, text in signed]


def key_id(key: Ed25519PublicKey) -> str:
    """The first 8 hexadecimal digits of the SHA-256 of the raw public key."""
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return hashlib.sha256(raw).hexdigest()[:8]


def new_private_pem() -> bytes:
    """A fresh private key: one PEM block, PKCS#8, without a password."""
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _read_block(block: re.Match[bytes], where: str) -> Ed25519PrivateKey | Ed25519PublicKey:
    label = block[1].decode("ascii")
    read: Callable[[bytes], object]
    match label:
        case "PRIVATE KEY":
            read = _read_private
        case "PUBLIC KEY":
            read = serialization.load_pem_public_key
        case _:
            raise ConfigError(f"{where} is marked {label}; {_REMEDY}")
    try:
        key = read(block[0])
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        # The library's text may quote the key, so we do not repeat it.
        raise ConfigError(f"{where} is no readable {label}; {_REMEDY}") from error
    if not isinstance(key, Ed25519PrivateKey | Ed25519PublicKey):
        raise ConfigError(f"{where} is a {label} of another kind than Ed25519; {_REMEDY}")
    return key


def _read_private(pem: bytes) -> object:
    return serialization.load_pem_private_key(pem, password=None)


class KeySource(Protocol):
    """Where PEM blocks come from; ``str()`` names the place.

    ``every``: seconds between two looks.
    """

    @property
    def every(self) -> float: ...

    async def read(self) -> bytes:
        """All PEM blocks."""
        ...


class KeyFile:
    """A file that others write, or a mounted Secret; ``called`` is its name in messages."""

    every = 1.0

    def __init__(self, path: Path, *, called: str = "signing key file") -> None:
        self._path = path
        self._called = called

    def __str__(self) -> str:
        return f"{self._called} {self._path}"

    async def read(self) -> bytes:
        """The file's content.

        Raises:
            ConfigError: the file cannot be read.
        """
        try:
            return await asyncio.to_thread(self._path.read_bytes)
        except OSError as error:
            raise ConfigError(
                f"{self} cannot be read: {error.strerror}; create it or correct the path"
            ) from error


_SOON = 1.0
_NEVER = 3600.0
"""Seconds between two looks when there is no source to look at."""


def _ignore_change() -> None:
    """Do nothing when the keys have changed."""


class SigningKeys:
    """The current signer; after a failed reload the earlier one stays in use.

    Without a source nothing is signed.
    """

    def __init__(self, source: KeySource | None) -> None:
        self._source = source
        self._signer = Signer.none()
        self._pem = b""

    @property
    def signer(self) -> Signer:
        return self._signer

    @property
    def known(self) -> bool:
        """Whether the keys have been read, or there are none to read."""
        return self._source is None or self._signer.verifies

    async def reload(self) -> bool:
        """Read the keys again; whether they have changed.

        Raises:
            ConfigError: the keys cannot be read or used.
            ApiError: the API server did not answer.
        """
        if self._source is None:
            return False
        pem = await self._source.read()
        if pem == self._pem:
            return False
        self._signer = Signer.from_pem(pem, source=str(self._source))
        self._pem = pem
        return True

    async def run(
        self,
        report: Callable[[str], None],
        *,
        changed: Callable[[], None] = _ignore_change,
        every: float | None = None,
    ) -> None:
        """Reload every ``every`` seconds, the source's by default, until cancelled.

        Each problem is reported once. ``changed`` is called after each reload that made a
        difference. Keys that were never read are tried more often.
        """
        pause = every or (self._source.every if self._source else _NEVER)
        told = ""
        while True:
            await asyncio.sleep(pause if self.known else min(pause, _SOON))
            try:
                if await self.reload():
                    changed()
            except HamiError as error:
                if str(error) != told:
                    report(f"{error}; the keys read before stay in use")
                told = str(error)
            else:
                told = ""
