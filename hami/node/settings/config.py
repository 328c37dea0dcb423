"""The node agent's configuration: every setting with its type, its default and its rules.

One model serves flags, environment, file and documentation. The flag ``--kubelet-dir`` is the key
``kubelet-dir`` of the file and the variable ``HAMI_DEVICE_PLUGIN_KUBELET_DIR``. Where values come
from is :mod:`hami.node.settings.source`'s business, and a vendor's own options are
:mod:`hami.settings.vendor_options`'. What the monitor is told as well is in
:mod:`hami.settings.node_process`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from hami.http.addresses import Bind, parse_bind
from hami.settings.model import LIVE, Positive, Setting
from hami.settings.node_process import AbsolutePath, Directory, NodeProcessSettings

NOWHERE = "off"


def _as_paths(value: Any) -> Any:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


def _as_decision(value: Any) -> Any:
    """YAML reads yes, no, on and off as booleans."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def _as_switch(value: Any) -> Any:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _is_address(text: str) -> str:
    if text != NOWHERE:
        parse_bind(text)
    return text


class AgentConfig(NodeProcessSettings):
    """All settings, checked. Immutable; a changed file makes a new one."""

    # Whose devices, and how pods are found.
    vendor: str = Field("", description="Whose devices: the key of an installed plugin's vendor.")
    identity: Literal["auto", "kubelet", "lock"] = Field(
        "auto",
        description="How it learns for which pod kubelet asks: from kubelet's records, or by "
        "HAMi's node lock; auto: kubelet where kubelet and the runtime can do it.",
    )

    # kubelet.
    kubelet_dir: Directory = Field(
        Path("/var/lib/kubelet/device-plugins"),
        description="Where kubelet keeps its socket, its checkpoint and the plugins' sockets.",
    )
    kubelet_socket: Annotated[
        AbsolutePath | None, Setting(environment=("KUBELET_SOCKET",), metavar="FILE")
    ] = Field(None, description="kubelet's socket; kubelet.sock in kubelet-dir by default.")

    # What containers get.
    usage_tmpfs: Annotated[Literal["auto", "on", "off"], BeforeValidator(_as_switch)] = Field(
        "auto",
        description="A tmpfs for each slice's usage file, which containers can write to; auto: "
        "where mounting is allowed.",
    )
    cdi_dir: Directory = Field(
        Path("/var/run/cdi"), description="Where the CDI specs of slices are written."
    )
    cdi_read_dirs: Annotated[
        tuple[AbsolutePath, ...], BeforeValidator(_as_paths), Setting(metavar="DIRECTORY,...")
    ] = Field(
        (Path("/etc/cdi"), Path("/var/run/cdi")),
        description="Where the vendor's own CDI specs are looked for, with commas; later ones win.",
    )

    # Trust.
    verification_keys: Path | None = Field(
        None, description="Public keys of the scheduler, PEM; read again when the file changes."
    )
    accept_unsigned: Annotated[Literal["auto", "yes", "no"], BeforeValidator(_as_decision)] = Field(
        "auto",
        description="Serve pods whose allocation has no signature; auto: only without "
        "verification-keys.",
    )
    stop_unmounted: Annotated[bool | None, LIVE] = Field(
        None,
        description="Stop a container that runs without its slice; by default where there are "
        "verification-keys.",
    )

    # What it says of itself.
    health_address: Annotated[
        str, BeforeValidator(_as_switch), AfterValidator(_is_address), Setting(metavar="ADDRESS")
    ] = Field(
        ":9396",
        description="Where /healthz, /readyz and /metrics are answered, without TLS; off: nowhere.",
    )

    # Times.
    advertise_interval: Positive = Field(
        30.0,
        description="How soon, at the earliest, the node's annotations are written again when "
        "somebody else has changed them.",
    )
    discover_interval: Positive = Field(
        30.0, description="How often the vendor is asked for its devices again."
    )

    @model_validator(mode="after")
    def _rules(self) -> Self:
        if problem := next(self._problems(), None):
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        """What single values cannot show; the first one is reported."""
        if not self.vendor:
            yield "vendor is not given; name one with --vendor (hami plugins lists them)"
        if not self.node_name:
            yield (
                "node-name is not given; set NODE_NAME from the pod's spec.nodeName, or name the "
                "node with --node-name"
            )
        if self.accept_unsigned == "no" and self.verification_keys is None:
            yield (
                "accept-unsigned no needs keys to verify signatures with; give verification-keys, "
                "or leave accept-unsigned out"
            )

    # What the parts of the agent take.

    @property
    def socket(self) -> Path:
        """kubelet's, where plugins register."""
        return self.kubelet_socket or self.kubelet_dir / "kubelet.sock"

    @property
    def health_bind(self) -> Bind | None:
        """None: nowhere."""
        return None if self.health_address == NOWHERE else parse_bind(self.health_address)

    @property
    def stops_unmounted(self) -> bool:
        """Whether a container without its slice is stopped: where grants are signed, nobody who
        may edit annotations can bring it about, so it is the runtime's or the pod's own doing.
        """
        stop = self.stop_unmounted
        return self.verification_keys is not None if stop is None else stop

    @property
    def takes_unsigned(self) -> bool:
        """Whether an allocation without a signature is taken at its word."""
        if self.accept_unsigned == "auto":
            return self.verification_keys is None
        return self.accept_unsigned == "yes"
