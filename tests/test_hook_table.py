"""A hook is spelled once: hookspec, a line in the table of calls, and a default or a mark."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NoReturn, get_args, get_type_hints

import pytest

from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.kubernetes.objects import Container, Metadata, Node, Pod
from hami.domain.requests import DeviceRequest, FitContext
from hami.hookspecs import HAMI_API, NodeHooks, SchedulerHooks, hook_names, hookimpl
from hami.hookspecs.answer_types import AnswerType, WrongAnswer
from hami.hookspecs.hook import Hook
from hami.vendors.boundary import Vendor
from hami.vendors.implementations import Defaults
from hami.vendors.registry import Vendors

from .builders import a_plugin, answering

ROOT = Path(__file__).parents[1]
SPECS = {
    name: getattr(hooks, name)
    for hooks in (SchedulerHooks, NodeHooks)
    for name in hook_names(hooks)
}
OF_THE_REGISTRY = {"hami_vendors", "hami_simulated_annotations"}
TABLE = {hook.name: hook for hook in Vendor.hooks_in_order()}
DEFAULTS = {
    name: function
    for name, function in inspect.getmembers(Defaults({}))
    if hasattr(function, "hami_impl")
}
EVERY_HOOK = [pytest.param(TABLE[name], id=name) for name in TABLE]
CHECKED = [pytest.param(hook, id=name) for name, hook in TABLE.items() if hook.check]


def types_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Arguments and ``return``, as they are declared where the function is written."""
    return get_type_hints(inspect.unwrap(function))


def alternatives(kind: Any) -> set[Any]:
    return set(get_args(kind)) if isinstance(kind, UnionType) else {kind}


def test_every_hook_that_a_vendor_is_asked_has_one_line_in_the_table() -> None:
    lines = [hook.name for hook in Vendor.hooks_in_order()]
    assert lines == [name for name in SPECS if name not in OF_THE_REGISTRY]


@pytest.mark.parametrize("hook", EVERY_HOOK)
def test_a_hook_is_a_method_of_its_own_name(hook: Hook[..., Any, Any]) -> None:
    assert hook.name == f"hami_{hook.word}"
    assert hook.spec is SPECS[hook.name]
    assert ("profile", *hook.arguments) == tuple(inspect.signature(hook.spec).parameters)[1:]


@pytest.mark.parametrize("name", [name for name in SPECS if name != "hami_simulated_annotations"])
def test_a_hook_has_a_default_or_is_required(name: str) -> None:
    required = hasattr(SPECS[name], "hami_required")
    assert required is (name not in DEFAULTS)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_takes_and_answers_what_its_hookspec_says(name: str) -> None:
    takes, specified = types_of(DEFAULTS[name]), types_of(SPECS[name])
    answer, specified_answer = takes.pop("return"), specified.pop("return")
    assert takes.items() <= specified.items()
    assert alternatives(answer) <= alternatives(specified_answer)


@pytest.mark.parametrize("hook", CHECKED)
def test_a_check_takes_what_its_hookspec_says(hook: Hook[..., Any, Any]) -> None:
    specified = types_of(hook.spec)
    offered = specified | {"answer": specified["return"], "return": str}
    assert types_of(hook.check).items() <= offered.items()


@pytest.mark.parametrize("hook", EVERY_HOOK)
def test_a_refusal_takes_what_its_hookspec_says(hook: Hook[..., Any, Any]) -> None:
    offered = types_of(hook.spec) | {"problem": str, "error": BaseException | None}
    takes = types_of(hook.refusal)
    refusal = alternatives(takes.pop("return")) - {NoReturn, NoneType}
    assert refusal <= alternatives(offered.pop("return"))
    assert takes.items() <= offered.items()


def test_a_check_that_takes_what_is_not_offered_is_found_at_import() -> None:
    def wrong(answer: object, stat: object) -> str:
        return ""

    with pytest.raises(TypeError, match="wrong takes stat; it is offered answer, profile, request"):
        Hook(SchedulerHooks.hami_charge, check=wrong, refusal=lambda: None)


# Calls.

DEVICE = Device(id="d0", vendor="ACME", memory_mib=100)
STATE = DeviceState(DEVICE)
REQUEST = DeviceRequest(vendor="ACME", count=1, memory_mib=10)
CONTEXT = FitContext(
    pod=Pod(metadata=Metadata(name="p", uid="u")),
    node=Node(metadata=Metadata(name="n1")),
    container=Container(name="c"),
)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda v: v.charge(REQUEST, STATE, CONTEXT), id="by position"),
        pytest.param(lambda v: v.charge(ctx=CONTEXT, state=STATE, request=REQUEST), id="by name"),
        pytest.param(lambda v: v.charge(REQUEST, ctx=CONTEXT, state=STATE), id="mixed"),
    ],
)
def test_a_hook_is_called_by_position_or_by_name(call: Callable[[Vendor], Any]) -> None:
    assert call(Vendors.of({"acme": a_plugin()})["ACME"]) == Grant(
        device_id="d0", vendor="ACME", memory_mib=10
    )


def test_a_plugins_hook_gets_its_arguments_by_name_in_any_order() -> None:
    class Acme:
        HAMI_API = HAMI_API
        hami_vendors = staticmethod(a_plugin().hami_vendors)

        @hookimpl
        def hami_charge(self, ctx: FitContext, state: DeviceState) -> Grant:
            return Grant(device_id=state.device.id, vendor="ACME", memory_mib=len(ctx.pod.name))

    charged = Vendors.of({"acme": Acme()})["ACME"].charge(REQUEST, STATE, CONTEXT)
    assert charged == Grant(device_id="d0", vendor="ACME", memory_mib=1)


@pytest.mark.parametrize(
    ("hook", "answer", "problem"),
    [
        pytest.param("charge", None, "returned None instead of Grant | Reason", id="a union"),
        pytest.param("accept", 7, "returned 7 instead of Reason | None", id="or nothing"),
        pytest.param("choose", 7, "returned 7 instead of Sequence[Grant] | Rejected | None", id="a sequence"),
        pytest.param("choose", [7], "returned 7 instead of Grant", id="in a sequence"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_named_beside_what_the_hookspec_says(
    hook: str, answer: Any, problem: str
) -> None:
    seen = []
    plugin = a_plugin(answering(f"hami_{hook}", answer))
    vendor = Vendors.of({"acme": plugin}, on_failure=seen.append)["ACME"]
    offered = {"charge": STATE, "accept": STATE, "choose": [(STATE, DEVICE)]}[hook]
    asked = (REQUEST, offered, (), CONTEXT) if hook == "accept" else (REQUEST, offered, CONTEXT)
    getattr(vendor, hook)(*asked)
    assert [str(failure) for failure in seen] == [
        f"acme: hami_{hook} of vendor ACME failed: {problem}"
    ]


# Types of answers.


@pytest.mark.parametrize(
    ("kind", "answer", "kept"),
    [
        pytest.param(int | None, None, None, id="nothing, where it may be"),
        pytest.param(Sequence[int], [1, 2], (1, 2), id="a list becomes a tuple"),
        pytest.param(Sequence[int] | str, "text", "text", id="a class before the sequence"),
        pytest.param(Mapping[str, Sequence[int]], {"a": [1]}, {"a": (1,)}, id="sequences in a mapping"),
        pytest.param(float, 3, 3.0, id="a whole number for a float"),
    ],
)  # fmt: skip
def test_an_answer_of_its_type_is_kept(kind: Any, answer: Any, kept: Any) -> None:
    found = AnswerType.of(kind)(answer)
    assert (found, type(found)) == (kept, type(kept))


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        pytest.param(int | None, "1", "int | None", id="none of a union"),
        pytest.param(Sequence[int], {1}, "Sequence[int]", id="a set is no sequence"),
        pytest.param(Sequence[int] | str, 7, "Sequence[int] | str", id="neither class nor sequence"),
        pytest.param(Mapping[str, Sequence[int]], {"a": ["1"]}, "int", id="deep in a mapping"),
        pytest.param(Mapping[str, int], {1: 1}, "str", id="a key"),
        pytest.param(float, "1", "float", id="a text for a float"),
        pytest.param(NoneType, 0, "None", id="something for nothing"),
    ],
)  # fmt: skip
def test_an_answer_of_another_type_is_refused(kind: Any, answer: Any, expected: str) -> None:
    with pytest.raises(WrongAnswer) as caught:
        AnswerType.of(kind)(answer)
    assert str(caught.value).endswith(f" instead of {expected}")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(Sequence[int] | Mapping[str, int], id="a sequence or a mapping"),
        pytest.param(frozenset[int], id="a set of numbers"),
    ],
)
def test_an_annotation_by_which_no_answer_is_read_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError):
        AnswerType.of(kind)


# One hook more.

NEW_HOOK = {
    "hami/hookspecs/node.py": '''
    @one
    def hami_pause(  # type: ignore[empty-body]
        self, profile: VendorProfile, slice: Slice, seconds: int
    ) -> Sequence[int]:
        """Stop a slice for a while.

        Called: never.
        Args:
            profile: the vendor in question.
            slice: which one.
            seconds: for how long.
        Returns: the processes that stopped.
        Order: none.
        Errors: an exception is raised.
        Must not: take long.
        Since: API 1.
        """
''',
    "hami/hookspecs/calls.py": """
    pause = Hook(
        NodeHooks.hami_pause,
        check=lambda answer, seconds: "" if seconds else f"stopped {answer} for no time",
        refusal=refusals.raised,
    )
""",
    "hami/policy/profile/defaults.py": '''

@hookimpl
def pause(seconds: int) -> Sequence[int]:
    """One process for each second."""
    return tuple(range(seconds))
''',
}
"""All that is written for one hook more, at the end of each file."""

ONE_HOOK_MORE = """
import json
import hami
from hami.hookspecs import HAMI_API, hookimpl
from hami.domain.errors import HamiError
from hami.domain.profile import NodeAnnotations, PodAnnotations, ResourceNames, VendorProfile
from hami.vendors.registry import Vendors
from tests import test_contract_docs as docs
from tests.builders import a_plugin, answering


def asked(*hooks, seconds=2, **others):
    vendor = Vendors.of({"acme": a_plugin(*hooks), **others})["ACME"]
    try:
        return [*vendor.pause("a slice", seconds=seconds)]
    except HamiError as error:
        return str(error)


class Doubling:
    HAMI_API = HAMI_API

    @hookimpl(wrapper=True)
    def hami_pause(self):
        return (yield) * 2


def misspelt():
    def hami_pawse(): ...
    try:
        Vendors.of({"acme": a_plugin(hookimpl(hami_pawse))})
    except HamiError as error:
        return "did you mean hami_pause?" in str(error)


def listed():
    try:
        docs.test_the_page_shows_each_hook_with_its_arguments("hami_pause")
    except AssertionError:
        return False


print(json.dumps({
    "from": hami.__file__,
    "default": asked(),
    "own": asked(answering("hami_pause", [7])),
    "wrapped": asked(wrap=Doubling()),
    "another type": asked(answering("hami_pause", ["7"])),
    "wrong": asked(answering("hami_pause", [7]), seconds=0),
    "raises": asked(answering("hami_pause", ValueError("boom"))),
    "misspelt": misspelt(),
    "documented": docs.problems_of(docs.HOOKS["hami_pause"]),
    "listed": listed(),
}))
"""


def test_one_hook_more_is_a_hookspec_a_default_and_a_line_in_the_table(tmp_path: Path) -> None:
    for part in ("domain", "wire", "hookspecs", "policy", "vendors"):
        shutil.copytree(ROOT / "hami" / part, tmp_path / "hami" / part)
    for file in (
        "hami/__init__.py",
        "tests/builders.py",
        "tests/test_contract_docs.py",
        "docs/plugins.md",
    ):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    for file, text in NEW_HOOK.items():
        with (tmp_path / file).open("a") as end:
            end.write(text)
    done = subprocess.run(
        [sys.executable, "-c", ONE_HOOK_MORE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    failed = "acme: hami_pause of vendor ACME failed"
    assert json.loads(done.stdout) == {
        "from": str(tmp_path / "hami" / "__init__.py"),
        "default": [0, 1],
        "own": [7],
        "wrapped": [0, 1, 0, 1],
        "another type": f"{failed}: returned '7' instead of int",
        "wrong": f"{failed}: stopped (7,) for no time",
        "raises": f"{failed}: ValueError: boom",
        "misspelt": True,
        "documented": [],
        "listed": False,
    }
