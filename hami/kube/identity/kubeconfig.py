"""Kubeconfig files with everything that may stand in them, read by ``kubernetes.aio``.

This module adds what that library does not do: it tells of a credential plugin's failure, and asks
for a new token when the server refused the old one. Import it only where there is a kubeconfig: it
takes half a second and 16 MiB.
"""

from __future__ import annotations

import binascii
import os
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from hami.domain.errors import ConfigError
from hami.kube.identity.access import Access

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


class Kubeconfig:
    """One context of a kubeconfig, which may be several files."""

    def __init__(self, paths: list[Path], context: str | None) -> None:
        listed = os.pathsep.join(map(str, paths))
        self.source = f"kubeconfig {listed}"
        self._configuration = Configuration()
        try:
            merged = KubeConfigMerger(listed).config  # type: ignore[no-untyped-call]
            self._loader = KubeConfigLoader(  # type: ignore[no-untyped-call]
                config_dict=merged, active_context=context, config_base_path=None
            )
            self._plugin = _plugin(merged, context)
            self._namespace = _context(merged, context).safe_get("namespace") or ""
        except _UNREADABLE as error:
            raise ConfigError(f"{self.source}: {error}") from error
        self._known = False

    async def read(self, *, forced: bool) -> Access:
        if self._is_due(forced=forced):
            try:
                await self._loader.load_and_set(self._configuration)  # type: ignore[no-untyped-call]
            except _UNREADABLE as error:
                raise ConfigError(f"{self.source}: {error}") from error
        if not self._known:
            await self._check()
            self._known = True
        return self._access()

    def _is_due(self, *, forced: bool) -> bool:
        """Whether to ask the plugin again; without an expiry, only when its token was refused."""
        expires = hasattr(self._loader, "exec_plugin_expiry")
        if forced and expires:
            del self._loader.exec_plugin_expiry
        return not self._known or forced or expires or self._plugin is None

    async def _check(self) -> None:
        found = self._configuration
        if self._plugin is not None and not found.api_key and not found.cert_file:
            raise ConfigError(f"{self.source}: {await _why_silent(self._plugin)}")
        if not found.host or "://" not in found.host:
            raise ConfigError(
                f"{self.source}: its cluster names no server: add clusters[].cluster.server"
            )

    def _access(self) -> Access:
        found = self._configuration
        return Access(
            server=str(found.host).rstrip("/"),
            ca_file=found.ssl_ca_cert,
            insecure=not found.verify_ssl,
            cert_file=found.cert_file,
            key_file=found.key_file,
            server_name=found.tls_server_name,
            proxy=str(found.proxy) if found.proxy else None,
            authorization=(found.api_key.get("BearerToken") or "").strip(),
            namespace=str(self._namespace),
        )


def _context(merged: Any, context: str | None) -> Any:
    """The ``context`` section that is chosen."""
    return merged["contexts"].get_with_name(context or merged["current-context"])["context"]


def _plugin(merged: Any, context: str | None) -> Any:
    """The ``exec`` section of the chosen user, or None."""
    name = _context(merged, context).safe_get("user")
    user = merged["users"].get_with_name(name, safe=True) if name else None
    if not user or not user.safe_get("user") or "exec" not in user["user"]:
        return None
    return user["user"]["exec"]


async def _why_silent(plugin: Any) -> str:
    """Why the plugin gave no credentials.

    The library logs a plugin's failure and goes on, so this asks once more for the plugin's words.
    """
    command = plugin.safe_get("command")
    try:
        await ExecProvider(plugin).run()  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        return f"the credential plugin {command!r} failed: {error}"
    return f"the credential plugin {command!r} answered with neither a token nor a certificate"
