"""How a setting is described: type, rule, names elsewhere; and the settings of all commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from hami.durations import go_duration, seconds_of
from hami.kube.identity.settings import KubeSettings

DEFAULT_KUBE_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What a field is besides its type: whether it is ``live``, and its names elsewhere.

    ``live``: a changed file reaches the running process. ``environment`` are variables of other
    components; our own variable wins over them. ``flags`` are other spellings of the flag, without
    dashes. ``metavar`` is the word for its value in the help text, where the type does not give
    one.
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


def is_duration(model: type[BaseModel], name: str) -> bool:
    """Whether the field ``name`` is written as a duration."""
    field = model.model_fields.get(name)
    return field is not None and BeforeValidator(seconds_of) in field.metadata


class ServiceSettings(BaseModel):
    """The settings of every long-running command: its way to the API server, and its log.

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
    """The names of the settings; a command's own come before those that all commands have."""
    shared = ServiceSettings.model_fields
    return (*(name for name in model.model_fields if name not in shared), *shared)


def setting_of(model: type[ServiceSettings], field: str) -> Setting:
    """What the model says about this field; defaults for a field that says nothing."""
    metadata = model.model_fields[field].metadata
    return next((m for m in metadata if isinstance(m, Setting)), Setting())


def key_of(field: str) -> str:
    """A setting's name in the file, and after ``--``."""
    return field.replace("_", "-")
