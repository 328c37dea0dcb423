"""Who we are to the API server: kubeconfig or service account, read by ``kubernetes.aio``.

What that library does not do is added here: a credential plugin's failure is told, tokens from
files and plugins are renewed while the process runs, and a 401 renews them at once.
"""

from __future__ import annotations

import asyncio
import binascii
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.incluster_config import InClusterConfigLoader
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from hami.domain.errors import ConfigError
from hami.kube.settings import KubeSettings

RENEW_EVERY = 60.0
"""Seconds after which files and expiry times are looked at again, as client-go does."""

_UNREADABLE = (
    ConfigException,
    yaml.YAMLError,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    binascii.Error,
)
"""What the library's readers raise for a file that is not a kubeconfig."""


class Reader(Protocol):
    """Where credentials come from, to be read again."""

    async def read(self, configuration: Configuration, *, forced: bool) -> None:
        """Bring ``configuration`` up to date; ``forced``: the present credentials were refused."""


class KubeconfigReader:
    def __init__(self, loader: KubeConfigLoader, *, asks_plugin: bool) -> None:
        self._loader = loader
        self._asks_plugin = asks_plugin

    async def read(self, configuration: Configuration, *, forced: bool) -> None:
        # A plugin that names no expiry is asked once, and again when its token is refused.
        expires = hasattr(self._loader, "exec_plugin_expiry")
        if self._asks_plugin and not forced and not expires:
            return
        if forced and expires:
            del self._loader.exec_plugin_expiry
        await self._loader.load_and_set(configuration)  # type: ignore[no-untyped-call]


class ServiceAccountReader:
    def __init__(self, loader: InClusterConfigLoader) -> None:
        self._loader = loader

    async def read(self, configuration: Configuration, *, forced: bool) -> None:  # noqa: ARG002 -- the protocol's
        """The token's file, which kubelet rotates, is small and local: it is simply read."""
        self._loader.load_and_set(configuration)  # type: ignore[no-untyped-call]


class Credentials:
    """The server's address, its CA, and who we are; renewed while in use."""

    def __init__(self, configuration: Configuration, reader: Reader, source: str) -> None:
        self.source = source
        self.problem = ""
        self._configuration = configuration
        self._reader = reader
        self._looked = time.monotonic()
        self._renewal: asyncio.Task[None] | None = None

    @property
    def server(self) -> str:
        return str(self._configuration.host).rstrip("/")

    @property
    def server_name(self) -> str | None:
        """The name to check the server's certificate against, where it is not the host's."""
        return self._configuration.tls_server_name

    @property
    def proxy(self) -> str | None:
        """From the kubeconfig, else from the environment; never for this host itself."""
        if self._configuration.proxy:
            return str(self._configuration.proxy)
        url = urlsplit(self.server)
        host = url.hostname or ""
        if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
            return None
        return getproxies().get(url.scheme)

    @property
    def certificate(self) -> tuple[str | None, str | None]:
        """The client certificate's file and its key's; a plugin may bring new ones."""
        return self._configuration.cert_file, self._configuration.key_file

    def ssl_context(self) -> ssl.SSLContext:
        """Raises ConfigError: a CA or client certificate cannot be used."""
        # Kubernetes' own tools make CAs without the extensions that Python 3.13 began to ask for.
        self._configuration.disable_strict_ssl_verification = True
        try:
            return RESTClientObject(self._configuration).ssl_context
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self.source}: its CA or client certificate cannot be used: {error}"
            ) from error

    def authorization(self) -> str | None:
        """The header to send; when it is time, looks for a newer token in the background."""
        if time.monotonic() - self._looked >= RENEW_EVERY:
            self._start_renewal(forced=False)
        token = self._configuration.api_key.get("BearerToken")
        return token.strip() if token else None

    async def renew(self) -> bool:
        """The server refused us: whether there are other credentials to try now."""
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
        """On failure the old credentials stay, and ``problem`` goes beside the 401 to come."""
        try:
            await self._reader.read(self._configuration, forced=forced)
        except _UNREADABLE as error:
            self.problem = f"{self.source}: {error}"
        else:
            self.problem = ""


async def find_credentials(
    settings: KubeSettings, environ: Mapping[str, str] = os.environ
) -> Credentials:
    """Look where client-go looks: the flag, ``$KUBECONFIG``, ``~/.kube/config``, the pod's own.

    Raises:
        ConfigError: nothing is there, or what is there cannot be used.
    """
    paths = _kubeconfigs(settings, environ)
    if paths:
        return await _from_kubeconfig(paths, settings.context)
    return _from_service_account(settings, environ)


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


async def _from_kubeconfig(paths: list[Path], context: str | None) -> Credentials:
    source = f"kubeconfig {os.pathsep.join(map(str, paths))}"
    configuration = Configuration()
    try:
        merged = KubeConfigMerger(os.pathsep.join(map(str, paths))).config  # type: ignore[no-untyped-call]
        loader = KubeConfigLoader(  # type: ignore[no-untyped-call]
            config_dict=merged, active_context=context, config_base_path=None
        )
        plugin = _plugin(merged, context)
        await loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except _UNREADABLE as error:
        raise ConfigError(f"{source}: {error}") from error
    if plugin is not None and not configuration.api_key and not configuration.cert_file:
        raise ConfigError(f"{source}: {await _why_silent(plugin)}")
    if not configuration.host or "://" not in configuration.host:
        raise ConfigError(f"{source}: its cluster names no server: add clusters[].cluster.server")
    reader = KubeconfigReader(loader, asks_plugin=plugin is not None)
    return Credentials(configuration, reader, source)


def _plugin(merged: Any, context: str | None) -> Any:
    """The ``exec`` section of the chosen user, or None."""
    chosen = context or merged["current-context"]
    name = merged["contexts"].get_with_name(chosen)["context"].safe_get("user")
    user = merged["users"].get_with_name(name, safe=True) if name else None
    if not user or not user.safe_get("user") or "exec" not in user["user"]:
        return None
    return user["user"]["exec"]


async def _why_silent(plugin: Any) -> str:
    """The library logs a plugin's failure and goes on; this asks once more, for its words."""
    command = plugin.safe_get("command")
    try:
        await ExecProvider(plugin).run()  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        return f"the credential plugin {command!r} failed: {error}"
    return f"the credential plugin {command!r} answered with neither a token nor a certificate"


def _from_service_account(settings: KubeSettings, environ: Mapping[str, str]) -> Credentials:
    folder = settings.service_account
    if not environ.get("KUBERNETES_SERVICE_HOST"):
        raise ConfigError(
            "no way to the Kubernetes API: no --kubeconfig, no $KUBECONFIG, no ~/.kube/config, "
            "and this is not a pod; name a kubeconfig"
        )
    configuration = Configuration()
    loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        token_filename=str(folder / "token"),
        cert_filename=str(folder / "ca.crt"),
        environ=environ,
        try_refresh_token=False,
    )
    try:
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise ConfigError(
            f"service account {folder}: {error} Set automountServiceAccountToken on the pod."
        ) from error
    return Credentials(configuration, ServiceAccountReader(loader), f"service account {folder}")
