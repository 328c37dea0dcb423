"""The real scheduler service, ``hami scheduler``, as a process of its own."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hami.hookspecs import PluginConfig
from hami.scheduler.web.tls import self_signed
from hami.vendors.registry import Vendors
from hami.wire import keys
from hami_lab.cluster.problems import NotInTime
from hami_lab.cluster.process import HamiProcess
from hami_lab.kube_scheduler.extender import ExtenderSettings, ManagedResource

READY = 60.0
"""Seconds that the service may take to be ready: starting Python is most of it."""
_LOOK_AGAIN = 0.02
_LOOPBACK = "127.0.0.1"
_FOREIGN = ("HAMI_SCHEDULER_", "HAMI_NODELOCK_", "POD_NAME", "POD_NAMESPACE", "NODE_NAME")
"""Variables of the caller that configure some other scheduler."""


class SchedulerService(HamiProcess):
    """The process; its files are in ``folder``.

    ``extender``, ``public`` and ``metrics`` are its URLs, the same after every restart.
    ``signing_key`` is a file with the key that it signs with, ``verification_keys`` one with the
    public key of that, ``devices`` one with the device configuration.
    """

    def __init__(
        self, folder: Path, *, kubeconfig: Path, config: PluginConfig, flags: Sequence[str]
    ) -> None:
        super().__init__(
            "the scheduler service", log=folder / "scheduler.log", folder=folder, foreign=_FOREIGN
        )
        self.extender = ""
        self.public = ""
        self.metrics = ""
        self.kubeconfig = kubeconfig
        self._addresses = folder / "addresses.json"
        certificate = self_signed([_LOOPBACK, "localhost"])
        files = certificate.write(folder)
        self._ca = certificate.ca_pem
        self.signing_key = folder / "signing-key.pem"
        self.signing_key.touch(mode=0o600)
        private = Ed25519PrivateKey.generate()
        self.signing_key.write_bytes(_private_pem(private))
        self.verification_keys = folder / "verification-keys.pem"
        self.verification_keys.write_bytes(_public_pem(private))
        self.devices = folder / "devices.json"
        self.devices.write_bytes(msgspec.json.encode(dict(config)))
        self._flags = [
            f"--kubeconfig={kubeconfig}",
            f"--cert-file={files.cert}",
            f"--key-file={files.key}",
            f"--signing-key-file={self.signing_key}",
            f"--device-config-file={self.devices}",
            f"--address-file={self._addresses}",
            *flags,
        ]

    @property
    def certificate_authority(self) -> bytes:
        """PEM; vouches for the public listener."""
        return self._ca

    async def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises:
            ServiceDied: it ended instead.
            NotInTime: it takes too long.
        """
        await self.launch()
        await self.ready()

    async def launch(self) -> None:
        """Start the process without waiting for it."""
        self._addresses.unlink(missing_ok=True)
        binds = [
            f"--extender-bind={_host_port(self.extender)}",
            f"--public-bind={_host_port(self.public)}",
            f"--metrics-bind-address={_host_port(self.metrics)}",
        ]
        await self.launch_with(["scheduler", *self._flags, *binds])

    async def ready(self) -> None:
        """Wait until the service answers that its caches are synced; raises as :meth:`start`."""
        try:
            async with asyncio.timeout(READY), aiohttp.ClientSession() as session:
                while not await self._is_ready(session):
                    self.check_alive()
                    await asyncio.sleep(_LOOK_AGAIN)
        except TimeoutError as error:
            raise NotInTime(
                f"the scheduler service was not ready in {READY:.0f} s; its last lines:\n"
                f"{self.last_lines()}"
            ) from error

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        if not self._addresses.exists():
            return False
        addresses = msgspec.json.decode(self._addresses.read_bytes(), type=dict[str, str])
        self.extender, self.public = addresses["extender"], addresses["public"]
        self.metrics = addresses["metrics"]
        try:
            async with session.get(f"{self.extender}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    def webhook_configuration(self) -> Mapping[str, Any]:
        """A MutatingWebhookConfiguration for pods, with our certificate's CA."""
        ignored = {"key": keys.WEBHOOK, "operator": "NotIn", "values": ["ignore"]}
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "hami-scheduler"},
            "webhooks": [
                {
                    "name": "pods.hami.io",
                    "clientConfig": {
                        "url": f"{self.public}/webhook",
                        "caBundle": base64.b64encode(self._ca).decode(),
                    },
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                    "timeoutSeconds": 10,
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "resources": ["pods"],
                            "operations": ["CREATE"],
                        }
                    ],
                    "namespaceSelector": {"matchExpressions": [ignored]},
                    "objectSelector": {"matchExpressions": [ignored]},
                }
            ],
        }


def extender_of(service: SchedulerService, vendors: Vendors) -> ExtenderSettings:
    """The service as a kube-scheduler is configured to call it."""
    managed = {name for vendor in vendors.values() for name in vendor.profile.resources.all_names}
    return ExtenderSettings(
        url=service.extender, managed=tuple(ManagedResource(name=name) for name in sorted(managed))
    )


def _host_port(url: str) -> str:
    """Of a former start, or any free port."""
    return url.rpartition("/")[2] if url else f"{_LOOPBACK}:0"


def _private_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _public_pem(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
