"""Where the binaries of a real Kubernetes are; builds them once.

``python tests/kubernetes/binaries.py [control-plane|node|all|possible]`` prints the folder;
``possible`` is all where this machine can be a node, and the control plane elsewhere. The folder is
``$HAMI_KUBERNETES_BIN`` where that is set. Otherwise it is one below
``${XDG_CACHE_HOME:-~/.cache}/hami``, named after everything that goes into the build, so that a
changed module file gives another folder. A build is made beside it and renamed, so the folder is
complete or missing; a second builder waits for the first.

Exit code 3: not here, and there is no Go to build it with.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

if __package__:
    from .machine import lacking
else:  # run as a script
    from machine import lacking

HERE = Path(__file__).parent
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"control-plane": CONTROL_PLANE, "node": NODE, "all": CONTROL_PLANE + NODE}
)
PREFIXES: Mapping[str, str] = MappingProxyType(
    {"control-plane": "kubernetes", "node": "kubernetes-node", "all": "kubernetes-all"}
)
OLDEST_GO = (1, 26)
NO_GO = 3


class Missing(Exception):
    """There are no binaries, and they cannot be built here; the text says what would help."""


def binaries(part: str = "control-plane", *, build: bool = True) -> Path:
    """The folder with every binary of ``part``, or the one with all binaries.

    Raises:
        Missing: the folder is missing, and ``build`` is off or Go is missing.
        subprocess.CalledProcessError: Go could not build it; its messages are on stderr.
    """
    if given := os.environ.get("HAMI_KUBERNETES_BIN"):
        if absent := not_in(Path(given), part):
            raise Missing(
                f"HAMI_KUBERNETES_BIN={given} has no {', '.join(absent)}: unset it to build them, "
                f"or run tests/kubernetes/build.sh {given} {part}"
            )
        return Path(given).resolve()
    folder = cached(part)
    for there in (folder, cached("all")):
        if there.is_dir():
            return there
    if not build:
        raise Missing(f"no binaries in {folder}: run make test-kubernetes, which builds them")
    require_go()
    return built(part, folder)


def not_in(folder: Path, part: str) -> list[str]:
    """The binaries of ``part`` that are not in ``folder``."""
    return [name for name in PARTS[part] if not os.access(folder / name, os.X_OK)]


def possible() -> tuple[str, str]:
    """The part that this machine can run, and why it is not all."""
    if lack := lacking():
        return "control-plane", lack
    given = os.environ.get("HAMI_KUBERNETES_BIN")
    absent = not_in(Path(given), "node") if given else []
    if absent:
        return "control-plane", f"HAMI_KUBERNETES_BIN={given} has no {', '.join(absent)}"
    return "all", ""


def cached(part: str) -> Path:
    """The folder, named by version and by a hash over everything that the build reads."""
    recipe = (HERE / "build.sh").read_text()
    version = re.search(r"^version=(\S+)$", recipe, re.MULTILINE)
    assert version, "build.sh names no version"
    sources = [HERE / "build.sh"]
    for module in ("controlplane", "runtime"):
        sources += sorted(path for path in (HERE / module).rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for source in sources:
        content = source.read_bytes()
        digest.update(f"{source.relative_to(HERE)} {len(content)}\n".encode() + content)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "hami", f"{PREFIXES[part]}-{version[1]}-{digest.hexdigest()[:12]}")


def require_go() -> None:
    """Check that there is a Go.

    Raises:
        Missing: there is none.
    """
    wanted = ".".join(map(str, OLDEST_GO))
    go = shutil.which("go")
    if go is None:
        raise Missing(f"Kubernetes is built with Go {wanted} or newer, and no go is on PATH")
    said = subprocess.run([go, "version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\bgo(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GO:
        raise Missing(f"Kubernetes is built with Go {wanted} or newer; {go} says {said.strip()!r}")


def built(part: str, folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():  # somebody else built it while we waited
            return folder
        sys.stderr.write(f"Building Kubernetes ({part}) into {folder}: minutes the first time\n")
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="unfinished-") as name:
            unfinished = Path(name, "bin")
            command = [HERE / "build.sh", unfinished, part]
            subprocess.run(command, check=True, stdout=sys.stderr)
            unfinished.rename(folder)
    return folder


def main(arguments: list[str]) -> int:
    part = arguments[0] if arguments else "control-plane"
    if part == "possible":
        part, why = possible()
        if why:
            sys.stderr.write(f"No real node here, only a control plane: {why}\n")
    if part not in PARTS:
        sys.stderr.write(f"{part!r} is not {' or '.join(PARTS)} or possible\n")
        return 2
    try:
        sys.stdout.write(f"{binaries(part)}\n")
    except Missing as missing:
        sys.stderr.write(f"No real Kubernetes here: {missing}\n")
        return NO_GO
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"Building Kubernetes failed: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
