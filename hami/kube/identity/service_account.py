"""A pod's own account: what kubelet puts into its environment and its files.

We read it here and not with ``kubernetes.aio``, whose other ways to the API server would cost every
agent on every node 16 MiB. https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hami.domain.errors import ConfigError
from hami.kube.identity.access import Access

_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


def is_pod(environ: Mapping[str, str]) -> bool:
    """Whether kubelet has set the API server's address, as it does in every pod."""
    return bool(environ.get(_HOST))


class ServiceAccount:
    """Reads the account's files each time: kubelet rotates the token, and they are small.

    https://kubernetes.io/docs/concepts/storage/projected-volumes/#serviceaccounttoken
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.source = f"service account {folder}"
        self._folder = folder
        self._environ = environ

    async def read(self, *, forced: bool) -> Access:  # noqa: ARG002 -- the protocol's
        port = self._environ.get(_PORT)
        if not port:
            raise ConfigError(f"{self.source}: {_HOST} is set and {_PORT} is not; set it too")
        host = self._environ[_HOST]
        address = f"[{host}]" if ":" in host else host
        token = self._content("token")
        self._content("ca.crt")
        return Access(
            server=f"https://{address}:{port}",
            ca_file=str(self._folder / "ca.crt"),
            authorization=f"Bearer {token}",
        )

    def _content(self, name: str) -> str:
        remedy = "set automountServiceAccountToken on the pod"
        try:
            content = (self._folder / name).read_text("ascii").strip()
        except OSError as error:
            raise ConfigError(f"{self.source}: {name}: {error.strerror}; {remedy}") from error
        except ValueError as error:
            raise ConfigError(f"{self.source}: {name} is no text; {remedy}") from error
        if not content:
            raise ConfigError(f"{self.source}: {name} is empty; {remedy}")
        return content
