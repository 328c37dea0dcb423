"""One hook as the core calls it.

A :class:`Hook` takes its name, its arguments and its answer's type from the hookspec, and adds what
the hookspec cannot say: which answers of the right type are wrong all the same, and what the core
is told in place of a wrong one. The table of hooks is ``hami.hookspecs.calls``; who really calls
the plugin is a :class:`HookCalls`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from operator import itemgetter
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    get_type_hints,
    overload,
)

from hami.domain.profile import VendorProfile
from hami.hookspecs.answer_types import AnswerType

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Refusal = TypeVar("Refusal")


class Hook(Generic[Asked, Answer, Refusal]):
    """A hook of one vendor: in a class body it makes a method of :class:`HookCalls`.

    The method takes what the hookspec takes, but for the profile, by position or by name.

    Args:
        spec: the hookspec.
        check: what is wrong with an answer of the declared type, or nothing. It takes by name what
            it needs of ``answer``, ``profile`` and the hook's arguments.
        refusal: what the method returns when the plugin fails. It takes by name what it needs of
            ``problem``, ``error`` (what the plugin raised, or None), ``profile`` and the hook's
            arguments.
        decides: the plugin's answer may refuse a device. The vectorised prefilter then leaves
            memory and cores to the exact fit.
    """

    def __init__(
        self,
        spec: Callable[Concatenate[Any, VendorProfile, Asked], Answer],
        *,
        check: Callable[..., str] | None = None,
        refusal: Callable[..., Refusal],
        decides: bool = False,
    ) -> None:
        self.spec = spec
        self.name = spec.__name__
        self.arguments = _names(spec)[2:]
        given = ("profile", *self.arguments)
        self.check = taking(check, ("answer", *given)) if check else None
        self.refusal: Callable[..., Refusal] = taking(refusal, ("problem", "error", *given))
        self.decides = decides

    def answer_type(self) -> AnswerType:
        """What the hookspec says that an answer is."""
        return AnswerType.of(get_type_hints(self.spec)["return"])

    def in_order(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """All arguments by position, of some that were given so and others by name."""
        return (*arguments, *(named[name] for name in self.arguments[len(arguments) :]))

    def __set_name__(self, owner: type, word: str) -> None:
        self.word = word

    @overload
    def __get__(self, calls: None, owner: type) -> Self: ...

    @overload
    def __get__(self, calls: HookCalls, owner: type) -> Callable[Asked, Answer | Refusal]: ...

    def __get__(
        self, calls: HookCalls | None, owner: type
    ) -> Self | Callable[Asked, Answer | Refusal]:
        if calls is None:
            return self
        method = calls.call_of(self)
        # An attribute of the object comes before this descriptor: the next time it is found there.
        setattr(calls, self.word, method)
        return method


def taking(
    function: Callable[..., Any], offered: Sequence[str], *, names: Sequence[str] | None = None
) -> Callable[..., Any]:
    """A function of all arguments that are ``offered``, by position.

    It calls ``function`` with those that it takes by name: ``names``, where they are known.

    Raises:
        TypeError: it takes what is not offered.
    """
    names = _names(function) if names is None else names
    if tuple(names) == tuple(offered):
        return function
    if unknown := [name for name in names if name not in offered]:
        taken, given = ", ".join(unknown), ", ".join(offered)
        raise TypeError(f"{function.__qualname__} takes {taken}; it is offered {given}")
    places = [offered.index(name) for name in names]
    pick = itemgetter(*places) if len(places) > 1 else lambda given: [given[at] for at in places]
    return wraps(function)(lambda *given: function(*pick(given)))


def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


class HookCalls(ABC):
    """What has hooks as methods."""

    @abstractmethod
    def call_of(self, hook: Hook[Asked, Answer, Refusal]) -> Callable[Asked, Answer | Refusal]:
        """How this hook is called; asked once for each."""

    @classmethod
    def hooks_in_order(cls) -> Iterator[Hook[..., Any, Any]]:
        """Every hook that is a method here, in the order of the code."""
        for base in cls.__mro__:
            yield from (hook for hook in vars(base).values() if isinstance(hook, Hook))
