"""The body of ``/filter``, with as little of it decoded as an answer takes."""

from __future__ import annotations

from hami.policy.tables.node_names import NameBlock
from hami.wire.bodies import BadBody, decode_body
from hami.wire.extender import ExtenderArgs, UndecodedArgs


def read_args(body: bytes) -> ExtenderArgs | BadBody:
    """Names that are written as Go writes them stay a block; any other spelling is decoded."""
    found = decode_body(body, UndecodedArgs)
    if not isinstance(found, BadBody):
        names = NameBlock.read(bytes(found.node_names))
        if names is not None:
            return ExtenderArgs(pod=found.pod, nodes=found.nodes, node_names=names)
    return decode_body(body, ExtenderArgs)
