"""The directories in which a container runtime looks for CDI specs: ours written, others' read.

A runtime watches them for names in ``.json`` and ``.yaml`` and reads a *new* spec reliably, a
*changed* one perhaps late. So a spec appears whole, by a rename, and is never written again when
nothing changed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import structlog
import yaml

from hami.domain.errors import HamiError, shortened
from hami.domain.slices import ContainerEdits
from hami.domain.units import VendorKey
from hami.node.disk.cdi_spec import CdiSpec, merge, slice_spec
from hami.node.disk.store import SLICE_ID
from hami.slices.files import (
    TEMPORARY,
    StoreFailed,
    make_folder,
    opened_folder,
    read_at_most,
    read_bounded,
    store_failures,
    write_whole,
)

_LONGEST_SPEC = 4 << 20
"""Bytes; nvidia-ctk writes some 20 KiB for eight cards."""
_SUFFIXES = frozenset({".json", ".yaml"})


class NoSpec(HamiError):
    """Another component's CDI spec is missing."""


@dataclass(frozen=True, slots=True)
class _Read:
    """Another component's file as it was read; ``spec`` is None if it cannot be used."""

    version: tuple[int, int, int, int]
    spec: CdiSpec | None


class CdiFolders:
    """Writes the slices' specs and reads others'. Every method blocks.

    ``read_from`` in rising priority, as runtimes have it: /etc/cdi, /var/run/cdi
    (https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md).
    """

    def __init__(self, write_to: Path, read_from: Sequence[Path], *, vendor: VendorKey) -> None:
        self._write_to = write_to
        self._read_from = tuple(read_from)
        self._prefix = f"hami-{vendor.lower()}-"
        # Not of a vendor whose key only begins as ours does: its agent may be writing it.
        self._leftover = re.compile(
            rf"\.{re.escape(self._prefix)}{SLICE_ID.pattern}\.json\.[0-9a-f]+{re.escape(TEMPORARY)}"
        )
        self._read: dict[Path, _Read] = {}
        self._log = structlog.get_logger("hami.cdi")

    def write_slice(
        self, kind: str, slice_id: str, edits: ContainerEdits
    ) -> Literal["new", "same", "changed"]:
        """Define ``<kind>=<slice_id>``: these edits, and those of the CDI devices that they name.

        Raises:
            NoSpec: nobody defines a device that they name.
            StoreFailed: the former spec stands, or there is none.
        """
        theirs = []
        for name in edits.cdi_devices:
            found = self.edits_of(name)
            if found is None:
                raise NoSpec(
                    f"no CDI spec on this node defines {name}; write one, for NVIDIA with "
                    "nvidia-ctk cdi generate"
                )
            theirs.append(found)
        return self.write(slice_id, slice_spec(kind, slice_id, edits, theirs))

    def write(self, slice_id: str, spec: bytes) -> Literal["new", "same", "changed"]:
        """Make this the slice's spec.

        Raises:
            StoreFailed: the former spec stands, or there is none.
        """
        name = self._name(slice_id)
        path = self._write_to / name
        with store_failures("write the CDI spec", path):
            make_folder(self._write_to.resolve(), 0o755)
            with opened_folder(self._write_to.resolve()) as folder:
                outcome: Literal["new", "changed"] = "changed"
                try:
                    if read_bounded(folder, name, _LONGEST_SPEC) == spec:
                        return "same"
                except FileNotFoundError:
                    outcome = "new"
                except OSError as error:
                    self._log.warning(
                        "a CDI spec is replaced", path=str(path), problem=error.strerror
                    )
                write_whole(folder, name, spec, 0o644)
                return outcome

    def remove(self, slice_id: str) -> None:
        """Remove the slice's spec, if it has one.

        Raises:
            StoreFailed: it is still there.
        """
        path = self._write_to / self._name(slice_id)
        with store_failures("remove the CDI spec", path):
            path.unlink(missing_ok=True)

    def written(self) -> set[str]:
        """The slices of this vendor that have a spec.

        Raises:
            StoreFailed: the directory is there and cannot be listed.
        """
        found = set()
        for name in self._names(self._write_to):
            slice_id = name.removeprefix(self._prefix).removesuffix(".json")
            if name == f"{self._prefix}{slice_id}.json" and SLICE_ID.fullmatch(slice_id):
                found.add(slice_id)
        return found

    def recover(self) -> set[str]:
        """Take away what a killed agent was writing; then as :meth:`written`."""
        for name in self._names(self._write_to):
            if self._leftover.fullmatch(name):
                path = self._write_to / name
                with store_failures("remove a leftover", path):
                    path.unlink(missing_ok=True)
        return self.written()

    def edits_of(self, cdi_name: str) -> Mapping[str, Any] | None:
        """What the spec of another component does for a device: ``nvidia.com/gpu=GPU-0f3a...``.

        Returns: its ``containerEdits``, those of the whole spec before the device's own. None:
            nobody defines it, or two specs of one directory do, which a runtime refuses too.
        """
        kind, _, name = cdi_name.partition("=")
        found: Mapping[str, Any] | None = None
        for folder in self._read_from:
            defined = [
                (path, merge([spec.container_edits, device.container_edits]))
                for path, spec in self._specs(folder)
                if spec.kind == kind
                for device in spec.devices
                if device.name == name
            ]
            if len(defined) > 1:
                files = ", ".join(str(path) for path, _ in defined)
                self._log.warning("a CDI device is defined twice", device=cdi_name, files=files)
                return None
            if defined:
                found = msgspec.to_builtins(defined[0][1])
        return found

    def _name(self, slice_id: str) -> str:
        if not SLICE_ID.fullmatch(slice_id):
            raise StoreFailed(
                f"{shortened(slice_id)!r} is no slice id: 1 to 63 small letters and digits"
            )
        return f"{self._prefix}{slice_id}.json"

    def _names(self, folder: Path) -> list[str]:
        with store_failures("list", folder):
            try:
                return sorted(path.name for path in folder.iterdir())
            except FileNotFoundError:
                return []

    # Others' specs.

    def _specs(self, folder: Path) -> Iterator[tuple[Path, CdiSpec]]:
        for name in self._names(folder):
            path = folder / name
            # Slices' specs, of whatever vendor, define no device that another one is made of.
            if path.suffix not in _SUFFIXES or name.startswith("hami-"):
                continue
            spec = self._spec(path)
            if spec is not None:
                yield path, spec

    def _spec(self, path: Path) -> CdiSpec | None:
        """Read a spec again if its file changed; report a broken one once."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._log.warning("a CDI spec is skipped", path=str(path), problem=error.strerror)
            return None
        try:
            status = os.fstat(fd)
            version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            known = self._read.get(path)
            if known is not None and known.version == version:
                return known.spec
            spec = self._parsed(path, _content(fd, status))
        except OSError as error:
            self._log.warning("a CDI spec is skipped", path=str(path), problem=error.strerror)
            return None
        finally:
            os.close(fd)
        self._read[path] = _Read(version, spec)
        return spec

    def _parsed(self, path: Path, data: bytes) -> CdiSpec | None:
        try:
            if path.suffix == ".json":
                return msgspec.json.decode(data, type=CdiSpec)
            return msgspec.convert(_from_yaml(data), CdiSpec)
        except (msgspec.MsgspecError, yaml.YAMLError, ValueError, RecursionError) as error:
            problem = " ".join(str(error).split())
            self._log.warning("a CDI spec is skipped", path=str(path), problem=shortened(problem))
            return None


def _content(fd: int, status: os.stat_result) -> bytes:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    if status.st_size > _LONGEST_SPEC:
        raise OSError(errno.EFBIG, f"it is larger than {_LONGEST_SPEC} bytes")
    return read_at_most(fd, _LONGEST_SPEC)


def _from_yaml(data: bytes) -> Any:
    """With libyaml where PyYAML has it: ten times as fast, and these files are long."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(data, Loader=loader)  # noqa: S506 -- both are safe loaders
