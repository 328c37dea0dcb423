"""A service that makes its certificate itself: a fresh cluster trusts what it serves."""

from __future__ import annotations

import base64
import ssl


async def test_it_serves_a_certificate_of_the_ca_in_its_secret(world):
    service = await world.service(certificate_secret="default/tls", certificate_names="127.0.0.1")
    (secret,) = [s for s in world.server.objects("secrets") if s["metadata"]["name"] == "tls"]
    authority = base64.b64decode(secret["data"]["ca.crt"]).decode()
    trusting = ssl.create_default_context(cadata=authority)
    async with world.session.get(f"{service.public}/healthz", ssl=trusting) as answer:
        assert answer.status == 200
