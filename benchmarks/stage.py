"""The processes of one measurement: an API server with a cluster in it, the service, the echo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from benchmarks.population import NAMESPACE, Json, Size

STARTS_WITHIN = 60.0
STOPS_WITHIN = 20.0


def as_installed() -> dict[str, str]:
    """The environment of a process whose modules have bytecode, as pip leaves them.

    Its first start may write it.
    """
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


class Child:
    """A module of ours as a process that reads orders and answers with lines of text."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process has ended: {self._process.args!r}")
        return line.strip()

    def told(self, order: str) -> Any:
        """Give an order; the answer to it."""
        self.tell(order)
        return json.loads(self.line())

    def tell(self, order: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the process by closing its standard input. Idempotent."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        _ended(self._process)
        self._process.stdout.close()


class ApiProcess(Child):
    """The embedded API server with a cluster of this size."""

    def __init__(self, size: Size, folder: Path) -> None:
        super().__init__("api_process", str(folder), str(size.nodes), str(size.pods))
        self.kubeconfig = folder / "kubeconfig"
        self.signing_key = folder / "signing-key.pem"

    def filled(self) -> None:
        """Wait until the cluster is complete."""
        self.url = json.loads(self.line())["url"]

    def create(self, pod: Json) -> Json:
        """Create a pod; the pod as stored."""
        return self._call("POST", "", pod)

    def get(self, name: str) -> Json:
        return self._call("GET", f"/{name}", None)

    def _call(self, method: str, name: str, body: Json | None) -> Json:
        request = urllib.request.Request(
            f"{self.url}/api/v1/namespaces/{NAMESPACE}/pods{name}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: Json = json.loads(answer.read())
            return found


class ServiceProcess:
    """``hami scheduler``, ready once this object exists; ``ready_after`` is in seconds."""

    def __init__(self, api: ApiProcess, folder: Path) -> None:
        addresses = folder / "addresses.json"
        addresses.unlink(missing_ok=True)
        self.log = folder / "scheduler.log"
        loopback = "127.0.0.1:0"
        command = [
            sys.executable, "-m", "hami", "scheduler",
            f"--kubeconfig={api.kubeconfig}",
            f"--signing-key-file={api.signing_key}",
            f"--extender-bind={loopback}",
            f"--public-bind={loopback}",
            f"--metrics-bind-address={loopback}",
            f"--address-file={addresses}",
        ]  # fmt: skip
        begin = time.perf_counter()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=as_installed())
        self._wait(addresses.exists, "it listens")
        found = json.loads(addresses.read_text())
        self.extender, self.metrics = found["extender"], found["metrics"]
        self._wait(self._is_ready, "it is ready")
        self.ready_after = time.perf_counter() - begin

    @property
    def pid(self) -> int:
        return self._process.pid

    def resident_mib(self) -> float:
        """The process's resident memory now."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024

    def cpu_seconds(self) -> float:
        """The processor time that the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._process.terminate()
        _ended(self._process)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.extender}/readyz", timeout=10) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False

    def _wait(self, condition: Any, what: str) -> None:
        end = time.monotonic() + STARTS_WITHIN
        while not condition():
            if self._process.poll() is not None or time.monotonic() > end:
                self._process.kill()
                raise RuntimeError(f"waited in vain until {what}:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.01)


def _ended(process: subprocess.Popen[Any]) -> None:
    try:
        process.wait(STOPS_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Stage:
    """A context manager: everything runs inside it, and nothing is left afterwards."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(TemporaryDirectory(prefix="hami-bench-")))
            self.api = ApiProcess(self._size, self.folder)
            stack.callback(self.api.close)
            self.api.filled()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def service(self) -> ServiceProcess:
        """Start the service; it ends with the stage."""
        service = ServiceProcess(self.api, self.folder)
        self._stack.callback(service.close)
        return service

    def echo(self) -> str:
        """Start the echo and return its URL; it ends with the stage."""
        return self.child("echo_process").line()

    def child(self, module: str, *arguments: str) -> Child:
        """Start a child process; it ends with the stage."""
        child = Child(module, *arguments)
        self._stack.callback(child.close)
        return child
