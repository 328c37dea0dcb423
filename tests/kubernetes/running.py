"""Containers as they really run: from containerd's bundles and from /proc, without asking a server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_POD = re.compile(r"/pod([0-9a-f-]{36})/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One container with a living process; ``cgroup_pod`` is the UID that its cgroup names."""

    id: str
    pid: int
    pod_uid: str
    pod: str
    name: str
    cgroup_pod: str
    env: Mapping[str, str]

    def read(self, path: str) -> bytes:
        """A file as the container sees it."""
        return Path(f"/proc/{self.pid}/root{path}").read_bytes()


def running(containerd_state: Path) -> list[Running]:
    """Every running container of every pod, without sandboxes and without those that end meanwhile."""
    return list(_running(containerd_state / "io.containerd.runtime.v2.task" / "k8s.io"))


def _running(bundles: Path) -> Iterator[Running]:
    for bundle in sorted(bundles.iterdir()) if bundles.exists() else ():
        try:
            config = json.loads((bundle / "config.json").read_text())
            about = config["annotations"]
            if about["io.kubernetes.cri.container-type"] != "container":
                continue
            pid = int((bundle / "init.pid").read_text())
            if Path(f"/proc/{pid}/comm").read_text().startswith("runc:"):
                continue  # created, and not yet the container's program
            cgroup = _POD.search(Path(f"/proc/{pid}/cgroup").read_text())
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, ValueError):
            continue  # it has ended, or is being made: its files are half-written
        variables = environ.decode(errors="replace").split("\0")
        if cgroup is None or not environ:
            continue  # not there yet, or a zombie
        yield Running(
            id=bundle.name,
            pid=pid,
            pod_uid=about["io.kubernetes.cri.sandbox-uid"],
            pod=about["io.kubernetes.cri.sandbox-name"],
            name=about["io.kubernetes.cri.container-name"],
            cgroup_pod=cgroup[1],
            env=dict(v.split("=", 1) for v in variables if "=" in v),
        )
