"""``hami quota``: who holds elastic quota, who borrows, and what a pod waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from hami.cli.commands.api_client import Api
from hami.cli.commands.quota_tables import show_pod, show_quotas
from hami.cli.terminal.messages import warn
from hami.domain.errors import ConfigError, HamiError
from hami.scheduler.readonly.models import ElasticQuotaPage, WhyView

EVERY = 2.0
"""Seconds between two queries of ``--watch``."""

_PAGE = "1000"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaQuestion:
    """What to ask about: all quotas, one namespace's quota, or one pod."""

    pod: tuple[str, str] | None = None
    namespace: str = ""
    pods: bool = False


def read_question(pod: str | None, namespace: str | None, *, pods: bool) -> QuotaQuestion:
    """The question on the command line.

    Raises:
        ConfigError: the pod is not NAMESPACE/NAME, or an option makes no sense beside it.
    """
    if pod is None:
        return QuotaQuestion(namespace=namespace or "", pods=pods)
    where, slash, name = pod.partition("/")
    if not slash:
        where, name = namespace or "", pod
    elif namespace is not None and namespace != where:
        raise ConfigError(f"--namespace {namespace} contradicts {pod}; leave one out")
    if not where or not name or "/" in name:
        raise ConfigError(f"{pod}: is no pod; write NAMESPACE/NAME")
    if pods:
        raise ConfigError("--pods lists the pods of quotas; leave it out beside a pod")
    return QuotaQuestion(pod=(where, name))


def ask(api: Api, question: QuotaQuestion) -> ElasticQuotaPage | WhyView:
    """Ask the scheduler; the whole answer, all pages together.

    Raises:
        ConfigError: no scheduler answers, or there is no such pod.
    """
    if question.pod is not None:
        namespace, name = question.pod
        why = api.get(WhyView, "pods", namespace, name, "why")
        if why is None:
            raise ConfigError(
                f"the scheduler knows no pod {namespace}/{name}; look with kubectl get pods -A"
            )
        return why
    query = {"limit": _PAGE, "namespace": question.namespace}
    query["pods"] = "true" if question.pods else "false"
    whole = _page(api, query)
    while whole.more:
        # Every page has the pool of all quotas: the last page's is as good as the first's.
        following = _page(api, query | {"continue": whole.more})
        whole = following.model_copy(update={"items": [*whole.items, *following.items]})
    return whole


def _page(api: Api, query: dict[str, str]) -> ElasticQuotaPage:
    page = api.get(ElasticQuotaPage, "elasticquotas", **query)
    if page is None:
        raise ConfigError("the scheduler knows no elastic quotas; bring it up to date")
    return page


def waits(answer: ElasticQuotaPage | WhyView) -> bool:
    """Whether the answer is about a pod that has no place yet."""
    return isinstance(answer, WhyView) and answer.phase == "waiting"


def as_json(answer: ElasticQuotaPage | WhyView) -> dict[str, object]:
    """The answer as in the API, without the field that only joins pages."""
    shown: dict[str, object] = answer.model_dump(mode="json", by_alias=True)
    shown.pop("continue", None)
    return shown


def show(console: Console, answer: ElasticQuotaPage | WhyView, namespace: str = "") -> None:
    """Show people the answer; ``namespace`` is the one whose quota was asked for, if any."""
    if isinstance(answer, WhyView):
        show_pod(console, answer)
    else:
        show_quotas(console, answer, namespace)


def watch(
    look: Callable[[], ElasticQuotaPage | WhyView],
    console: Console | None,
    sleep: Callable[[float], None] = time.sleep,
    *,
    namespace: str = "",
) -> None:
    """Ask and show again and again, until Ctrl-C; with ``console`` None, one JSON object a line.

    When the scheduler stops answering for a while, a warning says so and the query is repeated.

    Raises:
        HamiError: the first query failed.
    """
    answer = look()
    try:
        while True:
            if console is None:
                typer.echo(msgspec.json.encode(as_json(answer)))
            else:
                _redraw(console, answer, namespace)
            sleep(EVERY)
            answer = _looked_again(look, answer)
    except KeyboardInterrupt:
        return


def _looked_again(
    look: Callable[[], ElasticQuotaPage | WhyView], before: ElasticQuotaPage | WhyView
) -> ElasticQuotaPage | WhyView:
    try:
        return look()
    except HamiError as error:
        warn(f"{error}; what is shown is old")
        return before


def _redraw(console: Console, answer: ElasticQuotaPage | WhyView, namespace: str) -> None:
    if console.is_terminal:
        console.clear()
        console.print(Text(f"every {EVERY:g} s; Ctrl-C ends it", style="dim"))
    show(console, answer, namespace)
