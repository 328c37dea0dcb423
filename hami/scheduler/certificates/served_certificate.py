"""The certificate that listeners show, in memory: no file has its key."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable

from hami.scheduler.certificates.certificate_set import CertificateSet


class ServedCertificate:
    """The newest certificate with its CAs; whoever keeps it sets it, and listeners take it up."""

    def __init__(self) -> None:
        self.now = CertificateSet()
        self.told: list[Callable[[], None]] = []
        """Listeners, which show another certificate at once."""

    @property
    def known(self) -> bool:
        """Whether there is one."""
        return self.now.serving is not None

    def load_into(self, context: ssl.SSLContext) -> None:
        """Let the context show it; without one every handshake fails."""
        if (pair := self.now.serving) is None:
            return
        # OpenSSL reads files alone, as far as Python lets it; this one is in memory.
        file = os.memfd_create("hami-certificate")
        try:
            os.write(file, pair.cert_pem + pair.key_pem)
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)
