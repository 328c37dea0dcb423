"""A real node with everything around it: a signing scheduler, agents, and what containers see."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hami.slices.limits_page import read_page

from .agent import Agent
from .client import NAMESPACES, Object, node_path, pods_path
from .cluster import Cluster
from .objects import a_container, a_pod
from .plane import MANAGED
from .processes import until
from .recount import granted, handed_out
from .release import AGENT, Release
from .running import Running, running
from .service import Service
from .worker import DEVICE_PLUGINS, IMAGE, Worker

MOCK = ("mock.hami.io/device", "mock.hami.io/memory", "mock.hami.io/cores")
VENDORS: Mapping[str, tuple[str, str]] = {
    "mock": ("mock.hami.io/device", "hami.io/mock-devices-allocated"),
    "nvidia": ("nvidia.com/gpu", "hami.io/vgpu-devices-allocated"),
}
"""The counted resource, and the annotation with the allocation."""
CHECKPOINT = DEVICE_PLUGINS / "kubelet_internal_checkpoint"
FOREVER = "exec sleep 1000000000"
PUBLIC_KEYS = "hami-signing-keys"
MIB = 1024 * 1024


def a_signing_service(cluster: Cluster) -> Service:
    """``hami scheduler`` as a real node needs it; may still be starting."""
    namespace = cluster.namespace
    return cluster.launched(
        signing_key_secret=f"{namespace}/hami-signing-key", public_keys=f"{namespace}/{PUBLIC_KEYS}"
    )


class RealNode:
    """A context manager: node ``worker.name`` of ``cluster``, whose scheduler is ``service``; its
    agents end with it.
    """

    def __init__(
        self, cluster: Cluster, worker: Worker, release: Release, service: Service
    ) -> None:
        self.cluster, self.worker, self.release, self._service = cluster, worker, release, service
        self.admin, self.name = cluster.admin, worker.name
        self.slices = worker.home / "slices"
        self._folder = cluster.folder
        self._keys = self._folder / "public.pem"
        self._agents: list[Agent] = []

    def __enter__(self) -> RealNode:
        self._service.ready()
        managed = [{"name": name, "ignoredByScheduler": True} for name in (*MANAGED, *MOCK)]
        self.cluster.kube_scheduler(self._service.url, managedResources=managed)
        published = f"{NAMESPACES}/{self.cluster.namespace}/configmaps/{PUBLIC_KEYS}"
        until("the public keys are published", lambda: self.admin.exists(published))
        self._keys.write_text(self.admin.get(published)["data"]["public.pem"])
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self._agents:
            agent.end()

    # Agents.

    def agent(
        self,
        vendor: str = "mock",
        *,
        devices: Mapping[str, Any],
        server: str = "",
        **flags: object,
    ) -> Agent:
        """Start an agent; its devices are on the node when this returns. ``devices``: its section
        of the device configuration; ``server``: a proxy's address.
        """
        config = self._folder / f"{vendor}.yaml"
        config.write_text(json.dumps({vendor: dict(devices)}))
        token = self.release.token(AGENT, self.release.agent_pod(self.name))
        flags = {
            "vendor": vendor,
            "node_name": self.name,
            "kubelet_dir": DEVICE_PLUGINS,
            "slices": self.slices,
            "cdi_dir": self.worker.cdi,
            "cdi_read_dirs": self.worker.cdi,
            "device_config": config,
            "verification_keys": self._keys,
            "usage_tmpfs": "on",
            "health_address": "off",
            "kubeconfig": self.cluster.plane.kubeconfig(
                f"agent-{vendor}", server=server, token=token
            ),
            **flags,
        }
        agent = Agent(f"agent-{vendor}", self._folder, heard=self.heard, **flags)
        self._agents.append(agent)
        agent.start()
        annotation = "hami.io/node-identity"
        until(
            "the node is advertised", lambda: annotation in self.object()["metadata"]["annotations"]
        )
        return agent

    def object(self) -> Object:
        return self.admin.get(node_path(self.name))

    def heard(self) -> int:
        """A number that grows when kubelet has heard of devices, because it then writes its
        checkpoint. The node's status is older.
        """
        try:
            return CHECKPOINT.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    # Pods.

    def starts(self, *names: str, seconds: float = 60) -> list[Object]:
        """The pods, as soon as every app container of each is running.

        kubelet says so when the program is about to be executed, which may take a moment yet.
        """

        def all_running() -> list[Object] | None:
            found = {
                pod["metadata"]["name"]: pod for pod in self.cluster.pods(self.cluster.namespace)
            }
            pods = [found[name] for name in names]
            if not all(_runs(pod) for pod in pods):
                return None
            living = Counter(container.pod for container in self.containers())
            there = all(living[p["metadata"]["name"]] >= len(p["spec"]["containers"]) for p in pods)
            return pods if there else None

        return until(
            f"pods {', '.join(names[:5])} run",
            all_running,
            seconds=seconds,
            seen=lambda: [self.trouble(name) for name in names if self.trouble(name)][:3],
        )

    def trouble(self, name: str) -> str:
        """Why a pod does not run, in kubelet's or kube-scheduler's words; empty when it runs."""
        pod = self.cluster.pod(name)
        status = pod["status"]
        if _runs(pod):
            return ""
        each = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        waiting = [c["state"]["waiting"] for c in each if "waiting" in c.get("state", {})]
        texts = [f"{w.get('reason')}: {w.get('message', '')}" for w in waiting]
        return f"{name} {status.get('phase')} {status.get('message', '')} {self.cluster.why(name)} {texts}"

    def waits(self, name: str, saying: str, *, seconds: float = 60) -> str:
        """Check that a container of the pod does not start; the status that says why."""
        return until(
            f"pod {name} waits, saying {saying!r},",
            lambda: (text := self.trouble(name)) and saying in text and text,
            seconds=seconds,
            seen=lambda: self.trouble(name),
        )

    def gone(self, *names: str, seconds: float = 60) -> None:
        """Wait until the objects and every process are gone."""

        def nothing() -> bool:
            there = {pod["metadata"]["name"] for pod in self.cluster.pods(self.cluster.namespace)}
            return there.isdisjoint(names) and not any(c.pod in names for c in self.containers())

        until(f"pods {', '.join(names[:5])} are gone", nothing, seconds=seconds)

    def remove(self, *names: str, grace: int | None = None) -> None:
        for name in names:
            self.admin.delete(pods_path(self.cluster.namespace, name), grace=grace)

    # What is really there.

    def containers(self, pod: str = "") -> list[Running]:
        """Containers with a living process; this test's namespace has the only ones."""
        found = running(self.worker.home / "run")
        return [container for container in found if pod in ("", container.pod)]

    def container(self, pod: str, name: str) -> Running:
        def one() -> Running | None:
            return next((c for c in self.containers(pod) if c.name == name), None)

        return until(f"container {name} of {pod} has a process", one)

    def agrees(self, vendor: str = "mock") -> int:
        """Check by cgroup that every running container has exactly what its own pod's annotation
        grants it; the number of containers with a slice.
        """
        pods = {pod["metadata"]["uid"]: pod for pod in self.cluster.pods(self.cluster.namespace)}
        checked, slices = 0, set()
        for container in self.containers():
            assert container.cgroup_pod == container.pod_uid
            expected = grants_of(pods[container.cgroup_pod], vendor).get(container.name, [])
            seen = seen_by(container, vendor)
            assert seen == expected, f"{container.pod}/{container.name} sees {seen}"
            if expected:
                checked += 1
                slices.add(container.env["HAMI_SLICE_ID"])
        assert len(slices) == checked, "two containers share a slice"
        return checked

    def left(self, vendor: str = "mock") -> Mapping[str, Sequence[str]]:
        """What is left of slices on disk: directories, specs, mounts."""
        folder = self.slices / vendor
        return {
            "directories": sorted(p.name for p in folder.iterdir()) if folder.exists() else [],
            "specs": sorted(p.name for p in self.worker.cdi.glob("*hami*")),
            "mounts": [m for m in self.worker.mounts() if m.startswith(f"{self.slices}/")],
        }

    def nothing_is_left(self, vendor: str = "mock") -> None:
        nothing = {"directories": [], "specs": [], "mounts": []}
        until(
            "slices, specs and mounts are gone",
            lambda: self.left(vendor) == nothing,
            seen=lambda: self.left(vendor),
        )


def grants_of(pod: Object, vendor: str) -> dict[str, list[tuple[str, int, int]]]:
    """Device, MiB and percent by container, from the annotation's text alone."""
    resource, annotation = VENDORS[vendor]
    text = pod["metadata"].get("annotations", {}).get(annotation, "")
    return {
        container["name"]: [
            (device, amount.memory, amount.cores) for device, amount in granted(slot)
        ]
        for container, slot in handed_out(pod, text, resource)
    }


def seen_by(container: Running, vendor: str) -> list[tuple[str, int, int]]:
    """The container's limits page as the container itself reads it; empty without one."""
    try:
        page = read_page(container.read(f"/run/hami/{vendor}/limits"))
    except FileNotFoundError:
        return []
    return [(d.uuid, d.memory_bytes // MIB, d.cores) for d in page.devices]


def an_app(name: str = "main", *, runs: str = FOREVER, **asks: object) -> Object:
    """A container that this node can run."""
    return a_container(name, image=IMAGE, runs=runs, **asks)


def a_job(name: str, *, runs: str = "true", **asks: object) -> Object:
    """A container that ends by itself."""
    return an_app(name, runs=runs, **asks)


def a_running_pod(name: str, **fields: Any) -> Object:
    """``a_pod``; without ``containers`` it has one container ``main`` that asks for ``asks``."""
    asks = {key: fields.pop(key) for key in list(fields) if key in ("mock", "mockmem", "mockcores", "gpu", "mem", "cores")}  # fmt: skip
    containers = fields.pop("containers", None) or [an_app(**asks)]
    return a_pod(name, containers=containers, **fields)


def _runs(pod: Object) -> bool:
    statuses = pod["status"].get("containerStatuses", ())
    return bool(statuses) and all("running" in each.get("state", {}) for each in statuses)
