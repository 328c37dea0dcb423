"""Resizes the pods that run to what was recommended, each as ``hami resize`` does it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from hami.cli.commands.resize import Answer
from hami.cli.recommending.workloads import Advice, Replica
from hami.policy.recommendation import NoRecommendation
from hami.wire.resizes import ContainerBody, ResizeBody

AskScheduler = Callable[[tuple[str, str], ResizeBody], Answer]
"""Namespace and pod, and what is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResize:
    """All containers of one pod, in one request; ``grows`` by so many MiB in all."""

    namespace: str
    pod: str
    body: ResizeBody
    grows: int

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.pod}"


def resizes(advices: Iterable[Advice]) -> tuple[PodResize, ...]:
    """Those that shrink come first: they make room for the others."""
    found: dict[tuple[str, str, str, int], list[tuple[ContainerBody, int]]] = defaultdict(list)
    for advice in advices:
        for replica, body in _changes(advice):
            about = advice.workload.namespace, replica.pod, replica.pod_uid, replica.generation
            memory = body.memory_mib
            more = 0 if memory is None else sum(memory - u.memory_limit_mib for u in replica.uses)
            found[about].append((body, more))
    made = [
        PodResize(
            namespace=namespace,
            pod=pod,
            body=_request(uid, generation, [body for body, _ in bodies]),
            grows=sum(more for _, more in bodies),
        )
        for (namespace, pod, uid, generation), bodies in found.items()
    ]
    return tuple(sorted(made, key=lambda one: (one.grows, one.namespace, one.pod)))


def _changes(advice: Advice) -> Iterator[tuple[Replica, ContainerBody]]:
    """The replicas that have not yet what is recommended."""
    if isinstance(advice.answer, NoRecommendation):
        return
    memory, cores = advice.answer.memory_mib, advice.answer.cores
    body = ContainerBody(name=advice.container, memory_mib=memory, cores=cores)
    for replica in advice.replicas:
        if any(
            memory not in (None, use.memory_limit_mib) or cores not in (None, use.guarantee)
            for use in replica.uses
        ):
            yield replica, body


def _request(uid: str, generation: int, bodies: Sequence[ContainerBody]) -> ResizeBody:
    """Its id says what changes from which generation on: said twice, it happens once."""
    containers = tuple(sorted(bodies, key=lambda one: one.name))
    text = msgspec.json.encode((uid, generation, containers))
    name = f"recommend-{hashlib.sha256(text).hexdigest()[:24]}"
    return ResizeBody(request_id=name, containers=containers)


def apply(wanted: Iterable[PodResize], ask: AskScheduler) -> Iterator[tuple[PodResize, Answer]]:
    """One after the other; a refusal keeps none of the others.

    Raises:
        ConfigError: the scheduler does not answer.
    """
    for one in wanted:
        yield one, ask((one.namespace, one.pod), one.body)
