"""The command's work, in its order: look, show, ask whether, resize."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import typer

from hami.cli.commands import resize
from hami.cli.commands.api_client import Api
from hami.cli.recommending import tables
from hami.cli.recommending.applying import PodResize, apply
from hami.cli.recommending.monitors import Heard, MonitorPods, ask_cluster, ask_urls
from hami.cli.recommending.workloads import Advice, advise
from hami.cli.terminal.escaping import visible
from hami.cli.terminal.messages import warn
from hami.cli.terminal.width import output_console
from hami.cli.vendor_loading import installed_vendors
from hami.domain.errors import ConfigError
from hami.kube.client import KubeClient
from hami.kube.identity.credentials import find_credentials
from hami.kube.identity.settings import KubeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Whom to ask, and about which pods; ``namespace`` None is the kubeconfig's."""

    namespace: str | None
    all_namespaces: bool
    urls: Sequence[str]
    monitors: MonitorPods
    kubeconfig: Path | None
    context: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """The answer; nodes that did not answer are among ``heard``."""

    heard: Heard
    advices: tuple[Advice, ...]
    profiles: tables.Profiles


def look(question: Question) -> Recommended:
    """Ask the monitors.

    Raises:
        ConfigError: none of them answers, or an option must be changed.
        ApiError: the API server does not list pods.
    """
    if question.all_namespaces and question.namespace is not None:
        raise ConfigError(f"-A contradicts --namespace {question.namespace}; leave one out")
    heard, namespace = asyncio.run(_ask(question))
    # Only for the resources' names: a broken plugin keeps nothing else from being said.
    vendors = installed_vendors({}, on_broken=lambda broken: warn(str(broken)))
    return Recommended(
        heard=heard,
        advices=advise(heard, namespace),
        profiles={key: vendor.profile for key, vendor in vendors.items()},
    )


async def _ask(question: Question) -> tuple[Heard, str]:
    """What was heard, and the namespace that is meant; "" for all."""
    namespace = "" if question.all_namespaces else question.namespace
    if question.urls:
        return await ask_urls(question.urls), namespace or ""
    settings = KubeSettings(kubeconfig=question.kubeconfig, context=question.context)
    if namespace is None:
        namespace = (await find_credentials(settings)).namespace
    async with await KubeClient.connect(settings) as client:
        return await ask_cluster(client, question.monitors, namespace), namespace


def warn_of_silent(heard: Heard) -> None:
    warn(*(f"node {one.who} does not answer: {one.why}" for one in heard.silent))


def show(found: Recommended) -> None:
    """For people."""
    tables.show(output_console(), found.advices)


def as_json(found: Recommended) -> dict[str, Any]:
    return {
        **tables.as_json(found.advices, found.profiles),
        "silent": [{"node": one.who, "why": one.why} for one in found.heard.silent],
    }


def agreed(wanted: Sequence[PodResize], *, yes: bool, asking: bool) -> bool:
    """Whether the pods are to be resized.

    Raises:
        ConfigError: nobody can be asked.
    """
    if not wanted:
        warn("nothing to resize")
        return True
    if yes:
        return True
    if not asking:
        raise ConfigError("--json asks nobody whether to resize; add --yes")
    pods = "1 pod" if len(wanted) == 1 else f"{len(wanted)} pods"
    return typer.confirm(f"resize {pods} now?", err=True)


def carry_out(
    found: Recommended, wanted: Sequence[PodResize], api: Api, caller: resize.Caller, *, quiet: bool
) -> tuple[list[dict[str, Any]], bool]:
    """Resize them; each answer as JSON, and whether one was refused.

    Raises:
        ConfigError: the scheduler does not answer.
    """
    answers: list[dict[str, Any]] = []
    refused = False
    for one, answer in apply(wanted, partial(resize.ask, api, caller)):
        answers.append({"pod": one.full_name, **resize.as_json(answer)})
        refused = refused or resize.is_refused(answer)
        if not quiet:
            if resize.is_refused(answer):
                typer.echo(visible(f"hami: {one.full_name}:"), err=True)
            resize.show(answer)
    if not quiet:
        _tell_templates(found)
    return answers, refused


def _tell_templates(found: Recommended) -> None:
    lines = list(tables.templates(found.advices, found.profiles))
    if lines:
        typer.echo("templates are as they were; new pods ask for this once you write it there:")
    for line in lines:
        typer.echo(visible(f"  {line}"))
