"""The chart's objects, rendered by Helm itself."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from .client import Object

CHART = Path(__file__).parents[2] / "charts" / "hami"

# In a process of its own: Helm is a Go library, and its runtime would stay in ours.
_RENDER = """
import json, sys
import helm_python
values, about = json.load(sys.stdin)
with helm_python.Chart.load(sys.argv[1]) as chart:
    json.dump(chart.render(values, **about), sys.stdout)
"""
_VALIDATE = """
import json, sys
import helm_python
with helm_python.Chart.load(sys.argv[1]) as chart:
    try:
        chart.validate_schema(chart.merge_values(json.load(sys.stdin)))
        json.dump("", sys.stdout)
    except helm_python.HelmValuesError as error:
        json.dump(str(error), sys.stdout)
"""
_LINT = """
import json, sys
import helm_python
json.dump(helm_python.lint(sys.argv[1], strict=True), sys.stdout)
"""


def rendered(
    values: Mapping[str, Any] | None = None, *, name: str = "hami", namespace: str = "hami"
) -> list[Object]:
    """Every object of the release, in the order of file names; skips the test without Helm."""
    texts = _texts(json.dumps([dict(values or {}), {"name": name, "namespace": namespace}]))
    files = sorted(file for file in texts if file.endswith(".yaml"))
    return [found for file in files for found in yaml.safe_load_all(texts[file]) if found]


def notes(values: Mapping[str, Any] | None = None) -> str:
    """What Helm says after an installation."""
    texts = _texts(json.dumps([dict(values or {}), {"name": "hami", "namespace": "hami"}]))
    (found,) = (text for file, text in texts.items() if file.endswith("NOTES.txt"))
    return found


@functools.cache
def _texts(question: str) -> dict[str, str]:
    """What each file of the chart becomes."""
    return _python(_RENDER, json.loads(question))


def refusal(values: Mapping[str, Any]) -> str:
    """What the chart's schema says against these values; empty: nothing."""
    said: str = _python(_VALIDATE, dict(values))
    return said


def example(name: str) -> Object:
    """The values of an example of the chart."""
    return yaml.safe_load((CHART / "examples" / f"{name}.yaml").read_text())


EXAMPLES = tuple(sorted(path.stem for path in (CHART / "examples").iterdir()))


def complaints() -> list[str]:
    """The complaints of ``helm lint --strict`` that are worse than a recommendation."""
    report = _python(_LINT, None)
    said = [f"{m['path']}: {m['error']}" for m in report["messages"] if m["severity"] > 1]
    return said + report["errors"]


def values() -> Object:
    """The chart's defaults."""
    return yaml.safe_load((CHART / "values.yaml").read_text())


def _python(program: str, question: object) -> Any:
    if find_spec("helm_python") is None:
        pytest.skip("needs Helm: pip install helm-python-sdk")
    done = subprocess.run(
        [sys.executable, "-c", program, CHART],
        input=json.dumps(question),
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
