"""Where a server listens: ``host:port``, ``:port`` for every address, or ``unix:/path``."""

from __future__ import annotations

import ipaddress
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hami.domain.errors import ConfigError

_BACKLOG = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """An empty ``host`` is every address of the machine; ``path`` is a Unix socket instead."""

    host: str = ""
    port: int = 0
    path: Path | None = None

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether only this machine (in a pod: only its network namespace) reaches the address."""
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_bind(text: str) -> Bind:
    """Read an address; port 0 lets the system choose.

    Raises:
        ValueError: the text is no such address.
    """
    if text.startswith("unix:"):
        path = Path(text.removeprefix("unix:"))
        if not path.is_absolute():
            raise ValueError(
                "a Unix socket needs an absolute path, for example unix:/run/hami.sock"
            )
        return Bind(path=path)
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not colon or not 0 <= number <= 65535 or (":" in host and not bracketed):
        raise ValueError("is no address; write HOST:PORT, :PORT, [IPV6]:PORT or unix:/path")
    return Bind(host=host, port=number)


def open_socket(bind: Bind) -> socket.socket:
    """A listening, non-blocking socket; replaces a Unix socket that no process serves any more.

    Raises:
        ConfigError: the address is taken, not ours, or not allowed.
    """
    try:
        opened = _unix(bind.path) if bind.path is not None else _internet(bind.host, bind.port)
    except (OSError, UnicodeError) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(
            f"cannot listen on {bind}: {cause}; choose another address or stop what uses it"
        ) from error
    opened.settimeout(0)
    return opened


def _internet(host: str, port: int) -> socket.socket:
    opened = _internet_socket(host, port)
    # Accepted sockets inherit it. asyncio would set it only on sockets that name their protocol,
    # which create_server's do not, and an answer's body would wait 40 ms for the caller's ACK.
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def _internet_socket(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        # A machine without IPv6 addresses may still have the family: IPv4 alone serves it.
        with suppress(OSError):
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
            )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _unix(path: Path) -> socket.socket:
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _served(path):
        path.unlink()
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.bind(str(path))
        path.chmod(0o660)
        opened.listen(_BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def _served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def address_of(opened: socket.socket, scheme: str) -> str:
    """The URL by which this machine reaches the socket."""
    if opened.family == socket.AF_UNIX:
        return f"{scheme}+unix:{opened.getsockname()}"
    host, port = opened.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 -- a comparison: every address has ours among them
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
