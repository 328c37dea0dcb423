"""The monitor beside a program that computes under the library, on a simulated GPU."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..shim.builds import Build, build
from ..shim.simulated import SimulatedGpus
from ..shim.slices import uuid_of
from .world import GIB, NodeSlice, NodeSlices, ProcTree

SECONDS = 20.0


@pytest.fixture(scope="module")
def shim() -> Build:
    return build("")


def eventually(holds: Callable[[], object], seconds: float = SECONDS) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "still not so"
        time.sleep(0.02)


class Node:
    def __init__(self, folder: Path, shim: Build, gpus: SimulatedGpus) -> None:
        self.folder, self.shim, self.gpus = folder, shim, gpus
        self.slices = NodeSlices(folder / "slices")
        self.proc = ProcTree(folder / "proc")
        self.running: list[subprocess.Popen[str]] = []

    def monitor(self, *flags: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "hami", "monitor", "--vendors", "nvidia", "--tick", "100ms",
                   "--slices", str(self.folder / "slices"), "--proc-root", str(self.folder / "proc"),
                   "--metrics-bind-address", "off", "--log-format", "console", *flags]  # fmt: skip
        started = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            env={**self.gpus.env(), "HOME": str(self.folder), "PYTHONPATH": str(Path.cwd())},
            text=True,
        )
        self.running.append(started)
        return started

    def tenant(self, of: NodeSlice, number: int = 0, **options: int) -> int:
        """Start a program that computes in the slice; its number."""
        started = subprocess.Popen(
            [self.shim.program("tenant"), *(f"{name}={value}" for name, value in options.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **self.gpus.env(of.id),
                "HAMI_SLICE_DIR": str(of.path),
                "LD_PRELOAD": str(self.shim.library),
            },
            text=True,
        )
        self.running.append(started)
        assert started.stdout is not None
        assert started.stdin is not None
        assert started.stdout.readline() == "ready\n"
        self.proc.lend(
            started.pid, pod_uid=of.pod_uid, container_id=f"{of.id}{number}", page=of.limits
        )
        started.stdin.write("\n")
        started.stdin.flush()
        return started.pid

    def close(self) -> None:
        for each in self.running:
            each.kill()
            each.wait(SECONDS)
            for pipe in (each.stdin, each.stdout, each.stderr):
                if pipe is not None:
                    pipe.close()
        self.slices.close()


@contextmanager
def a_node(folder: Path, shim: Build) -> Iterator[Node]:
    with SimulatedGpus(folder, build=shim) as gpus:
        node = Node(folder, shim, gpus)
        try:
            yield node
        finally:
            node.close()


@pytest.fixture
def node(tmp_path: Path, shim: Build) -> Iterator[Node]:
    with a_node(tmp_path, shim) as made:
        yield made


def test_a_program_is_told_what_was_seen_of_it(node: Node) -> None:
    one = node.slices.add(uuid_of(0), memory=8 * GIB, cores=40)
    other = node.slices.add(uuid_of(0), memory=8 * GIB, cores=60)
    monitor = node.monitor()
    eventually(lambda: one.observed.heartbeat > 1)
    assert one.observed.devices[0].utilisation == 0
    assert one.observed.devices[0].contention == 0
    node.tenant(one, ns=1_000_000)
    eventually(lambda: one.observed.devices[0].utilisation > 0)
    assert list(one.observed.devices[1:1]) == []
    slot = 0
    eventually(lambda: one.observed.slot_generation[slot] == 1)
    held = node.gpus.held(one.id)
    assert one.observed.bytes[0][slot] == held.bytes
    assert one.observed.devices[0].contention == 0
    eventually(lambda: other.observed.devices[0].contention == 1)
    assert other.observed.devices[0].utilisation == 0
    node.tenant(other, ns=1_000_000)
    eventually(lambda: one.observed.devices[0].contention == 1)
    eventually(lambda: other.observed.devices[0].utilisation > 0)
    monitor.send_signal(signal.SIGTERM)
    assert monitor.wait(SECONDS) == 0


def test_a_monitor_that_was_killed_is_followed_by_another(node: Node) -> None:
    one = node.slices.add(uuid_of(0), memory=8 * GIB)
    monitor = node.monitor()
    eventually(lambda: one.observed.heartbeat > 1)
    monitor.kill()
    monitor.wait(SECONDS)
    reached = one.observed.heartbeat
    node.monitor()
    eventually(lambda: one.observed.heartbeat > reached)


def test_a_program_that_pauses_is_seen_for_what_it_used(node: Node) -> None:
    """Every tick spans several of the driver's samples; none of them alone would be right."""
    one = node.slices.add(uuid_of(0), memory=8 * GIB)
    node.monitor("--tick", "1s")
    eventually(lambda: one.observed.heartbeat > 0)
    node.tenant(one, ns=5_000_000, on=150, off=150)
    eventually(lambda: one.observed.devices[0].utilisation > 0)
    seen = []
    for beat in range(one.observed.heartbeat + 1, one.observed.heartbeat + 5):
        eventually(lambda beat=beat: one.observed.heartbeat >= beat)  # type: ignore[misc]
        seen.append(one.observed.devices[0].utilisation)
    assert all(500 < each < 9500 for each in seen), seen


def test_the_monitor_says_how_it_does_and_what_it_sees(node: Node) -> None:
    one = node.slices.add(uuid_of(0), memory=8 * GIB, cores=40)
    address = node.folder / "http"
    monitor = node.monitor("--metrics-bind-address", f"unix:{address}", "--node-name", "n1")
    eventually(lambda: ask(address, "/readyz").startswith("200"))
    node.tenant(one, ns=1_000_000)
    eventually(lambda: one.observed.devices[0].utilisation > 0)
    assert ask(address, "/healthz") == "200 ok"
    metrics = ask(address, "/metrics")
    assert "hami_slice_compute_guarantee_percent{" in metrics
    assert "hami_monitor_tick_duration_seconds_count" in metrics
    [shown] = json.loads(ask(address, "/api/v1/node").partition(" ")[2])["slices"]
    assert (shown["id"], shown["devices"][0]["guarantee"]) == (one.id, 40)
    assert shown["devices"][0]["utilisation"] > 0
    monitor.terminate()
    assert monitor.wait(SECONDS) == 0


def test_a_second_monitor_on_one_node_is_refused(node: Node) -> None:
    one = node.slices.add(uuid_of(0))
    node.monitor()
    eventually(lambda: one.observed.heartbeat > 1)
    second = node.monitor()
    assert second.wait(2 * SECONDS) == 2
    assert second.stderr is not None
    assert "another monitor runs on this node" in second.stderr.read()


def ask(socket_path: Path, target: str) -> str:
    """The status and the body; empty while nobody answers."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(SECONDS)
        try:
            asking.connect(str(socket_path))
        except OSError:
            return ""
        asking.sendall(f"GET {target} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: asking.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return f"{head.split()[1].decode()} {body.decode().strip()}"
