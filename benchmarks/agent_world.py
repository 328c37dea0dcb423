"""A node whose agent is a process of its own, in a pod's environment; and its callers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.kubelet_calls import Order, Times
from benchmarks.stage import Child, as_installed
from hami.settings.model import key_of
from tests.node.world import RESOURCE, Wish, World

CONTAINERS = ("a", "b")
MEMORY = 100
"""MiB for each container."""


@dataclass(frozen=True, slots=True)
class Run:
    """A pod, when it was bound and when its last container was started, in seconds."""

    name: str
    bound: float
    started: float


class AgentWorld(World):
    """A node; the API server, kubelet and the caller are in this process, the agent is not."""

    def __init__(self) -> None:
        super().__init__(devices="mockx16", tls=True)
        self.agent: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> AgentWorld:
        await super().__aenter__()
        await self.stop_agent()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.end_agent()
        await super().__aexit__(*error)

    async def begin_agent(self, kubelet: Path | None = None) -> None:
        """Start the agent for the kubelet in this folder; by default this world's kubelet."""
        account = self.folder / "account"
        account.mkdir(exist_ok=True)
        assert self.tls is not None
        (account / "token").write_text("t")
        (account / "ca.crt").write_bytes(self.tls.certificate.read_bytes())
        server = self.server.kubeconfig()["clusters"][0]["cluster"]["server"]
        flags = self.flags | {"kubelet_dir": str(kubelet or self.node.plugins)}
        del flags["kubeconfig"]
        words = [f"--{key_of(name)}={value}" for name, value in flags.items()]
        in_a_pod = {
            "HOME": "/nonexistent",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": server.rpartition(":")[2],
        }
        with (self.folder / "agent.log").open("ab") as log:
            self.agent = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.agent_process", str(account), *words),
                env={k: v for k, v in as_installed().items() if k != "KUBECONFIG"} | in_a_pod,
                stderr=log,
            )
        if kubelet is None:
            async with asyncio.timeout(20):
                await self.node.devices.healthy(RESOURCE)

    async def begin_lonely_agent(self) -> None:
        """Start an agent whose kubelet never comes, until it is ready."""
        nobody = self.folder / "nobody"
        nobody.mkdir(exist_ok=True)
        log = self.folder / "agent.log"
        said = log.stat().st_size if log.exists() else 0
        await self.begin_agent(nobody)
        ready = '"event":"ready"'
        await self.until("the agent is ready", lambda: ready in log.read_text()[said:])

    async def end_agent(self) -> None:
        agent, self.agent = self.agent, None
        if agent is not None:
            with suppress(ProcessLookupError):
                agent.terminate()
            await agent.wait()

    def resident_mib(self) -> float:
        assert self.agent is not None
        status = Path(f"/proc/{self.agent.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def socket(self, folder: Path | None = None) -> Path:
        """The path of the agent's socket."""
        found = (folder or self.node.plugins).glob("*.sock")
        return next(path for path in found if path.name != "kubelet.sock")

    async def run_pods(self, count: int) -> list[Run]:
        """Run ``count`` pods at once, of two containers each, until all containers are started."""
        bound = await asyncio.gather(*(self._bound() for _ in range(count)))
        for name, _ in bound:
            await self.until(f"{name} is started", lambda name=name: self._whole(name), 60)
        problems = self.wrong()
        assert not problems, problems
        last: dict[str, float] = {}
        for start in self.started:
            last[start.pod] = max(last.get(start.pod, 0), start.at)
        return [Run(name, at, last[name]) for name, at in bound]

    async def _bound(self) -> tuple[str, float]:
        name = await self.pod(*(Wish(container, memory=MEMORY) for container in CONTAINERS))
        return name, time.time()

    def _whole(self, name: str) -> bool:
        uid = self.uids[name]
        started = {start.container for start in self.started if start.pod_uid == uid}
        return started == set(CONTAINERS)

    async def end_pods(self, runs: Sequence[Run]) -> None:
        for run in runs:
            await self.delete(run.name)
        await self.until("no slice is left", lambda: not self.left())


class Caller:
    """Two processes: one calls the agent as kubelet does, the other answers with an echo."""

    def __init__(self, folder: Path) -> None:
        socket = str(folder / "echo.sock")
        self._echo = Child("grpc_echo", socket)
        self._echo.line()
        self._calls = Child("kubelet_calls", socket)

    def close(self) -> None:
        self._calls.close()
        self._echo.close()

    async def times(self, **order: Any) -> Times:
        line = msgspec.json.encode(Order(**order)).decode()
        answer = await asyncio.to_thread(self._calls.told, line)
        return msgspec.convert(answer, Times)
