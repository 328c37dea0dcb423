"""What a command says on standard error: warnings, and the error that it ends with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from hami.cli.interrupts import raise_at_interrupt
from hami.cli.visible import visible
from hami.domain.errors import HamiError
from hami.vendors.boundary import VendorFailure

BAD_INPUT = 2


@contextmanager
def answering() -> Iterator[None]:
    """A command's work: errors that somebody can mend become one line and an exit code."""
    raise_at_interrupt()
    try:
        yield
    except HamiError as error:
        typer.echo(f"hami: error: {visible(str(error))}", err=True)
        raise typer.Exit(BAD_INPUT) from error


def warn(*texts: str) -> None:
    """A line for each."""
    for text in texts:
        typer.echo(f"hami: warning: {visible(text)}", err=True)


class Failures:
    """Says once what a plugin does wrong, however often it does it."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, failure: VendorFailure) -> None:
        text = str(failure)
        if text not in self._said:
            self._said.add(text)
            warn(text)
