"""The way of a container's start, from Allocate to PreStart, is the one that the docs describe.

A pod's container starts on a node in this process: an API server, a kubelet that calls the agent
over gRPC, and the agent with the NVIDIA plugin on a GPU that NVML only pretends to have. Signatures
are verified, the node has a CDI spec as nvidia-ctk writes it, and the container is not the node's
first: what is done once on a node (the driver is asked how large its GPU is) has been done.

What counts: every Python function of ``hami`` and ``hami_nvidia`` that runs for the one Allocate
and for the one PreStartContainer, on the loop, in tasks that are made on the way, and in worker
threads. The way is the files of these functions, each where the first of its functions begins. A
*return* is a call into a file that was on the way before and has been left: none of its functions
was still running, or waiting for another one to end.

What does not count is in ``LEFT_OUT``, each with its reason, and nothing else: what is called from
there counts again.
"""

from __future__ import annotations

import contextvars
import dis
import re
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import hami_nvidia
import yaml
from hami_lab.live import LIVE_PODS
from hami_nvidia.nvml.driver import DriverNvml
from hami_nvidia.nvml.interface import Capability, Gpu, NotSupported, Recovery

import hami
from hami.blocking.daemon_threads import Workers
from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, VendorKey
from hami.node import agent
from hami.node.pod.pods import NodePods

from .world import NODE, Wish, World

PAGE = Path(__file__).parents[2] / "docs/architecture.md"
HEADING = "## Walk: a container's start, from Allocate to PreStart"
MOST_FILES, MOST_RETURNS = 12, 6

NVIDIA = "plugins/nvidia/hami_nvidia"
LEFT_OUT = {
    # Values.
    "hami/domain/": "what everybody speaks of: values without a decision",
    "hami/node/slice/views.py": "makes values of values: one slice in the forms others take",
    f"{NVIDIA}/settings/": "what the node's configuration says, read when it changes",
    # Texts and bytes, to values and back.
    "hami/wire/": "annotations and the signature's text; pure, as the import contract proves",
    "hami/node/kubelet/responses.py": "kubelet's gRPC messages",
    "hami/slices/record.py": "the text of meta.json",
    "hami/slices/limits_page.py": "the bytes of the limits page",
    "hami/slices/usage_region.py": "the bytes of the usage region",
    "hami/node/disk/cdi_spec.py": "the text of a CDI spec",
    f"{NVIDIA}/handover/node_cdi.py": "the text of the node's own CDI spec",
    # Decisions that are functions of their arguments.
    "hami/policy/": "what a pod was granted, what devices hold; pure, as the import contract proves",
    "hami/signing.py": "whether a signature is one of our key's",
    f"{NVIDIA}/scheduler_side.py": "what the policies ask of the vendor; pure",
    f"{NVIDIA}/schedule/": "the same",
    f"{NVIDIA}/handover/limits.py": "the limits as variables and as settings of the page",
    # What passes a call on: the function that is called counts.
    "hami/blocking/threads.py": "calls a function in a worker thread",
    "hami/blocking/daemon_threads.py": "the worker threads",
    "hami/vendors/": "calls a hook, and checks what it answers",
    "hami/hookspecs/": "the table of hooks, by which it is called and checked",
    # What the standard library could have.
    "hami/slices/files.py": "writes a file whole or not at all",
    "hami/slices/open_pages.py": "keeps a file open",
    f"{NVIDIA}/handover/files.py": "writes a file whole or not at all",
    f"{NVIDIA}/handover/device_files.py": "asks which device files there are",
    "hami/kube/pace.py": "the length of the next pause",
}
BEGINS = {"_Service.allocate", "_Service.pre_start"}
CALLS = "hami/node/kubelet/plugin_calls.py"

ROOTS = {Path(hami.__file__).parent: "hami", Path(hami_nvidia.__file__).parent: NVIDIA}
COROUTINE = 0x20 | 0x80 | 0x200
"""``co_flags`` of generators, coroutines and asynchronous generators (module ``inspect``)."""

on_the_way = contextvars.ContextVar("on_the_way", default=False)


class Way:
    """Follows the two calls while it is entered; ``files`` in order, ``returns`` as (file, name)."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.returns: list[tuple[str, str]] = []
        self.left_out: set[str] = set()
        self._open: Counter[str] = Counter()
        self._frames: dict[int, object] = {}
        self._places: dict[str, str] = {}
        self._submit = Workers.submit

    def __enter__(self) -> Way:
        way = self

        def submit(self, function, /, *args, **kwargs):
            context = contextvars.copy_context()

            def followed():
                sys.setprofile(way._see)
                try:
                    return context.run(function, *args, **kwargs)
                finally:
                    sys.setprofile(None)

            return way._submit(self, followed)

        Workers.submit = submit
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        Workers.submit = self._submit

    def _see(self, frame, event, _arg) -> None:
        if event not in ("call", "return"):
            return
        file = self._place(frame.f_code.co_filename)
        if not file:
            return
        if event == "return":
            self._ended(frame, file)
        elif (file, frame.f_code.co_qualname in BEGINS) == (CALLS, True):
            on_the_way.set(True)
            self._begun(frame, file)
        elif on_the_way.get():
            self._begun(frame, file)

    def _begun(self, frame, file: str) -> None:
        if id(frame) in self._frames:
            return  # a coroutine goes on
        if left_out := next((name for name in LEFT_OUT if file.startswith(name)), ""):
            self.left_out.add(left_out)
            return
        if file not in self.files:
            self.files.append(file)
        elif not self._open[file]:
            self.returns.append((file, frame.f_code.co_qualname))
        self._frames[id(frame)] = frame  # kept, so that no other one gets its number
        self._open[file] += 1

    def _ended(self, frame, file: str) -> None:
        """Unless it is a coroutine that waits."""
        if id(frame) not in self._frames:
            return
        code = frame.f_code
        waits = dis.opname[code.co_code[frame.f_lasti]] == "YIELD_VALUE"
        if not (waits and code.co_flags & COROUTINE):
            self._open[file] -= 1

    def _place(self, path: str) -> str:
        if path not in self._places:
            found = [
                f"{name}/{Path(path).relative_to(root)}"
                for root, name in ROOTS.items()
                if Path(path).is_relative_to(root)
            ]
            self._places[path] = found[0] if found else ""
        return self._places[path]


GPU = Gpu(
    uuid=DeviceId("GPU-0d7362e4-350b-8bb6-3d75-f057ac422919"),
    index=0,
    minor=0,
    name="NVIDIA A10",
    pci_bus_id="00000000:0A:00.0",
    memory_bytes=24 << 30,
    cores=9216,
    capability=Capability(8, 6),
)
GPUS = "nvidia.com/gpu"
CDI = {
    "cdiVersion": "0.6.0",
    "kind": GPUS,
    "devices": [{"name": GPU.uuid, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
}


class NvidiaWorld(World):
    """A node of one GPU."""

    def __init__(self) -> None:
        super().__init__(vendor="nvidia")
        self.resource = GPUS
        library = self.folder / "local/vgpu/libvgpu.so"
        library.parent.mkdir(parents=True)
        library.touch()
        self._config = {
            "nvidia": {"hookPath": str(library.parents[1]), "disableHealthChecks": "all"}
        }
        self._others = self.folder / "cdi"
        self._others.mkdir()
        (self._others / "nvidia.yaml").write_text(yaml.safe_dump(CDI))

    @property
    def flags(self):
        return super().flags | {"cdi_read_dirs": f"{self._others},{self.node.cdi}"}

    def place(self, wishes):
        grant = Grant(
            device_id=GPU.uuid,
            vendor=VendorKey("NVIDIA"),
            memory_mib=MemoryMiB(1000),
            cores=CorePercent(10),
        )
        containers = [
            ContainerAllocation(name=wish.name, kind=ContainerKind.APP, grants=(grant,))
            for wish in wishes
        ]
        return PodAllocation(node=NODE, containers=tuple(containers))

    async def starts(self, name: str) -> None:
        limits = {GPUS: "1", f"{GPUS}mem": "1000", f"{GPUS}cores": "10"}
        container = {"name": "main", "image": "i", "resources": {"limits": limits}}
        body = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        pod = await self.client.create(LIVE_PODS, body, namespace="default")
        await self.bind(pod, [Wish("main")])
        await self.phase(name, "Running")


def described() -> list[str]:
    """The files of the numbered list below the heading."""
    section = PAGE.read_text().partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`: \S.*$", section, re.MULTILINE)


async def test_a_start_goes_the_way_that_the_docs_describe(monkeypatch):
    def no_events(*_):
        raise NotSupported("it has no events")

    # However late the mirror of the pods is, the API server is not asked for one.
    monkeypatch.setattr(agent, "NodePods", partial(NodePods, patience=60))
    monkeypatch.setattr(DriverNvml, "gpus", lambda _: [GPU])
    monkeypatch.setattr(DriverNvml, "probe", lambda *_: Recovery.NONE)
    monkeypatch.setattr(DriverNvml, "watch", no_events)
    monkeypatch.setattr(DriverNvml, "close", lambda _: None)
    async with NvidiaWorld() as world:
        await world.starts("first")
        with Way() as way:
            await world.starts("second")
        start = world.started[-1]
        assert (start.pod, start.missing) == ("second", ())
        assert start.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    print("files:", *way.files, "returns:", *way.returns, "left out:", *LEFT_OUT, sep="\n  ")  # noqa: T201
    assert way.left_out == LEFT_OUT.keys(), "what is not on the way needs no reason to be left out"
    assert way.files == described()
    assert len(way.files) <= MOST_FILES
    assert len(way.returns) <= MOST_RETURNS, way.returns
