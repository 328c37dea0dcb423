"""Certificates: who is let in, and what happens when the files change under open connections."""

from __future__ import annotations

import ssl
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from hami.domain.errors import ConfigError
from hami.scheduler.web.server import Listener, serving
from hami.scheduler.web.tls import CertPair, LiveTls, TlsFiles, self_signed, server_context

from .http_builders import HERE, an_extender_app, connected, request, response, served

HOSTS = ["localhost", "127.0.0.1"]


def trusting(*authorities: CertPair) -> ssl.SSLContext:
    """A client that believes these alone."""
    texts = "".join(pair.ca_pem.decode() for pair in authorities)
    return ssl.create_default_context(cadata=texts)


def showing(context: ssl.SSLContext, pair: CertPair, directory: Path) -> ssl.SSLContext:
    """The client with a certificate of its own."""
    directory.mkdir()
    files = pair.write(directory)
    context.load_cert_chain(files.cert, files.key)
    return context


async def health(url: str, context: ssl.SSLContext) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/healthz", ssl=context) as answer,
    ):
        await answer.read()
        return answer.status


@pytest.mark.parametrize("host", HOSTS)
async def test_a_self_signed_certificate_is_valid_for_each_of_its_names(tmp_path, host):
    pair = self_signed(HOSTS)
    async with served(an_extender_app(), tls=pair.write(tmp_path)) as url:
        assert await health(url.replace("127.0.0.1", host), trusting(pair)) == 200


async def test_a_self_signed_certificate_is_valid_for_nothing_else(tmp_path):
    pair = self_signed(["example.org"])
    async with served(an_extender_app(), tls=pair.write(tmp_path)) as url:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await health(url, trusting(pair))


def test_a_self_signed_certificate_lasts_as_long_as_it_was_told(tmp_path):
    cert = x509.load_pem_x509_certificate(self_signed(HOSTS, days=3).cert_pem)
    assert (cert.not_valid_after_utc - cert.not_valid_before_utc).days == 3
    assert (self_signed(HOSTS).write(tmp_path).key.stat().st_mode & 0o777) == 0o600


async def test_old_versions_of_tls_are_refused(tmp_path):
    pair = self_signed(HOSTS)
    context = trusting(pair)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with served(an_extender_app(), tls=pair.write(tmp_path)) as url:
        with pytest.raises(aiohttp.ClientConnectorError):
            await health(url, context)


# Client certificates.


async def test_with_a_client_ca_only_its_certificates_are_let_in(tmp_path):
    server, client, stranger = self_signed(HOSTS), self_signed(["kube"]), self_signed(["x"])
    files = server.write(tmp_path)
    (tmp_path / "clients.crt").write_bytes(client.ca_pem)
    tls = TlsFiles(cert=files.cert, key=files.key, client_ca=tmp_path / "clients.crt")
    async with served(an_extender_app(), tls=tls) as url:
        known = showing(trusting(server), client, tmp_path / "known")
        assert await health(url, known) == 200
        for context in (trusting(server), showing(trusting(server), stranger, tmp_path / "other")):
            with pytest.raises((aiohttp.ClientError, ConnectionError)):
                await health(url, context)


# Rotation.


@pytest.fixture
def quick(monkeypatch):
    """Files are looked at often."""
    run = LiveTls.run
    monkeypatch.setattr(LiveTls, "run", lambda self: run(self, 0.02))


async def eventually(url: str, context: ssl.SSLContext) -> int:
    """The answer, once the certificate is the client's."""
    for _ in range(1000):
        try:
            return await health(url, context)
        except (aiohttp.ClientError, ConnectionError):
            pass
    return await health(url, context)


@pytest.mark.usefixtures("quick")
async def test_new_connections_get_the_new_certificate_and_open_ones_stay(tmp_path):
    old, new = self_signed(HOSTS), self_signed(HOSTS)
    async with served(an_extender_app(), tls=old.write(tmp_path)) as url:
        async with connected(url, ssl=trusting(old), server_hostname="localhost") as (read, write):
            write.write(request("/bind", b"{}"))
            assert (await response(read))[0] == 200
            new.write(tmp_path)
            assert await eventually(url, trusting(new)) == 200
            write.write(request("/bind", b"{}"))
            assert (await response(read))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await health(url, trusting(old))


@pytest.mark.usefixtures("quick")
async def test_a_swapped_symbolic_link_is_a_change_as_kubernetes_makes_it(tmp_path):
    old, new = self_signed(HOSTS), self_signed(HOSTS)
    for name, pair in (("one", old), ("two", new)):
        (tmp_path / name).mkdir()
        pair.write(tmp_path / name)
    data = tmp_path / "data"
    data.symlink_to("one")
    tls = TlsFiles(cert=data / "tls.crt", key=data / "tls.key")
    async with served(an_extender_app(), tls=tls) as url:
        assert await health(url, trusting(old)) == 200
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").replace(data)
        assert await eventually(url, trusting(new)) == 200


@pytest.mark.usefixtures("quick")
async def test_a_client_ca_that_is_taken_out_is_not_trusted_any_more(tmp_path):
    server, leaving, coming = self_signed(HOSTS), self_signed(["a"]), self_signed(["b"])
    files = server.write(tmp_path)
    authorities = tmp_path / "clients.crt"
    authorities.write_bytes(leaving.ca_pem)
    tls = TlsFiles(cert=files.cert, key=files.key, client_ca=authorities)
    async with served(an_extender_app(), tls=tls) as url:
        old = showing(trusting(server), leaving, tmp_path / "leaving")
        new = showing(trusting(server), coming, tmp_path / "coming")
        assert await health(url, old) == 200
        authorities.write_bytes(coming.ca_pem)
        assert await eventually(url, new) == 200
        # The same client context: it would resume its session if it had been given a ticket.
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await health(url, old)


BROKEN = {
    "a key of another pair": lambda d, new: (d / "tls.key").write_bytes(new.key_pem),
    "half a certificate": lambda d, new: (d / "tls.crt").write_bytes(new.cert_pem[:200]),
    "an empty key": lambda d, new: (d / "tls.key").write_bytes(b""),
    "no file": lambda d, new: (d / "tls.crt").unlink(),
}


@pytest.mark.parametrize("breakage", BROKEN)
async def test_a_pair_that_is_not_whole_is_kept_out_until_it_is(tmp_path, logged, breakage):
    old, new = self_signed(HOSTS), self_signed(HOSTS)
    live = LiveTls(old.write(tmp_path))
    BROKEN[breakage](tmp_path, new)
    live.reload()
    before = live._current
    assert [(e["log_level"], e["event"]) for e in logged] == [
        ("warning", "the certificate stays as it was")
    ]
    assert str(tmp_path / "tls.crt") in logged[0]["problem"]
    new.write(tmp_path)
    live.reload()
    assert live._current is not before
    assert logged[-1]["event"] == "the certificate was read again"


# Wrong files.


def with_password(directory: Path) -> TlsFiles:
    pair = self_signed(HOSTS)
    key = serialization.load_pem_private_key(pair.key_pem, None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    return CertPair(cert_pem=pair.cert_pem, key_pem=locked, ca_pem=pair.ca_pem).write(directory)


def test_a_key_with_a_password_is_refused_and_not_asked_for(tmp_path):
    with pytest.raises(ConfigError, match=r"tls.key: .*; give a .* PEM, without password"):
        server_context(with_password(tmp_path))


def test_a_missing_client_ca_is_named(tmp_path):
    files = self_signed(HOSTS).write(tmp_path)
    tls = TlsFiles(cert=files.cert, key=files.key, client_ca=tmp_path / "gone.crt")
    with pytest.raises(ConfigError, match=r"client CA .*gone.crt: No such file or directory; give"):
        server_context(tls)


async def test_a_certificate_that_cannot_be_used_serves_nothing(tmp_path):
    tls = TlsFiles(cert=tmp_path / "a", key=tmp_path / "b")
    with pytest.raises(ConfigError, match="No such file"):
        async with serving([Listener(name="it", bind=HERE, app=an_extender_app(), tls=tls)]):
            raise AssertionError("it served")
