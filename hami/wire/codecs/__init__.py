"""Annotation texts and the domain values they stand for: pure functions both ways.

Inside: node registers (CSV and JSON), pod device lists, the handshake, the node lock. These names
are public: plugins import them from here. Not here: which annotation holds what (profiles and
``hami.wire.keys``). Decoding answers ``Malformed`` and never raises; encoding raises ValueError
for a value that no reader could read back. No I/O, no clock.
"""

from hami.wire.codecs.handshake import (
    GivenUp,
    Handshake,
    Reported,
    Requesting,
    Unintelligible,
    decode_handshake,
    encode_reported,
    encode_requesting,
)
from hami.wire.codecs.node_lock import NodeLock, decode_node_lock, encode_node_lock
from hami.wire.codecs.pod_devices import containers_of, decode_pod_devices, encode_pod_devices
from hami.wire.codecs.register_csv import decode_register_csv, encode_register_csv
from hami.wire.codecs.register_json import decode_register_json, encode_register_json

__all__ = [
    "GivenUp",
    "Handshake",
    "NodeLock",
    "Reported",
    "Requesting",
    "Unintelligible",
    "containers_of",
    "decode_handshake",
    "decode_node_lock",
    "decode_pod_devices",
    "decode_register_csv",
    "decode_register_json",
    "encode_node_lock",
    "encode_pod_devices",
    "encode_register_csv",
    "encode_register_json",
    "encode_reported",
    "encode_requesting",
]
