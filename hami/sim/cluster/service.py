"""The real scheduler service, ``hami scheduler``, as a process of its own."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hami.domain.errors import shortened
from hami.hookspecs import PluginConfig
from hami.scheduler.tls import self_signed
from hami.sim.cluster.problems import NotInTime, ServiceDied
from hami.wire import keys

READY = 60.0
"""Seconds that the service may take to be ready: starting Python is most of it."""
STOPPED = 15.0
_LOOK_AGAIN = 0.02
_LAST_LINES = 20
_LONGEST_LINE = 1000
_LOOPBACK = "127.0.0.1"
_FOREIGN = ("HAMI_SCHEDULER_", "HAMI_NODELOCK_", "POD_NAME", "POD_NAMESPACE", "NODE_NAME")
"""Variables of the caller that configure some other scheduler."""


class SchedulerService:
    """Starts, kills and restarts the process; its files are in ``folder``.

    ``extender`` and ``public`` are its URLs, the same after every restart.
    """

    def __init__(
        self, folder: Path, *, kubeconfig: Path, config: PluginConfig, flags: Sequence[str]
    ) -> None:
        self.log = folder / "scheduler.log"
        self.extender = ""
        self.public = ""
        self._folder = folder
        self._addresses = folder / "addresses.json"
        certificate = self_signed([_LOOPBACK, "localhost"])
        files = certificate.write(folder)
        self._ca = certificate.ca_pem
        key = folder / "signing-key.pem"
        key.touch(mode=0o600)
        key.write_bytes(_signing_key())
        devices = folder / "devices.json"
        devices.write_bytes(msgspec.json.encode(dict(config)))
        self._flags = [
            f"--kubeconfig={kubeconfig}",
            f"--cert-file={files.cert}",
            f"--key-file={files.key}",
            f"--signing-key-file={key}",
            f"--device-config-file={devices}",
            f"--address-file={self._addresses}",
            "--metrics-bind-address=0",
            *flags,
        ]
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """None when it does not run."""
        return self._process.pid if self._process else None

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
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        # What a killed process leaves behind goes with our folder.
        environment["TMPDIR"] = str(self._folder)
        binds = [
            f"--extender-bind={_host_port(self.extender)}",
            f"--public-bind={_host_port(self.public)}",
        ]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "hami.sim.child",
                str(os.getpid()),
                "scheduler",
                *self._flags,
                *binds,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # A Ctrl-C of the terminal is ours to pass on, in order.
            )

    async def ready(self) -> None:
        """Wait until the service answers that its caches are synced; raises as :meth:`start`."""
        try:
            async with asyncio.timeout(READY), aiohttp.ClientSession() as session:
                while not await self._is_ready(session):
                    self._check_alive()
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
        try:
            async with session.get(f"{self.extender}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    def _check_alive(self) -> None:
        if self._process is not None and self._process.returncode is not None:
            raise self._death(self._process.returncode)

    async def until_death(self) -> ServiceDied:
        """Waits until the process ends; for whoever did not end it."""
        process = self._process
        if process is None:
            return ServiceDied("the scheduler service was not started")
        return self._death(await process.wait())

    def _death(self, code: int) -> ServiceDied:
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        return ServiceDied(
            f"the scheduler service ended with {how}; its last lines:\n{self.last_lines()}"
        )

    async def kill(self) -> None:
        """SIGKILL: nothing is finished, nothing is tidied up."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when that does not help."""
        await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.send_signal(how)
        try:
            async with asyncio.timeout(STOPPED):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def last_lines(self) -> str:
        """The end of its log."""
        if not self.log.exists():
            return ""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            return "\n".join(
                shortened(line.rstrip(), _LONGEST_LINE) for line in deque(log, _LAST_LINES)
            )

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


def _host_port(url: str) -> str:
    """Of a former start, or any free port."""
    return url.rpartition("/")[2] if url else f"{_LOOPBACK}:0"


def _signing_key() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
