"""The signature of an allocation: what is signed, and how the annotation spells it.

The scheduler signs the allocation as the vendors decode and restore it, and not the annotations'
text, because HAMi's device plugins rewrite that text. Not here: keys and the mathematics
(``hami.signing``).
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from hami.domain.allocations import ContainerAllocation, PodAllocation
from hami.domain.devices import Grant
from hami.domain.errors import Malformed, shortened
from hami.domain.units import PodUid
from hami.wire import keys

VERSION = 1
VALUE_BYTES = 64
"""The length of an Ed25519 signature (RFC 8032, section 5.1.6)."""

MAX_GENERATION = 2**63 - 1

_TEXT = re.compile(
    r"(?P<key_id>[0-9a-f]{8})\.(?P<generation>0|[1-9]\d{0,18})\.(?P<value>[\w-]{86})", re.ASCII
)
_KEY_ID = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """``key_id`` names the key, in 8 hexadecimal digits; ``value`` has 64 bytes.

    ``generation`` grows with every live resize of the pod: a reader that has seen a generation of a
    pod accepts no lower one.
    """

    key_id: str
    generation: int
    value: bytes


def payload(uid: PodUid, allocation: PodAllocation, generation: int) -> bytes:
    """The bytes that are signed: compact JSON in UTF-8, every object's keys sorted.

    ``mem`` is in MiB, ``cores`` in percent of a device. Containers stand in spec order. The grants
    of one container stand in order of their vendors' keys, as they are read from annotations.
    ``cores_limit`` stands only where a container has one.
    """
    document = {
        "v": VERSION,
        "uid": uid,
        "node": allocation.node,
        "generation": generation,
        "containers": [_container(container) for container in allocation.containers],
    }
    return msgspec.json.encode(document, order="sorted")


def _container(container: ContainerAllocation) -> dict[str, Any]:
    document = {
        "name": container.name,
        "kind": container.kind.value,
        "grants": [_grant(grant) for grant in sorted(container.grants, key=lambda g: g.vendor)],
    }
    # Left out where there is none, so that what was signed before there were limits holds.
    return document | {"cores_limit": container.cores_limit} if container.cores_limit else document


def _grant(grant: Grant) -> dict[str, Any]:
    return {
        "vendor": grant.vendor,
        "id": grant.device_id,
        "mem": grant.memory_mib,
        "cores": grant.cores,
        # As values and not as ``Extra.encode`` gives them, so that sets inside are sorted too.
        "extra": {key.name: value for key, value in grant.extra.items()},
    }


def encode_signature(signature: Signature) -> str:
    """``<key id>.<generation>.<base64url without padding>``.

    Raises:
        ValueError: a part that no reader could read back.
    """
    if not _KEY_ID.fullmatch(signature.key_id):
        raise ValueError(f"key id {signature.key_id!r} is not 8 hexadecimal digits")
    if not 0 <= signature.generation <= MAX_GENERATION:
        raise ValueError(f"generation {signature.generation} is not from 0 to {MAX_GENERATION}")
    if len(signature.value) != VALUE_BYTES:
        raise ValueError(f"a signature has {VALUE_BYTES} bytes, not {len(signature.value)}")
    return f"{signature.key_id}.{signature.generation}.{_base64url(signature.value)}"


def decode_signature(text: str) -> Signature | Malformed:
    """Read the annotation's value; only the exact spelling that we write is accepted."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return _malformed(text, "is not <key id>.<generation>.<base64url of 64 bytes>")
    generation = int(match["generation"])
    if generation > MAX_GENERATION:
        return _malformed(text, f"has a generation above {MAX_GENERATION}")
    try:
        value = base64.urlsafe_b64decode(match["value"] + "==")
    except (binascii.Error, ValueError) as error:
        return _malformed(text, f"is not base64url: {error}")
    if len(value) != VALUE_BYTES or _base64url(value) != match["value"]:
        return _malformed(text, "is not the base64url of 64 bytes: its last character is not used")
    return Signature(key_id=match["key_id"], generation=generation, value=value)


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def _malformed(text: str, problem: str) -> Malformed:
    return Malformed(
        annotation=keys.ALLOCATION_SIGNATURE,
        position="",
        text=shortened(text),
        problem=problem,
    )
