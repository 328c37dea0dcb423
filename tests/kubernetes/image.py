"""An OCI image archive around one static busybox, so that containers run without a registry."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from .machine import BUSYBOX

APPLETS = (
    "sh", "sleep", "cat", "ls", "env", "mount", "grep", "ps", "id", "touch", "dd", "df", "true",
    "false", "wc", "od", "stat",
)  # fmt: skip
ASIDE = "aside"
"""A link to /run: mounts below it reach /run, which the pod's spec does not show."""
OCI = "application/vnd.oci.image."


def write_image(out: Path, reference: str) -> None:
    blobs: dict[str, bytes] = {}

    def put(data: bytes) -> dict[str, object]:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"digest": digest, "size": len(data)}

    layer = put(files(BUSYBOX.read_bytes()))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "1000000000"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI + "manifest.v1+json",
        "config": {"mediaType": OCI + "config.v1+json", **put(json.dumps(config).encode())},
        "layers": [{"mediaType": OCI + "layer.v1.tar", **layer}],
    }
    entry = {
        "mediaType": OCI + "manifest.v1+json",
        **put(json.dumps(manifest).encode()),
        "annotations": {"io.containerd.image.name": reference},
    }
    with tarfile.open(out, "w") as archive:
        add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())
        for digest, data in blobs.items():
            add(archive, "blobs/" + digest.replace(":", "/"), data)


def files(busybox: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, mode
            archive.addfile(info)
        add(archive, "bin/busybox", busybox, 0o755)
        for applet in APPLETS:
            link = tarfile.TarInfo("bin/" + applet)
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        aside = tarfile.TarInfo(ASIDE)
        aside.type, aside.linkname = tarfile.SYMTYPE, "run"
        archive.addfile(aside)
    return buffer.getvalue()


def add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    archive.addfile(info, io.BytesIO(data))
