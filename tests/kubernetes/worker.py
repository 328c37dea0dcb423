"""A real node on this machine: kubelet on containerd 2, beside a control plane.

Needs root, and Debian's runc, containernetworking-plugins and busybox-static; Ready after about
5 s. One node a machine: kubelet's device-plugin directory is fixed, and emptied here. CDI specs are
read from ``STATE/cdi``; the image IMAGE is there.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from .client import node_path
from .image import write_image
from .machine import CNI
from .plane import ControlPlane
from .processes import free_port, until

IMAGE = "docker.io/local/busybox:1"
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
LOCK = Path("/run/lock/hami-tests-node.lock")


def foreign_kubelet() -> bool:
    """Whether another kubelet serves device plugins here: then this machine is another cluster's
    node.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(DEVICE_PLUGINS / "kubelet.sock"))
        except OSError:
            return False
    return True


class Worker:
    """A context manager: node ``name`` of ``plane``, from the folder ``binaries``."""

    def __init__(self, plane: ControlPlane, name: str, binaries: Path) -> None:
        self.plane, self.name, self.bin = plane, name, binaries
        self.home = plane.state / "node"
        self.cdi = plane.state / "cdi"
        self._endpoint = self.home / "containerd.sock"

    def __enter__(self) -> Worker:
        # Of two test runs on one machine, the second waits for the first.
        self._lock = LOCK.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            for folder in (self.home, self.cdi, DEVICE_PLUGINS):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
            (self.home / "cni").mkdir()
            self._start_containerd()
            (self.home / "kubelet.json").write_text(json.dumps(self._kubelet_config()))
            self.start_kubelet()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        processes = self.plane.processes
        try:
            if processes.running("kubelet"):
                self.stop_kubelet()
            if processes.running("containerd"):
                until("no container is left", self._no_tasks)
        finally:
            if processes.running("containerd"):
                processes.stop("containerd")
            # Told to end by a containerd that ended first, they may not have heard it.
            for pid in self._shims():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for mount in reversed(self.mounts()):
                subprocess.run(["umount", "-l", mount], check=False)
            self._lock.close()

    def mounts(self) -> list[str]:
        """The mounts below the control plane's folder, by containerd, kubelet or an agent."""
        lines = Path("/proc/mounts").read_text().splitlines()
        found = (line.split()[1] for line in lines)
        return [mount for mount in found if mount.startswith(f"{self.plane.state}/")]

    def start_kubelet(self) -> None:
        """Start or restart kubelet, with pods that may be running."""
        self.plane.processes.start(
            "kubelet", self.bin / "kubelet", "--config", self.home / "kubelet.json",
            "--kubeconfig", self.plane.kubeconfig(), "--root-dir", self.home / "kubelet",
            "--cert-dir", self.home / "pki", "--hostname-override", self.name, "--v", "2",
        )  # fmt: skip
        self.plane.processes.wait("kubelet", f"node {self.name} is Ready", self._ready)

    def stop_kubelet(self) -> None:
        self.plane.processes.stop("kubelet")

    def ctr(self, *arguments: object) -> str:
        """Run containerd's own client, in kubelet's namespace."""
        command = [self.bin / "ctr", "-a", self._endpoint, "-n", "k8s.io", *arguments]
        done = subprocess.run(
            [str(word) for word in command], check=True, capture_output=True, text=True
        )
        return done.stdout

    def _start_containerd(self) -> None:
        network = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "ptp",
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": "10.244.0.0/24"}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                        "dataDir": str(self.home / "ipam"),
                    },
                }
            ],
        }
        (self.home / "cni/10-pods.conflist").write_text(json.dumps(network))
        config = self.home / "containerd.toml"
        shim = self.bin / "containerd-shim-runc-v2"
        config.write_text(
            CONTAINERD.format(home=self.home, cdi=self.cdi, shim=shim, image=IMAGE, cni=CNI)
        )
        path = f"{self.bin}:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
        processes = self.plane.processes
        processes.start("containerd", self.bin / "containerd", "-c", config, env={"PATH": path})
        processes.wait("containerd", "containerd answers", self._answers)
        write_image(self.home / "image.tar", IMAGE)
        self.ctr("images", "import", "--all-platforms", self.home / "image.tar")

    def _kubelet_config(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self._endpoint}",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "evictionHard": {
                "memory.available": "1Mi",
                "nodefs.available": "1%",
                "nodefs.inodesFree": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            # What it could not do it tries again after a second, and devices that it hears of it
            # tells within one, not ten.
            "syncFrequency": "1s",
            "nodeStatusUpdateFrequency": "1s",
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
            "port": free_port(),
            "healthzPort": 0,
            "clusterDNS": ["10.96.0.10"],
        }

    def _no_tasks(self) -> bool:
        tasks = self.ctr("tasks", "ls", "-q").split()
        for task in tasks:
            try:
                self.ctr("tasks", "delete", "-f", task)
            except subprocess.CalledProcessError:
                continue  # it ended by itself meanwhile; the next look tells
        return not tasks

    def _shims(self) -> list[int]:
        """The parents of containers, which outlive containerd."""
        address = f"\0-address\0{self._endpoint}\0".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if address in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        return found

    def _answers(self) -> bool:
        try:
            self.ctr("version")
        except subprocess.CalledProcessError:
            return False
        return True

    def _ready(self) -> bool:
        if not self.plane.admin.exists(node_path(self.name)):
            return False
        node = self.plane.admin.get(node_path(self.name))
        conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", ())}
        return conditions.get("Ready") == "True"


CONTAINERD = """\
version = 3
root = "{home}/root"
state = "{home}/run"
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "{home}/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{image}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["{cdi}"]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni}"]
    conf_dir = "{home}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "{shim}"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""
