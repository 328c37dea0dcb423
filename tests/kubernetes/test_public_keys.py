"""The ConfigMap from which nodes learn whose signatures count, with the documented rights alone."""

from __future__ import annotations

import base64

from hami.signing import Signer, new_private_pem

from .client import NAMESPACES
from .processes import until

SECRET, MAP = "hami-signing-key", "hami-signing-keys"


def test_the_leader_publishes_the_public_keys_and_follows_a_rotation(cluster):
    cluster.add_nodes("n1")
    service = cluster.service(
        signing_key_secret=f"{cluster.namespace}/{SECRET}",
        public_keys=f"{cluster.namespace}/{MAP}",
    )
    maps = f"{NAMESPACES}/{cluster.namespace}/configmaps/{MAP}"
    secrets = f"{NAMESPACES}/{cluster.namespace}/secrets/{SECRET}"

    def signing():
        return base64.b64decode(cluster.admin.get(secrets)["data"]["signing-key.pem"])

    def published():
        text = cluster.admin.get(maps)["data"]["public.pem"]
        return text == Signer.from_pem(signing()).public_pem().decode()

    until("the public key is there", lambda: cluster.admin.exists(maps) and published())
    assert "PRIVATE" not in str(cluster.admin.get(maps))
    both = signing() + new_private_pem()
    encoded = base64.b64encode(both).decode()
    cluster.admin.merge(secrets, {"data": {"signing-key.pem": encoded}})
    until("both keys are published", published)
    assert [line["problem"] for line in service.log() if "problem" in line] == []
