"""The settings of the commands in the chart's ``values.schema.json``.

``make chart`` writes them; a test compares them with the code of now. So Helm refuses a setting
that no command has before anything is installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from hami.monitor.settings.source import MONITOR
from hami.node.settings.source import DEVICE_PLUGIN
from hami.scheduler.settings.config_source import SCHEDULER
from hami.settings.model import key_of
from hami.settings.source import Command

SCHEMA = Path(__file__).parents[1] / "charts" / "hami" / "values.schema.json"

_BOOLEANS = frozenset({"on", "off", "yes", "no"})
_CLIENT = frozenset({"kubeconfig", "kube-context"})
_NODE = _CLIENT | {
    "node-name", "device-config", "devices", "node-config", "nodeconfig", "slices", "cgroup-root",
    "proc-root",
}  # fmt: skip

OWNED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "scheduler": _CLIENT | {
            "http-bind", "extender-bind", "public-bind", "metrics-bind-address",
            "cert-file", "key-file", "extender-tls", "client-ca-file", "insecure-extender",
            "certificate-secret", "certificate-names", "webhook-configurations", "address-file",
            "scheduler-name", "device-config-file", "devices", "profiles", "leader-elect",
            "leader-mode", "leader-elect-resource-name", "leader-elect-resource-namespace",
            "identity", "hostname", "pod-name", "pod-namespace", "signing-key-file",
            "signing-key-secret", "public-keys", "legacy-metrics",
        },
        "device-plugin": _NODE | {
            "vendor", "kubelet-dir", "kubelet-socket", "cdi-dir", "cdi-read-dirs",
            "verification-keys", "health-address",
        },
        "monitor": _NODE | {"metrics-bind-address", "legacy-metrics"},
    }
)  # fmt: skip
"""What the chart decides by itself, or by another value."""

COMMANDS: Mapping[str, tuple[Command[Any], tuple[str, ...]]] = MappingProxyType(
    {
        "scheduler": (SCHEDULER, ("scheduler",)),
        "device-plugin": (DEVICE_PLUGIN, ("node", "devicePlugin")),
        "monitor": (MONITOR, ("node", "monitor")),
    }
)
"""Each command, and the values that its settings stand in."""


def settings_of(name: str) -> dict[str, Any]:
    """The schema of a command's settings, by key."""
    command, _ = COMMANDS[name]
    keys = {key_of(field): field for field in command.fields}
    return {
        key: {"description": command.model.model_fields[field].description} | _kind(command, field)
        for key, field in keys.items()
        if key not in OWNED[name]
    }


def _kind(command: Command[Any], field: str) -> dict[str, Any]:
    annotation = command.model.model_fields[field].annotation
    if annotation is bool or annotation == bool | None:
        return {"type": "boolean"}
    if annotation is int:
        return {"type": "integer"}
    if get_origin(annotation) is Literal:
        words = list(get_args(annotation))
        return {"enum": words + ([True, False] if _BOOLEANS & set(words) else [])}
    return {"type": ["string", "number", "array"]}


def place_of(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Where a command's settings stand in the schema."""
    _, path = COMMANDS[name]
    found = schema
    for key in (*path, "settings"):
        found = found["properties"][key]
    return found


def main() -> None:
    schema = json.loads(SCHEMA.read_text())
    for name in COMMANDS:
        place_of(schema, name)["properties"] = settings_of(name)
    SCHEMA.write_text(json.dumps(schema, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
