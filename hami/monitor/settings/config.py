"""The monitor's configuration: every setting with its type, its default and its rules."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from hami.http.addresses import Bind, parse_bind
from hami.settings.model import Duration, Setting
from hami.settings.node_process import NodeProcessSettings


def _is_address(text: str) -> str:
    if text:
        parse_bind(text)
    return text


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
    http_bind_address: Annotated[
        str, AfterValidator(_is_address), Setting(flags=("metrics-bind-address",))
    ] = Field(
        ":9394", description="Where health, metrics and the node's API are served; empty: nowhere."
    )

    @property
    def http_bind(self) -> Bind | None:
        return parse_bind(self.http_bind_address) if self.http_bind_address else None
