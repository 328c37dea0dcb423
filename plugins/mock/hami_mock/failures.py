"""Failures on demand: which hook fails, because a pod, a node or the section ``mock:`` asks so."""

from __future__ import annotations

import time
from collections.abc import Mapping

from hami.domain.errors import Malformed
from hami.domain.kubernetes.objects import Node, Pod
from hami_mock.settings import SCHEDULER_HOOKS, MockSettings

FAIL = "mock.hami.io/fail"
"""On a pod or a node: a comma list of ``hook=raise``, hooks of the scheduler's side."""


class MockFailure(RuntimeError):
    """The failure that was asked for."""


def asked_failures(annotations: Mapping[str, str]) -> frozenset[str] | Malformed:
    """The hooks that this pod or node wants to fail."""
    text = annotations.get(FAIL, "")
    hooks = set()
    for position, entry in enumerate(text.split(",") if text else (), start=1):
        hook, _, how = (part.strip() for part in entry.partition("="))
        if hook not in SCHEDULER_HOOKS or how != "raise":
            return Malformed(
                annotation=FAIL,
                position=f"entry {position}",
                text=entry,
                problem="is not <hook of the scheduler's side>=raise",
            )
        hooks.add(hook)
    return frozenset(hooks)


def fail_if_asked(hook: str, settings: MockSettings, *owners: Pod | Node) -> None:
    """Fail as the settings, a pod or a node ask; a malformed wish asks for nothing here.

    Raises:
        MockFailure: names the hook and who asked.
    """
    how = settings.fail.get(hook)
    if how == "raise":
        raise MockFailure(f"{hook} fails because mock.fail says so")
    if how == "slow":
        time.sleep(settings.slow_seconds)
    for owner in owners:
        if FAIL not in owner.annotations:
            continue
        asked = asked_failures(owner.annotations)
        if not isinstance(asked, Malformed) and hook in asked:
            kind = type(owner).__name__.lower()
            raise MockFailure(
                f"{hook} fails because {FAIL} of {kind} {owner.metadata.name} says so"
            )
