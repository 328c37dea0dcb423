"""Where the API server is, who we are to it, and the sources of this information."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The access as of one moment.

    Files are paths; ``authorization`` is a header, or empty. ``server_name`` is the name to check
    the server's certificate against, where it is not the host's. ``namespace`` is the one that is
    meant where none is named; it may be empty.
    """

    server: str
    ca_file: str | None = None
    insecure: bool = False
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    proxy: str | None = None
    authorization: str = ""
    namespace: str = ""

    def ssl_context(self) -> ssl.SSLContext:
        """A TLS context for the server.

        Raises:
            OSError: a CA or client certificate cannot be read.
            ValueError: it cannot be used.
        """
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file:
            context.load_cert_chain(self.cert_file, keyfile=self.key_file)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        # Kubernetes' own tools make CAs without the extensions that Python 3.13 began to ask for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


class Reader(Protocol):
    """A source of access that can be read again; ``source`` names it for people."""

    @property
    def source(self) -> str: ...

    async def read(self, *, forced: bool) -> Access:
        """The access as it is now.

        ``forced``: the server refused what was read before.

        Raises:
            ConfigError: what is there cannot be used.
        """
        ...
