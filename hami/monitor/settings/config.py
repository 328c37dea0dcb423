"""The monitor's configuration: every setting with its type, its default and its rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from hami.http.addresses import Bind, parse_bind
from hami.settings.model import Duration, Setting
from hami.settings.node_process import AbsolutePath, NodeProcessSettings

NOWHERE = "off"


def _is_address(text: str) -> str:
    if text != NOWHERE:
        parse_bind(text)
    return text


def _as_text(value: Any) -> Any:
    """YAML reads off as a boolean."""
    return NOWHERE if value is False else value


def _as_names(value: Any) -> Any:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


class MonitorConfig(NodeProcessSettings):
    """All settings, checked. Immutable; a changed file makes a new one."""

    vendors: Annotated[tuple[str, ...], BeforeValidator(_as_names), Setting(metavar="NAME,...")] = (
        Field((), description="Whose devices are measured, with commas; by default all plugins'.")
    )
    tick: Annotated[Duration, Field(ge=0.1, le=2.0)] = Field(
        0.5, description="How often everything is measured and every container told; 100ms to 2s."
    )
    metrics_bind_address: Annotated[
        str, BeforeValidator(_as_text), AfterValidator(_is_address), Setting(metavar="ADDRESS")
    ] = Field(
        ":9394",
        description="Where /metrics, /api/v1/node, /healthz and /readyz are answered, without TLS; "
        "off: nowhere.",
    )
    legacy_metrics: bool = Field(
        default=False, description="Serve the metrics' names before HAMi 2.9 as well."
    )
    hook_path: Annotated[AbsolutePath, Setting(environment=("HOOK_PATH",), metavar="DIRECTORY")] = (
        Field(
            Path("/usr/local/vgpu"),
            description="HAMi's folder, for slices of its own library in containers/.",
        )
    )

    @property
    def http_bind(self) -> Bind | None:
        where = self.metrics_bind_address
        return None if where == NOWHERE else parse_bind(where)
