"""What a command says on standard error: warnings, and the error that ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from hami.cli.terminal.escaping import visible
from hami.cli.terminal.interrupts import raise_at_interrupt
from hami.domain.errors import HamiError
from hami.vendors.boundary import VendorFailure

BAD_INPUT = 2


@contextmanager
def answering() -> Iterator[None]:
    """Run a command's work; an error that a person can mend becomes one line and an exit code."""
    raise_at_interrupt()
    try:
        yield
    except HamiError as error:
        typer.echo(f"hami: error: {visible(str(error))}", err=True)
        raise typer.Exit(BAD_INPUT) from error


def warn(*texts: str) -> None:
    """Print one warning line for each text."""
    for text in texts:
        typer.echo(f"hami: warning: {visible(text)}", err=True)


class Failures:
    """Prints each failure of a plugin once, however often it occurs."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, failure: VendorFailure) -> None:
        text = str(failure)
        if text not in self._said:
            self._said.add(text)
            warn(text)
