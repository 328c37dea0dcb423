"""What an agent, of which every node runs one, must not load: each of these costs megabytes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "numpy": "the scheduler's device table",
    "kubernetes": "kubeconfig files; a pod has a service account",
    "requests": "kubernetes",
    "websocket": "kubernetes",
    "oauthlib": "kubernetes",
    "fastapi": "the scheduler's servers",
    "uvicorn": "the scheduler's servers",
    "prometheus_client": "the scheduler's metrics",
    "hami.scheduler": "the scheduler, its settings too",
    "hami_lab": "simulations",
    "hami_simgpu": "simulations",
}


def loaded_by(program: str, **environment: str) -> set[str]:
    """The modules that are there after this program."""
    result = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"],
        capture_output=True, text=True, timeout=60, check=True, env=environment,
    )  # fmt: skip
    return set(json.loads(result.stdout))


@pytest.mark.parametrize(
    "module",
    [
        "hami.cli.app",
        "hami.cli.commands.device_plugin",
        "hami.node.agent",
        "hami.cli.commands.monitor",
        "hami.monitor.monitor",
        "hami.policy.pods.accounting",
        "hami.policy.pods.admission",
        "hami.kube.client",
        "hami.kube.informer",
        "hami_nvidia",
        "hami_hygon",
    ],
)
def test_an_agent_loads_nothing_that_is_the_schedulers_alone(module):
    assert loaded_by(f"import {module}") & HEAVY.keys() == set()


def test_a_command_without_settings_loads_none():
    program = "from hami.cli import main\nmain._imported()"
    loaded = loaded_by(program)
    assert "hami.cli.app" in loaded
    assert loaded & {"pydantic", "hami.settings", "hami.node", "hami.scheduler"} == set()


IN_A_POD = """
import asyncio, pathlib
from hami.kube.client import KubeClient
from hami.kube.identity.settings import KubeSettings
async def main():
    async with await KubeClient.connect(KubeSettings(service_account=pathlib.Path({folder!r}))) as client:
        assert client.server == "https://[fd00::1]:6443", client.server
asyncio.run(main())
"""


def test_a_pods_own_account_needs_none_of_it(tmp_path, authority):
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_bytes(authority)
    loaded = loaded_by(
        IN_A_POD.format(folder=str(tmp_path)),
        HOME=str(tmp_path),
        KUBERNETES_SERVICE_HOST="fd00::1",
        KUBERNETES_SERVICE_PORT="6443",
    )
    assert "hami.kube.identity.service_account" in loaded
    assert loaded & HEAVY.keys() == set()


@pytest.fixture
def authority() -> bytes:
    """Some CA's certificate, PEM."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def test_the_agents_process_has_no_library_for_coloured_tables():
    program = "from hami.cli import main\nmain._imported()\nimport hami.node.agent"
    assert "rich" not in loaded_by(program)


def test_no_certificates_of_the_system_are_kept_for_callers_that_name_no_others():
    program = """
from hami.cli.imports import import_aiohttp_alone
import_aiohttp_alone()
import os, ssl
from aiohttp.connector import _SSL_CONTEXT_VERIFIED as kept
assert kept.cert_store_stats()["x509"] == 0
assert kept.verify_mode is ssl.CERT_REQUIRED
assert "SSL_CERT_FILE" not in os.environ
"""
    loaded_by(program)
