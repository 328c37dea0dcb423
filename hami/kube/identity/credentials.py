"""Who we are to the API server: kubeconfig or service account, renewed while the process runs.

Tokens from files and plugins are read again every minute, and at once after a 401.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from hami.domain.errors import ConfigError
from hami.kube.identity.access import Access, Reader
from hami.kube.identity.service_account import ServiceAccount, is_pod
from hami.kube.identity.settings import KubeSettings

RENEW_EVERY = 60.0
"""Seconds until files and expiry times are looked at again, as in client-go
(transport/token_source.go)."""


class Credentials:
    """The server's address, its CA, and who we are; renewed while in use."""

    def __init__(self, access: Access, reader: Reader) -> None:
        self.source = reader.source
        self.problem = ""
        self._access = access
        self._reader = reader
        self._looked = time.monotonic()
        self._renewal: asyncio.Task[None] | None = None

    @property
    def server(self) -> str:
        return self._access.server

    @property
    def namespace(self) -> str:
        """The one that is meant where none is named, as the kubeconfig's context says."""
        return self._access.namespace or "default"

    @property
    def server_name(self) -> str | None:
        """The name to check the server's certificate against, where it is not the host's."""
        return self._access.server_name

    @property
    def proxy(self) -> str | None:
        """The proxy of the kubeconfig, else of the environment; never one for this host itself."""
        if self._access.proxy:
            return self._access.proxy
        url = urlsplit(self.server)
        host = url.hostname or ""
        if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
            return None
        return getproxies().get(url.scheme)

    @property
    def certificate(self) -> tuple[str | None, str | None]:
        """The files of the client certificate and its key; a plugin may bring new ones."""
        return self._access.cert_file, self._access.key_file

    def ssl_context(self) -> ssl.SSLContext:
        """A TLS context for the server.

        Raises:
            ConfigError: a CA or client certificate cannot be used.
        """
        try:
            return self._access.ssl_context()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self.source}: its CA or client certificate cannot be used: {error}"
            ) from error

    def authorization(self) -> str | None:
        """The header to send. Starts a search for a newer token in the background when due."""
        if time.monotonic() - self._looked >= RENEW_EVERY:
            self._start_renewal(forced=False)
        return self._access.authorization or None

    async def renew(self) -> bool:
        """Look for new credentials after a refusal; whether there are others to try."""
        before = self.authorization(), self.certificate
        await asyncio.shield(self._start_renewal(forced=True))
        return before != (self.authorization(), self.certificate)

    async def close(self) -> None:
        if self._renewal and not self._renewal.done():
            self._renewal.cancel()
            await asyncio.wait([self._renewal])

    def _start_renewal(self, *, forced: bool) -> asyncio.Task[None]:
        self._looked = time.monotonic()
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew(forced=forced))
        return self._renewal

    async def _renew(self, *, forced: bool) -> None:
        """Read the credentials again. On failure the old ones stay, and ``problem`` says why."""
        try:
            self._access = await _read(self._reader, forced=forced)
        except ConfigError as error:
            self.problem = str(error)
        else:
            self.problem = ""


async def find_credentials(
    settings: KubeSettings, environ: Mapping[str, str] = os.environ
) -> Credentials:
    """Look where client-go looks: the flag, ``$KUBECONFIG``, ``~/.kube/config``, the pod's own.

    Raises:
        ConfigError: nothing is there, or what is there cannot be used.
    """
    reader = _reader(settings, environ)
    return Credentials(await _read(reader, forced=False), reader)


async def _read(reader: Reader, *, forced: bool) -> Access:
    """Raises: ConfigError: there is nothing that can be used."""
    access = await reader.read(forced=forced)
    if not (access.authorization.isascii() and access.authorization.isprintable()):
        raise ConfigError(
            f"{reader.source}: its token is not one line of printable ASCII; write it anew"
        )
    return access


def _reader(settings: KubeSettings, environ: Mapping[str, str]) -> Reader:
    if paths := _kubeconfigs(settings, environ):
        # Imported late: kubernetes.aio takes half a second and 16 MiB, and a pod needs none of it.
        from hami.kube.identity.kubeconfig import Kubeconfig  # noqa: PLC0415

        return Kubeconfig(paths, settings.context)
    if is_pod(environ):
        return ServiceAccount(settings.service_account, environ)
    raise ConfigError(
        "no way to the Kubernetes API: no --kubeconfig, no $KUBECONFIG, no ~/.kube/config, and "
        "this is not a pod; name a kubeconfig"
    )


def _kubeconfigs(settings: KubeSettings, environ: Mapping[str, str]) -> list[Path]:
    if settings.kubeconfig is not None:
        if not settings.kubeconfig.is_file():
            raise ConfigError(f"kubeconfig {settings.kubeconfig}: no such file; check --kubeconfig")
        return [settings.kubeconfig]
    if listed := environ.get("KUBECONFIG"):
        named = [Path(part).expanduser() for part in listed.split(os.pathsep) if part]
        found = [path for path in named if path.is_file()]
        if not found:
            raise ConfigError(f"$KUBECONFIG={listed}: no such file; correct or unset it")
        return found
    home = Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"
    return [home] if home.is_file() else []
