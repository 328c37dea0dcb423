"""How a setting is described: its type, its rule, who else names it, and what all commands have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from hami.durations import go_duration, seconds_of
from hami.kube.settings import KubeSettings

DEFAULT_KUBE_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Setting:
    """About a field: does a changed file reach the running process, and who else names it.

    ``environment`` are variables of other components, with less precedence than our own;
    ``flags`` are other spellings of the flag, without dashes; ``metavar`` is what its value is
    called in the help text, where the type does not say it.
    """

    live: bool = False
    environment: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    metavar: str = ""


LIVE = Setting(live=True)

Duration = Annotated[
    float, BeforeValidator(seconds_of), PlainSerializer(go_duration, return_type=str)
]
"""Seconds; written as Go does (``5m``, ``28s``)."""
Positive = Annotated[Duration, Field(gt=0)]


class ServiceSettings(BaseModel):
    """What every command that stays has: its way to the API server, and its log.

    Durations are seconds. ``live`` in the fields' :class:`Setting` tells which ones a running
    process takes over; the others need a restart.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)

    # Kubernetes.
    kubeconfig: Path | None = Field(
        None, description="By default $KUBECONFIG, ~/.kube/config, or the pod's service account."
    )
    kube_context: str = Field("", description="The kubeconfig's context; by default the current.")
    kube_qps: float = Field(0.0, ge=0, description="Most API calls per second; 0: no limit.")
    kube_burst: int = Field(10, ge=1, description="How many of them may come at once.")
    kube_timeout: Duration = Field(
        DEFAULT_KUBE_TIMEOUT, description="How long one API call may take; 0: the default."
    )

    # Observation.
    log_level: Annotated[Literal["debug", "info", "warning", "error"], LIVE] = Field(
        "info", description="The least severity that is logged."
    )
    log_format: Literal["json", "console"] = Field(
        "json", description="Logs for programs or for people, on standard error."
    )

    @property
    def kube(self) -> KubeSettings:
        return KubeSettings(
            kubeconfig=self.kubeconfig,
            context=self.kube_context or None,
            qps=self.kube_qps,
            burst=self.kube_burst,
            timeout=self.kube_timeout or DEFAULT_KUBE_TIMEOUT,
        )


def fields_of(model: type[ServiceSettings]) -> tuple[str, ...]:
    """The names of the settings, a command's own before those that all commands have."""
    shared = ServiceSettings.model_fields
    return (*(name for name in model.model_fields if name not in shared), *shared)


def setting_of(model: type[ServiceSettings], field: str) -> Setting:
    """What is known about the field of this name; nothing special by default."""
    metadata = model.model_fields[field].metadata
    return next((m for m in metadata if isinstance(m, Setting)), Setting())


def key_of(field: str) -> str:
    """A setting's name in the file, and after ``--``."""
    return field.replace("_", "-")
