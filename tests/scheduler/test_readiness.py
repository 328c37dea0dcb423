"""A service that was ready once is never unready for what a start waits for."""

from __future__ import annotations

from hami.scheduler.readiness import Readiness


def test_what_is_awaited_is_missing_until_all_of_it_is_there():
    awaited = ["pods", "signing keys"]
    readiness = Readiness(lambda: list(awaited))
    assert readiness.missing() == ["pods", "signing keys"]
    awaited.clear()
    assert not readiness.missing()
    assert readiness.complete


def test_whoever_was_told_that_nothing_is_missing_can_rely_on_it():
    awaited: list[str] = []
    readiness = Readiness(lambda: list(awaited))
    assert not readiness.missing()
    awaited.append("signatures")
    assert not readiness.missing()


def test_what_a_start_ends_with_comes_once_and_before_anybody_is_served():
    awaited, begun = ["nodes"], []
    readiness = Readiness(lambda: list(awaited), lambda: begun.append(readiness.complete))
    readiness.missing()
    assert begun == []
    awaited.clear()
    readiness.missing()
    readiness.missing()
    assert begun == [False]
