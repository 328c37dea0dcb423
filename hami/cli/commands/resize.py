"""``hami resize``: asks the scheduler, as whoever the kubeconfig says."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import typer

from hami.cli.commands.api_client import Api
from hami.cli.terminal.escaping import visible
from hami.cli.terminal.messages import warn
from hami.domain.errors import ConfigError
from hami.domain.kubernetes.quantity import BadQuantity, requested_memory
from hami.kube.identity.credentials import find_credentials
from hami.kube.identity.settings import KubeSettings
from hami.wire.bodies import BadBody
from hami.wire.resizes import ContainerBody, NotResizedBody, ResizeBody, ResizedBody, read_resize

VARIABLE = "HAMI_TOKEN"
OK = 200
EVERY, MOST = 1.0, 30
"""Seconds between two tries, and how many there are, while the answer is "try again"."""
_AGAIN = frozenset({"Busy", "Conflict", "NotReady", "Unknown"})

Answer = ResizedBody | NotResizedBody


@dataclass(frozen=True, slots=True)
class Caller:
    """``authorization`` is a header; ``namespace`` the one that is meant where none is named."""

    authorization: str
    namespace: str


def read_wanted(
    container: str, memory: str | None, cores: int | None, limit: int | None, request_id: str
) -> ResizeBody:
    """What the command line asks for.

    Raises:
        ConfigError: nothing, or what cannot be.
    """
    if memory is None and cores is None and limit is None:
        raise ConfigError("name what is to change: --gpumem, --gpucores or --gpucores-limit")
    mib = None if memory is None else requested_memory(memory)
    if isinstance(mib, BadQuantity):
        raise ConfigError(f"--gpumem {mib}; write for example 12Gi")
    one = ContainerBody(name=container, memory_mib=mib, cores=cores, cores_limit=limit)
    asked = ResizeBody(request_id=request_id or uuid.uuid4().hex, containers=(one,))
    read = read_resize(msgspec.json.encode(asked))
    if isinstance(read, BadBody):
        raise ConfigError(read.problem)
    return read


def find_caller(
    kubeconfig: Path | None, context: str | None, environ: Mapping[str, str] = os.environ
) -> Caller:
    """Who asks: ``HAMI_TOKEN``, or the token that the kubeconfig's user has for the API server.

    Raises:
        ConfigError: there is none.
    """
    settings = KubeSettings(kubeconfig=kubeconfig, context=context)
    if token := environ.get(VARIABLE, "").strip():
        try:
            namespace = asyncio.run(find_credentials(settings, environ)).namespace
        except ConfigError:
            namespace = "default"
        return Caller(f"Bearer {token}", namespace)
    found = asyncio.run(find_credentials(settings, environ))
    authorization = found.authorization() or ""
    if not authorization.startswith("Bearer "):
        raise ConfigError(
            f"{found.source}: its user has no token, and a client certificate is shown to the API "
            f"server alone; set {VARIABLE}, for example to what kubectl create token ACCOUNT prints"
        )
    return Caller(authorization, found.namespace)


def ask(
    api: Api,
    caller: Caller,
    about: tuple[str, str],
    wanted: ResizeBody,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer:
    """Ask, and ask again while the answer is to try again; ``about`` is namespace and pod.

    Raises:
        ConfigError: nobody answers, or nobody that knows this question.
    """
    body = msgspec.json.encode(wanted)
    tries = 0
    while True:
        answer = _read(*api.post(body, caller.authorization, "pods", *about, "resize"))
        tries += 1
        if isinstance(answer, ResizedBody) or answer.reason not in _AGAIN or tries == MOST:
            return answer
        if tries == 1:
            warn(f"{answer.message}; trying again")
        sleep(EVERY)


def _read(status: int, body: bytes) -> Answer:
    try:
        if status == OK:
            return msgspec.json.decode(body, type=ResizedBody)
        return msgspec.json.decode(body, type=NotResizedBody)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"the server answers {status} and no resize: it is no hami scheduler, or an older one; "
            "name the scheduler's metrics address with --server or HAMI_SERVER"
        ) from error


def is_refused(answer: Answer) -> bool:
    return isinstance(answer, NotResizedBody)


def as_json(answer: Answer) -> dict[str, Any]:
    """The answer as it came."""
    shown: dict[str, Any] = msgspec.to_builtins(answer)
    return shown


def show(answer: Answer) -> None:
    """For people: what the pod has now on standard output, or why not on standard error."""
    if isinstance(answer, ResizedBody):
        typer.echo(visible(f"{answer.pod} on {answer.node}: generation {answer.generation}"))
        for container in answer.containers:
            for grant in container.grants:
                what = f"{grant.memory_mib} MiB, {grant.cores} %"
                if container.cores_limit:
                    what += f", up to {container.cores_limit} %"
                typer.echo(visible(f"  {container.name}: {grant.device}: {what}"))
        return
    texts = [f"{one.reason}: {one.message}" for one in answer.refusals]
    for text in texts or [f"{answer.reason}: {answer.message}"]:
        typer.echo(visible(f"hami: not resized: {text}"), err=True)
