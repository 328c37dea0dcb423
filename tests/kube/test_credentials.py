"""Where the API server is and who we are: files, plugins, service accounts, certificates."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hami.domain.errors import ConfigError
from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.kube.identity import credentials
from hami.kube.identity.settings import KubeSettings
from hami.kube.resources import NODES

from .fake_api import kubeconfig, until


@pytest.fixture(autouse=True)
def no_other_configuration(monkeypatch, tmp_path):
    """The machine's own kubeconfig and proxies must not matter."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def always_look(monkeypatch):
    """Files and expiry times are looked at before every call, not once a minute."""
    monkeypatch.setattr(credentials, "RENEW_EVERY", 0.0)


async def connect(path: Path | None = None, **settings) -> KubeClient:
    return await KubeClient.connect(KubeSettings(kubeconfig=path, **settings))


async def config_error(path: Path | None = None, **settings) -> str:
    with pytest.raises(ConfigError) as caught:
        await connect(path, **settings)
    return str(caught.value)


def sent(api) -> list[str | None]:
    return [a.headers.get("Authorization") for a in api.asked]


# Which configuration.


async def test_the_named_kubeconfig(api, tmp_path):
    api.tokens = {"Bearer secret"}
    async with await connect(kubeconfig(tmp_path, api.url)) as client:
        assert client.server == api.url
        await client.list(NODES)


async def test_the_home_folders_kubeconfig(api, tmp_path):
    folder = tmp_path / "home" / ".kube"
    folder.mkdir()
    kubeconfig(folder, api.url).rename(folder / "config")
    async with await connect() as client:
        assert client.server == api.url


async def test_kubeconfig_of_the_environment_may_be_several_files(api, tmp_path, monkeypatch):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    cluster = kubeconfig(one, api.url)
    merged = json.loads(cluster.read_text())
    users = {"apiVersion": "v1", "kind": "Config", "users": merged.pop("users")}
    cluster.write_text(json.dumps(merged))
    (two / "users").write_text(json.dumps(users))
    listed = os.pathsep.join([str(cluster), str(two / "users"), str(tmp_path / "missing")])
    monkeypatch.setenv("KUBECONFIG", listed)
    async with await connect() as client:
        await client.list(NODES)
    assert sent(api) == ["Bearer secret"]


async def test_another_context_of_the_kubeconfig(api, tmp_path):
    path = kubeconfig(tmp_path, api.url)
    config = json.loads(path.read_text())
    config["users"].append({"name": "you", "user": {"username": "u", "password": "p"}})
    config["contexts"].append({"name": "other", "context": {"cluster": "test", "user": "you"}})
    path.write_text(json.dumps(config))
    async with await connect(path, context="other") as client:
        await client.list(NODES)
    assert sent(api) == ["Basic dTpw"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "kubeconfig", id="empty"),
        pytest.param("{", "kubeconfig", id="no YAML"),
        pytest.param("[]", "kubeconfig", id="a list"),
        pytest.param('{"clusters": []}', "current-context", id="no context"),
        pytest.param('{"current-context": "a", "contexts": []}', "name a", id="unknown context"),
    ],
)
async def test_an_unusable_kubeconfig_is_named(tmp_path, text, message):
    path = tmp_path / "config"
    path.write_text(text)
    said = await config_error(path)
    assert said.startswith(f"kubeconfig {path}: ")
    assert message in said


async def test_a_missing_kubeconfig_names_the_file_and_the_flag(tmp_path):
    assert await config_error(tmp_path / "none") == (
        f"kubeconfig {tmp_path / 'none'}: no such file; check --kubeconfig"
    )


async def test_a_wrong_environment_is_not_passed_over(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert "correct or unset it" in await config_error()


async def test_nothing_at_all_names_every_way():
    said = await config_error()
    assert all(way in said for way in ("--kubeconfig", "$KUBECONFIG", "~/.kube/config", "pod"))


async def test_a_missing_ca_file_is_named(tmp_path):
    path = kubeconfig(tmp_path, "https://127.0.0.1:1")
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
    path.write_text(json.dumps(config))
    assert "ca.crt" in await config_error(path)


# Tokens that change.


async def test_a_tokens_file_is_read_again(api, tmp_path, always_look):
    token = tmp_path / "token"
    token.write_text("one\n")
    async with await connect(kubeconfig(tmp_path, api.url, tokenFile=str(token))) as client:
        await client.list(NODES)
        token.write_text("two\n")
        await client.list(NODES)
        await until_renewed(client, api, "Bearer two")
    assert sent(api)[0] == "Bearer one"


async def until_renewed(client: KubeClient, api, value: str) -> None:
    for _ in range(200):
        await client.list(NODES)
        if sent(api)[-1] == value:
            return
    raise AssertionError(f"{value} was never sent")


async def test_a_refused_token_is_read_again_at_once(api, tmp_path):
    token = tmp_path / "token"
    token.write_text("one")
    api.tokens = {"Bearer two"}
    async with await connect(kubeconfig(tmp_path, api.url, tokenFile=str(token))) as client:
        token.write_text("two")
        await client.list(NODES)
    assert sent(api) == ["Bearer one", "Bearer two"]


async def test_a_token_refused_for_good_says_where_it_is_from(api, tmp_path):
    api.tokens = set()
    path = kubeconfig(tmp_path, api.url)
    async with await connect(path) as client:
        with pytest.raises(ApiError) as caught:
            await client.list(NODES)
    assert str(caught.value) == (
        f"list nodes: 401 Unauthorized: Unauthorized (credentials of kubeconfig {path})"
    )
    assert len(api.asked) == 1


def a_plugin(folder: Path, status: str, code: int = 0) -> dict[str, object]:
    """A credential plugin that counts how often it was asked, in the file ``asked``."""
    script = folder / "plugin.py"
    script.write_text(
        "import json, pathlib, sys\n"
        f"count = pathlib.Path({str(folder / 'asked')!r})\n"
        "n = int(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text(str(n))\n"
        f"print(json.dumps({{'apiVersion': 'client.authentication.k8s.io/v1', "
        f"'kind': 'ExecCredential', 'status': {status}}}))\n"
        f"sys.stderr.write('log in first')\n"
        f"sys.exit({code})\n"
    )
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(script)],
            "interactiveMode": "Never",
        }
    }


async def test_a_credential_plugin_is_asked_once_and_again_when_refused(api, tmp_path):
    user = a_plugin(tmp_path, "{'token': f'token-{n}'}")
    async with await connect(kubeconfig(tmp_path, api.url, **user)) as client:
        await client.list(NODES)
        await client.list(NODES)
        api.tokens = {"Bearer token-2"}
        await client.list(NODES)
    assert sent(api) == ["Bearer token-1"] * 3 + ["Bearer token-2"]


async def test_a_plugin_is_asked_again_when_its_token_is_refused_before_it_expires(api, tmp_path):
    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    user = a_plugin(tmp_path, f"{{'token': f'token-{{n}}', 'expirationTimestamp': {later!r}}}")
    api.tokens = {"Bearer token-2"}
    async with await connect(kubeconfig(tmp_path, api.url, **user)) as client:
        await client.list(NODES)
    assert sent(api) == ["Bearer token-1", "Bearer token-2"]


async def test_a_plugins_token_is_renewed_before_it_expires(api, tmp_path, always_look):
    soon = (datetime.now(UTC) + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    user = a_plugin(tmp_path, f"{{'token': f'token-{{n}}', 'expirationTimestamp': {soon!r}}}")
    async with await connect(kubeconfig(tmp_path, api.url, **user)) as client:
        await client.list(NODES)
        await until(lambda: int((tmp_path / "asked").read_text()) >= 2)
        await until_renewed(client, api, "Bearer token-2")


async def test_a_plugin_that_fails_is_quoted(api, tmp_path):
    user = a_plugin(tmp_path, "{}", code=3)
    said = await config_error(kubeconfig(tmp_path, api.url, **user))
    assert f"the credential plugin {sys.executable!r} failed: " in said
    assert "log in first" in said


async def test_a_plugin_that_is_not_there_is_named(api, tmp_path):
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such"}}
    assert "'/no/such' failed: " in await config_error(kubeconfig(tmp_path, api.url, **user))


async def test_a_plugin_without_credentials_is_named(api, tmp_path):
    said = await config_error(kubeconfig(tmp_path, api.url, **a_plugin(tmp_path, "{}")))
    assert "answered with neither a token nor a certificate" in said


# TLS and service accounts.


class Authority:
    """A CA that signs, all in files under ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.cert = self._sign("ca", self.key, None)
        self.path = self._write("ca.crt", self.cert.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate for ``name`` and 127.0.0.1, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        cert = self._sign(name, key, self.cert)
        return (
            self._write(f"{name}.crt", cert.public_bytes(serialization.Encoding.PEM)),
            self._write(f"{name}.key", pem),
        )

    def _sign(self, name, key, issuer):
        import ipaddress

        now = datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.subject if issuer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(
                x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True
            )
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
                ),
                critical=False,
            )
        )
        return builder.sign(self.key, hashes.SHA256())

    def _write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path


class Secured:
    """A server with TLS that notes tokens and the names of client certificates."""

    def __init__(self) -> None:
        self.url = ""
        self.tokens: list[str | None] = []
        self.peers: list[str | None] = []
        self.refused: set[str] = set()
        self.end_watch = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peercert") if request.transport else None
        self.peers.append(dict(x[0] for x in peer["subject"])["commonName"] if peer else None)
        self.tokens.append(request.headers.get("Authorization"))
        if self.peers[-1] in self.refused:
            return web.json_response({"message": "expired"}, status=401)
        if "watch" in request.query:
            return await self._watch(request)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}
        await response.write(json.dumps(bookmark).encode() + b"\n")
        await self.end_watch.wait()
        return response


@pytest.fixture
def authority(tmp_path):
    folder = tmp_path / "pki"
    folder.mkdir()
    return Authority(folder)


@pytest.fixture
async def secured(authority):
    server = Secured()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.path))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(*authority.issue("server"))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    server.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


def tls_config(folder: Path, url: str, user: dict[str, object], **cluster: object) -> Path:
    path = kubeconfig(folder, url, **user)
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"] |= cluster
    path.write_text(json.dumps(config))
    return path


async def test_a_client_certificate_and_the_clusters_ca(secured, authority, tmp_path):
    cert, key = authority.issue("operator")
    user = {"client-certificate": str(cert), "client-key": str(key)}
    path = tls_config(tmp_path, secured.url, user, **{"certificate-authority": str(authority.path)})
    async with await connect(path) as client:
        await client.list(NODES)
    assert secured.peers == ["operator"]


async def test_a_server_of_an_unknown_ca_is_refused(secured, tmp_path):
    async with await connect(tls_config(tmp_path, secured.url, {"token": "t"})) as client:
        with pytest.raises(ApiError, match="certificate verify failed") as caught:
            await client.list(NODES)
    assert not caught.value.outcome_unknown
    assert secured.tokens == []


async def test_insecure_skip_tls_verify_is_honoured(secured, tmp_path):
    path = tls_config(tmp_path, secured.url, {"token": "t"}, **{"insecure-skip-tls-verify": True})
    async with await connect(path) as client:
        await client.list(NODES)
    assert secured.tokens == ["Bearer t"]


async def test_a_tls_server_name_is_what_the_certificate_must_say(secured, authority, tmp_path):
    for name, matches in (("server", True), ("other", False)):
        path = tls_config(
            tmp_path, secured.url, {"token": "t"},
            **{"certificate-authority": str(authority.path), "tls-server-name": name},
        )  # fmt: skip
        async with await connect(path) as client:
            if matches:
                await client.list(NODES)
            else:
                with pytest.raises(ApiError, match="other"):
                    await client.list(NODES)


async def test_a_plugins_new_certificate_replaces_the_old_one(secured, authority, tmp_path):
    for name in ("first", "second"):
        authority.issue(name)
    stem = f"{str(authority.folder)!r} + '/' + ('first' if n == 1 else 'second')"
    pair = ", ".join(
        f"'client{part}Data': open({stem} + '.{suffix}').read()"
        for part, suffix in (("Certificate", "crt"), ("Key", "key"))
    )
    user = a_plugin(tmp_path, f"{{{pair}}}")
    path = tls_config(tmp_path, secured.url, user, **{"certificate-authority": str(authority.path)})
    async with await connect(path) as client:
        await client.list(NODES)
        secured.refused = {"first"}
        await client.list(NODES)
    assert secured.peers == ["first", "first", "second"]


async def test_connections_that_a_new_certificate_replaces_end_with_their_last_call(
    secured, authority, tmp_path
):
    for n in range(1, 5):
        authority.issue(f"peer{n}")
    stem = f"{str(authority.folder)!r} + f'/peer{{n}}'"
    pair = ", ".join(
        f"'client{part}Data': open({stem} + '.{suffix}').read()"
        for part, suffix in (("Certificate", "crt"), ("Key", "key"))
    )
    user = a_plugin(tmp_path, f"{{{pair}}}")
    path = tls_config(tmp_path, secured.url, user, **{"certificate-authority": str(authority.path)})
    async with await connect(path) as client:
        transport = client._transport
        pools = [transport._pool]
        watch = client.watch(NODES, "1")
        assert (await anext(watch)).resource_version == "7"
        for n in range(1, 4):
            secured.refused.add(f"peer{n}")
            await client.list(NODES)
            pools.append(transport._pool)
        # The first one's watch goes on; of the others only the last is of use.
        assert [pool.session.closed for pool in pools] == [False, True, True, False]
        secured.end_watch.set()
        assert [event async for event in watch] == []
        assert [pool.session.closed for pool in pools] == [True, True, True, False]
    assert secured.peers[-1] == "peer4"
    assert pools[-1].session.closed


@pytest.fixture
def in_a_pod(secured, authority, tmp_path, monkeypatch):
    """The folder and environment that kubelet gives a pod."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("first")
    (folder / "ca.crt").write_bytes(authority.path.read_bytes())
    host, port = secured.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    return folder


async def test_a_pods_own_account_with_a_rotated_token(secured, in_a_pod, always_look):
    async with await connect(service_account=in_a_pod) as client:
        await client.list(NODES)
        (in_a_pod / "token").write_text("second\n")
        for _ in range(200):
            await client.list(NODES)
            if secured.tokens[-1] == "Bearer second":
                break
    assert (secured.tokens[0], secured.tokens[-1]) == ("Bearer first", "Bearer second")


async def test_an_empty_token_during_rotation_keeps_the_old_one(secured, in_a_pod, always_look):
    async with await connect(service_account=in_a_pod) as client:
        (in_a_pod / "token").write_text("")
        for _ in range(5):
            await client.list(NODES)
    assert set(secured.tokens) == {"Bearer first"}


@pytest.mark.parametrize("token", ["two\nlines", "a\0zero", "ümlaut"])
async def test_a_token_that_no_header_can_carry_keeps_the_old_one(tmp_path, token):
    file = tmp_path / "token"
    file.write_text(token)
    path = kubeconfig(tmp_path, "http://127.0.0.1:1", tokenFile=str(file))
    refused = f"kubeconfig {path}: its token is not one line of printable ASCII; write it anew"
    assert await config_error(path) == refused
    file.write_text("first")
    found = await credentials.find_credentials(KubeSettings(kubeconfig=path))
    file.write_text(token)
    assert not await found.renew()
    assert (found.authorization(), found.problem) == ("Bearer first", refused)


async def test_a_pod_without_a_token_is_told_what_to_set(in_a_pod):
    (in_a_pod / "token").unlink()
    assert "automountServiceAccountToken" in await config_error(service_account=in_a_pod)


@pytest.mark.parametrize(
    ("server", "environment", "proxy"),
    [
        ("https://api.example:6443", {"HTTPS_PROXY": "http://proxy:1"}, "http://proxy:1"),
        ("https://api.example:6443", {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "api.example"}, None),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://proxy:1"}, None),
        ("https://api.example:6443", {}, None),
    ],
)  # fmt: skip
async def test_proxies_of_the_environment(tmp_path, monkeypatch, server, environment, proxy):
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    path = kubeconfig(tmp_path, server)
    found = await credentials.find_credentials(KubeSettings(kubeconfig=path))
    assert found.proxy == proxy
