"""Ed25519 keys: signing, verifying, rotation, and the places keys come from."""

from __future__ import annotations

import asyncio
import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from msgspec.structs import replace

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.errors import ConfigError
from hami.kube.errors import ApiError
from hami.kube.resources import Metadata, Secret
from hami.scheduler.publish.key_secret import KeySecret
from hami.signing import BadSignature, KeyFile, Signer, SigningKeys, Verified, new_private_pem

ALLOCATION = PodAllocation(
    node="n1",
    containers=(
        ContainerAllocation(
            name="c", kind=ContainerKind.APP,
            grants=(Grant(device_id="d0", vendor="ACME", memory_mib=3000),),
        ),
    ),
)  # fmt: skip
ELSEWHERE = replace(ALLOCATION, node="n2")

# RFC 8032, section 7.1, TEST 1: a key that is no secret.
RFC_SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")


def pem_of(key, *, encryption=None) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        encryption or serialization.NoEncryption(),
    )


GOLDEN = (
    "21fe31df.1."
    "Y4aREDfIM-YgqyBw5VN9KzM7nNzNKmhe1enf5hnHndO-IYwTHlIm1BuIdFrtLC3VGCeqe4cwjgVsZ8QTuDb1Bg"
)
RFC_PEM = pem_of(ed25519.Ed25519PrivateKey.from_private_bytes(RFC_SEED))


@pytest.fixture
def pem() -> bytes:
    return new_private_pem()


@pytest.fixture
def signer(pem) -> Signer:
    return Signer.from_pem(pem)


def test_the_annotation_of_a_known_key_golden():
    """Ed25519 signs the same bytes alike everywhere; the key's id is computed from its SHA-256."""
    assert Signer.from_pem(RFC_PEM).sign("u1", ALLOCATION, 1) == GOLDEN


def test_what_was_signed_is_verified_with_its_generation(signer):
    assert signer.verify("u1", ALLOCATION, signer.sign("u1", ALLOCATION, 3)) == Verified(3)


@pytest.mark.parametrize(
    ("uid", "allocation"),
    [
        pytest.param("u2", ALLOCATION, id="another pod"),
        pytest.param("u1", ELSEWHERE, id="another node"),
    ],
)
def test_a_signature_of_something_else_is_bad(signer, uid, allocation):
    verdict = signer.verify(uid, allocation, signer.sign("u1", ALLOCATION, 1))
    assert isinstance(verdict, BadSignature)
    assert "another allocation" in verdict.problem


def test_a_generation_cannot_be_raised_by_hand(signer):
    key, _, value = signer.sign("u1", ALLOCATION, 1).split(".")
    assert isinstance(signer.verify("u1", ALLOCATION, f"{key}.2.{value}"), BadSignature)


def test_a_stranger_key_is_named(signer):
    stranger = Signer.from_pem(new_private_pem())
    verdict = signer.verify("u1", ALLOCATION, stranger.sign("u1", ALLOCATION, 1))
    assert isinstance(verdict, BadSignature)
    assert f"key {stranger.key_ids[0]}, which is not one of ours" in verdict.problem


def test_a_stranger_that_uses_our_key_id_is_bad(signer):
    forged = Signer.from_pem(new_private_pem()).sign("u1", ALLOCATION, 1)
    text = ".".join([signer.key_ids[0], *forged.split(".")[1:]])
    assert isinstance(signer.verify("u1", ALLOCATION, text), BadSignature)


def test_a_malformed_signature_is_bad(signer):
    assert "'junk' is not" in signer.verify("u1", ALLOCATION, "junk").problem


def test_many_are_verified_in_order(signer):
    good = signer.sign("u1", ALLOCATION, 1)
    verdicts = signer.verify_many([("u1", ALLOCATION, good), ("u1", ELSEWHERE, good)])
    assert verdicts[0] == Verified(1)
    assert isinstance(verdicts[1], BadSignature)


# Keys.


def test_during_a_rotation_the_first_private_key_signs_and_all_verify(pem):
    older, newer = Signer.from_pem(pem), new_private_pem()
    both = Signer.from_pem(newer + pem)
    assert both.verify("u1", ALLOCATION, older.sign("u1", ALLOCATION, 1)) == Verified(1)
    text = both.sign("u1", ALLOCATION, 1)
    assert Signer.from_pem(newer).verify("u1", ALLOCATION, text) == Verified(1)


def test_a_public_key_before_the_private_one_does_not_keep_it_from_signing(pem, signer):
    old = Signer.from_pem(new_private_pem())
    both = Signer.from_pem(old.public_pem() + pem)
    assert signer.verify("u1", ALLOCATION, both.sign("u1", ALLOCATION, 1)) == Verified(1)
    assert both.verify("u1", ALLOCATION, old.sign("u1", ALLOCATION, 1)) == Verified(1)


def test_public_keys_verify_and_do_not_sign(signer):
    public = Signer.from_pem(signer.public_pem())
    assert (public.signs, public.verifies) == (False, True)
    assert public.sign("u1", ALLOCATION, 1) == ""
    assert public.verify("u1", ALLOCATION, signer.sign("u1", ALLOCATION, 1)) == Verified(1)


def test_no_private_key_is_given_away(pem, signer):
    assert b"PRIVATE" not in signer.public_pem()
    assert signer.public_pem().count(b"BEGIN PUBLIC KEY") == 1


def test_without_keys_nothing_is_signed():
    none = Signer.none()
    assert (none.signs, none.verifies) == (False, False)
    assert none.sign("u1", ALLOCATION, 1) == ""
    assert none.public_pem() == b""


def test_text_around_the_blocks_is_ignored(pem, signer):
    assert Signer.from_pem(b"# made in May\n" + pem + b"\n# end\n").key_ids == signer.key_ids


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        pytest.param(b"", "holds no PEM block", id="empty"),
        pytest.param(b"secret", "holds no PEM block", id="no PEM"),
        pytest.param(RFC_PEM[:60], "a PEM block has no end", id="cut"),
        pytest.param(RFC_PEM + RFC_PEM[:60], "a PEM block has no end", id="the second is cut"),
        pytest.param(
            pem_of(ec.generate_private_key(ec.SECP256R1())), "PEM block 1 is a PRIVATE KEY of another kind",
            id="another algorithm",
        ),
        pytest.param(
            pem_of(ed25519.Ed25519PrivateKey.generate(), encryption=serialization.BestAvailableEncryption(b"x")),
            "PEM block 1 is marked ENCRYPTED PRIVATE KEY", id="with a password",
        ),
        pytest.param(
            RFC_PEM + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "PEM block 2 is marked CERTIFICATE", id="a certificate",
        ),
        pytest.param(
            b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "PEM block 1 is no readable PRIVATE KEY", id="garbage",
        ),
    ],
)  # fmt: skip
def test_an_unusable_key_is_refused_with_the_remedy(bad, said):
    with pytest.raises(ConfigError, match=r"ed25519") as caught:
        Signer.from_pem(bad, source="key.pem")
    assert said in str(caught.value)
    assert str(caught.value).startswith("key.pem")


# Where they come from.


async def test_a_file_is_read_again_when_it_has_changed(tmp_path, pem):
    path = tmp_path / "key.pem"
    path.write_bytes(pem)
    keys = SigningKeys(KeyFile(path))
    assert not keys.signer.verifies
    assert await keys.reload()
    first = keys.signer
    assert not await keys.reload()
    assert keys.signer is first
    path.write_bytes(new_private_pem())
    assert await keys.reload()
    assert keys.signer.key_ids != first.key_ids


@pytest.mark.parametrize("content", [b"", b"half a k", None])
async def test_a_reload_that_fails_leaves_the_old_keys(tmp_path, pem, content):
    path = tmp_path / "key.pem"
    path.write_bytes(pem)
    keys = SigningKeys(KeyFile(path))
    await keys.reload()
    before = keys.signer
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"key\.pem"):
        await keys.reload()
    assert keys.signer is before


async def test_a_problem_is_reported_once_until_it_is_mended(tmp_path, pem):
    path = tmp_path / "key.pem"
    path.write_bytes(pem)
    keys, reported = SigningKeys(KeyFile(path)), asyncio.Queue()
    await keys.reload()
    first = keys.signer
    path.unlink()
    running = asyncio.create_task(keys.run(reported.put_nowait, every=0.001))
    async with asyncio.timeout(20):
        assert "the keys read before stay in use" in await reported.get()
        await asyncio.sleep(0.05)
        path.write_bytes(new_private_pem())
        while keys.signer is first:
            await asyncio.sleep(0.001)
    running.cancel()
    assert all("no PEM block" in reported.get_nowait() for _ in range(reported.qsize()))


async def test_without_a_source_nothing_is_signed():
    keys = SigningKeys(None)
    assert not await keys.reload()
    assert not keys.signer.verifies


class Secrets:
    """An API server with at most one Secret; ``races`` others come first."""

    def __init__(self, secret: Secret | None = None, *, races: int = 0, forbidden: bool = False):
        self.secret = secret
        self.races = races
        self.forbidden = forbidden
        self.calls: list[str] = []

    def _conflict(self) -> bool:
        if self.forbidden:
            raise ApiError("secrets is forbidden", status=403)
        self.races -= 1
        return self.races >= 0

    async def get(self, resource, name, *, namespace=""):
        self.calls.append("get")
        if self.secret is None:
            raise ApiError("not found", status=404)
        return self.secret

    async def create(self, resource, body, *, namespace=""):
        self.calls.append("create")
        assert (body["metadata"]["namespace"], namespace) == ("hami", "hami")
        if self._conflict():
            self.secret = a_secret(new_private_pem())
            raise ApiError("already exists", status=409)
        self.secret = Secret(metadata=Metadata(name="keys"), data=body["data"])
        return self.secret

    async def patch(self, resource, name, patch, *, namespace=""):
        self.calls.append("patch")
        assert patch["metadata"]["resourceVersion"] == self.secret.metadata.resource_version
        if self._conflict():
            self.secret = a_secret(new_private_pem(), version="8")
            raise ApiError("the object has been modified", status=409)
        self.secret = Secret(metadata=Metadata(name="keys"), data=patch["data"])
        return self.secret


def a_secret(pem: bytes | None, *, version: str = "7") -> Secret:
    data = None if pem is None else {"signing-key.pem": base64.b64encode(pem).decode()}
    return Secret(metadata=Metadata(name="keys", resource_version=version), data=data)


@pytest.mark.parametrize(
    ("secrets", "calls"),
    [
        pytest.param(Secrets(a_secret(RFC_PEM)), ["get"], id="it is there"),
        pytest.param(Secrets(), ["get", "create"], id="it is made"),
        pytest.param(Secrets(a_secret(None)), ["get", "patch"], id="an empty one is filled"),
        pytest.param(Secrets(races=1), ["get", "create", "get"], id="another replica made it"),
        pytest.param(
            Secrets(a_secret(None), races=1),
            ["get", "patch", "get"],
            id="another replica filled it",
        ),
    ],
)
async def test_all_replicas_sign_with_the_key_in_the_secret(secrets, calls):
    keys = SigningKeys(KeySecret(secrets, "hami", "keys"))
    assert await keys.reload()
    assert keys.signer.signs
    assert secrets.calls == calls
    stored = base64.b64decode(secrets.secret.data["signing-key.pem"])
    assert keys.signer.key_ids == Signer.from_pem(stored).key_ids


async def test_a_forbidden_secret_is_a_configuration_error_with_the_remedy():
    with pytest.raises(ConfigError, match=r"Secret hami/keys may not be used.*allow get, create"):
        await SigningKeys(KeySecret(Secrets(forbidden=True), "hami", "keys")).reload()


async def test_a_secret_that_is_no_base64_is_a_configuration_error():
    broken = Secret(metadata=Metadata(name="keys"), data={"signing-key.pem": "%%%"})
    with pytest.raises(ConfigError, match="no base64"):
        await SigningKeys(KeySecret(Secrets(broken), "hami", "keys")).reload()
