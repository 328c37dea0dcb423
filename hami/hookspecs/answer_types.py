"""Whether an answer has the type that its hookspec declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from hami.domain.errors import shortened

_Reader = Callable[[Any], Any]

_SEQUENCES = (tuple, list, Sequence)
"""The usual two come first, because the abstract class takes longer to ask."""


class WrongAnswer(Exception):
    """A plugin answered what its hook may not answer; the text says what and why."""


@dataclass(frozen=True, slots=True)
class AnswerType:
    """What a hook may answer.

    An instance of ``classes`` is kept as it is. Any other answer is given to ``read``, which
    returns it as the core keeps it: a sequence as a tuple and a mapping as a dict, so that what
    fails when it is read fails there, and a number as a float. ``read`` raises
    :class:`WrongAnswer` for an answer of another type.
    """

    classes: tuple[type, ...]
    read: _Reader

    @classmethod
    def of(cls, kind: Any) -> AnswerType:
        """From a hookspec's annotation: classes, and one sequence, mapping or float at most.

        Raises:
            TypeError: it is something else.
        """
        either = get_args(kind) if isinstance(kind, UnionType) else (kind,)
        classes = tuple(one for one in either if get_origin(one) is None and one is not float)
        others = [one for one in either if one not in classes]
        if len(others) > 1:
            raise TypeError(f"{_words(kind)}: an answer could be any of these")
        refuse = _refuser(_words(kind))
        return cls(classes, _reader(others[0], refuse) if others else refuse)

    def __call__(self, answer: Any) -> Any:
        """The answer as the core keeps it; raises as ``read``."""
        return answer if isinstance(answer, self.classes) else self.read(answer)


def _reader(kind: Any, refuse: _Reader) -> _Reader:
    if kind is float:
        return _number_reader(refuse)
    if get_origin(kind) is Sequence:
        (item,) = map(AnswerType.of, get_args(kind))
        return _sequence_reader(item, refuse)
    if get_origin(kind) is Mapping:
        key, value = map(AnswerType.of, get_args(kind))
        return _mapping_reader(key, value, refuse)
    raise TypeError(f"{_words(kind)} is no type that an answer is read by")


def _number_reader(refuse: _Reader) -> _Reader:
    def read(answer: Any) -> Any:
        return float(answer) if isinstance(answer, int | float) else refuse(answer)

    return read


def _sequence_reader(item: AnswerType, refuse: _Reader) -> _Reader:
    def read(answer: Any) -> Any:
        if not isinstance(answer, _SEQUENCES):
            return refuse(answer)
        return tuple([one if isinstance(one, item.classes) else item.read(one) for one in answer])

    return read


def _mapping_reader(key: AnswerType, value: AnswerType, refuse: _Reader) -> _Reader:
    def read(answer: Any) -> Any:
        if not isinstance(answer, Mapping):
            return refuse(answer)
        return {key(one): value(of_one) for one, of_one in answer.items()}

    return read


def _refuser(words: str) -> _Reader:
    def refuse(answer: Any) -> Any:
        raise WrongAnswer(f"returned {shortened(repr(answer))} instead of {words}")

    return refuse


def _words(kind: Any) -> str:
    """A type as the hookspecs spell it, without its modules."""
    if isinstance(kind, UnionType):
        return " | ".join(map(_words, get_args(kind)))
    if origin := get_origin(kind):
        return f"{origin.__name__}[{', '.join(map(_words, get_args(kind)))}]"
    return "None" if kind is NoneType else str(kind.__name__)
