"""What the contract says about itself, checked: docstrings, and the page for plugin writers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hami.domain import reasons
from hami.hookspecs import ENTRY_POINT_GROUP, HAMI_API, NodeHooks, SchedulerHooks, hookspec

SECTIONS = ("Called", "Args", "Returns", "Order", "Errors", "Must not", "Since")
PAGE = Path(__file__).parents[1] / "docs" / "plugins.md"


def hooks_of(spec: type) -> dict[str, Callable[..., Any]]:
    return {name: hook for name, hook in vars(spec).items() if hasattr(hook, "hami_spec")}


HOOKS = {**hooks_of(SchedulerHooks), **hooks_of(NodeHooks)}


def problems_of(hook: Callable[..., Any]) -> list[str]:
    """One line per section or argument that the hook's docstring misses or repeats."""
    doc = inspect.getdoc(hook) or ""
    problems = [
        f"{count} {section!r} sections"
        for section in SECTIONS
        if (count := len(re.findall(rf"^{section}:", doc, re.MULTILINE))) != 1
    ]
    arguments = list(inspect.signature(hook).parameters)[1:]
    problems += [
        f"argument {name!r} is described {count} times"
        for name in arguments
        if (count := len(re.findall(rf"^    {name}: \S", doc, re.MULTILINE))) != 1
    ]
    described = re.search(r"^Args:\n((?: +.*\n)+)", doc, re.MULTILINE)
    named = re.findall(r"^    (\w+): ", described[1] if described else "", re.MULTILINE)
    return problems + [f"{name!r} is no argument" for name in named if name not in arguments]


def order_of(hook: Callable[..., Any]) -> list[str]:
    return re.findall(rf"^({'|'.join(SECTIONS)}):", inspect.getdoc(hook) or "", re.MULTILINE)


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_documents_every_section_and_argument_once(name: str) -> None:
    assert problems_of(HOOKS[name]) == []
    assert order_of(HOOKS[name]) == list(SECTIONS)


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_says_since_which_version_it_exists(name: str) -> None:
    since = re.search(r"^Since: API (\d+)\.$", inspect.getdoc(HOOKS[name]) or "", re.MULTILINE)
    assert since is not None
    assert 1 <= int(since[1]) <= HAMI_API


@pytest.mark.parametrize(
    "name", [name for name in HOOKS if name not in ("hami_vendors", "hami_simulated_annotations")]
)
def test_every_hook_that_speaks_for_a_vendor_takes_its_profile_first(name: str) -> None:
    assert list(inspect.signature(HOOKS[name]).parameters)[1] == "profile"


def test_the_checks_above_can_fail() -> None:
    class Spec:
        @hookspec
        def hami_thing(self, profile: object, extra: object) -> None:
            """Do a thing.

            Called: once.
            Called: again.
            Args:
                profile: the vendor.
                other: nothing that it takes.
            Since: API 1.
            """

    assert problems_of(Spec.hami_thing) == [
        "2 'Called' sections",
        "0 'Returns' sections",
        "0 'Order' sections",
        "0 'Errors' sections",
        "0 'Must not' sections",
        "argument 'extra' is described 0 times",
        "'other' is no argument",
    ]


# docs/plugins.md


@pytest.mark.parametrize(
    ("heading", "spec"),
    [
        pytest.param("### Scheduler hooks", SchedulerHooks, id="the page lists scheduler hooks"),
        pytest.param("### Node hooks", NodeHooks, id="the page lists node hooks"),
    ],
)
def test_the_page_lists_every_hook_in_the_order_of_the_code(heading: str, spec: type) -> None:
    section = PAGE.read_text().split(f"\n{heading}\n", 1)[1].split("\n### ")[0].split("\n## ")[0]
    listed = re.findall(r"^\| \*{0,2}`(hami_\w+)", section, re.MULTILINE)
    assert listed == list(hooks_of(spec))


@pytest.mark.parametrize("name", HOOKS)
def test_the_page_shows_each_hook_with_its_arguments(name: str) -> None:
    arguments = ", ".join(list(inspect.signature(HOOKS[name]).parameters)[1:])
    assert f"`{name}({arguments})`" in PAGE.read_text()


def test_the_page_shows_the_required_hooks_in_bold() -> None:
    bold = re.findall(r"^\| \*\*`(hami_\w+)", PAGE.read_text(), re.MULTILINE)
    assert bold == [name for name, hook in HOOKS.items() if hasattr(hook, "hami_required")]


def test_the_page_names_the_version_and_the_group() -> None:
    page = PAGE.read_text()
    assert f"HAMI_API = {HAMI_API}" in page
    assert f'[project.entry-points."{ENTRY_POINT_GROUP}"]' in page


def test_the_page_names_every_reason_that_a_vendor_may_reuse() -> None:
    words = {r.word for r in vars(reasons).values() if isinstance(r, reasons.Reason)}
    assert [w for w in sorted(words) if f"`{w}`" not in PAGE.read_text()] == []
