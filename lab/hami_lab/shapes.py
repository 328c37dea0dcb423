"""Nodes by a short text: ``a100-40gx8:2,t4x4:3`` is two nodes with eight A100 and three with T4."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from hami.domain.errors import ConfigError, shortened

_ENTRY = re.compile(
    r"(?P<devices>(?P<model>[A-Za-z0-9._-]+?)(?::[a-z][a-z0-9-]*)?x\d+)(?::(?P<count>\d+))?"
)
_MOST = 5000
DEVICES = "mock.hami.io/devices"


def nodes_of(text: str) -> list[dict[str, Any]]:
    """Node objects for a comma list of ``<model>[:<mode>]x<devices>[:<nodes>]``.

    Raises:
        ConfigError: names the entry and what could be written instead.
    """
    nodes: list[dict[str, Any]] = []
    numbers: Counter[str] = Counter()
    for entry in text.split(","):
        match = _ENTRY.fullmatch(entry.strip())
        count = int(match["count"] or 1) if match and len(match["count"] or "") < 6 else 0
        if match is None or count < 1 or len(nodes) + count > _MOST:
            raise ConfigError(
                f"nodes: {shortened(entry)!r} is not <model>x<devices>:<nodes>, for example "
                f"t4x4:3; at most {_MOST} nodes in all"
            )
        for _ in range(count):
            model = match["model"].lower().replace("_", "-").strip(".-")
            numbers[model] += 1
            nodes.append(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {
                        "name": f"{model}-{numbers[model]}",
                        "annotations": {DEVICES: match["devices"]},
                    },
                }
            )
    return nodes
