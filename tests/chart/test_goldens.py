"""A change of what an example becomes is seen in review."""

from __future__ import annotations

import pytest

from ..kubernetes.chart import EXAMPLES
from .goldens import FOLDER, golden


def test_there_is_one_for_every_example():
    assert {path.stem for path in FOLDER.iterdir()} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_becomes_what_it_did(name):
    found = (FOLDER / f"{name}.yaml").read_text()
    assert golden(name) == found, "run python -m tests.chart.goldens, and look at the difference"
