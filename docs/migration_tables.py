"""Writes what docs/migrate-from-hami.md says of keys: ``python docs/migration_tables.py``.

A test holds the page equal to it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from rich.console import Console

from hami.cli.migrating.showing import show
from hami.migration.conversion import convert
from hami.migration.keys import HamiKey, Verdict
from hami.migration.steps import Naming, beside_values
from hami.migration.table import hami_keys

PAGE = Path(__file__).parent / "migrate-from-hami.md"
EXAMPLE = """
scheduler:
  overwriteEnv: "true"
  defaultSchedulerPolicy: {gpuSchedulerPolicy: topology-aware}
  kubeScheduler: {enabled: true}
devicePlugin:
  deviceSplitCount: 4
  image: {tag: v2.10.0}
  hostNetwork: true
shceduler: {}
"""


def usual() -> Naming:
    """HAMi's own names, with which the page is written."""
    return Naming(strategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}})


def shown() -> str:
    """What ``hami chart convert`` says of the example, on a terminal of 100 columns."""
    printed = io.StringIO()
    show(Console(file=printed, width=100), convert(yaml.safe_load(EXAMPLE)), defaults=False)
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines())


def beside() -> str:
    return yaml.safe_dump(beside_values(usual()), sort_keys=False).strip()


def rows() -> Iterator[str]:
    yield "| HAMi's key | | |"
    yield "|---|---|---|"
    for key in hami_keys().values():
        yield f"| `{key.name}` | {key.verdict} | {_said(key)} |"


def _said(key: HamiKey) -> str:
    return f"`{key.text}`" if key.verdict is Verdict.SAME else key.text.replace("|", "\\|")


def written(page: str) -> str:
    """The page with its three generated parts as they are now."""
    parts = (
        (r"(<!-- shown -->\n```\n).*?(```)", f"{shown()}\n"),
        (r"(<!-- beside -->\n```yaml\n).*?(```)", f"{beside()}\n"),
        (r"(<!-- table -->\n).*?(<!-- end -->)", "\n".join(rows()) + "\n"),
    )
    for pattern, text in parts:
        page = re.sub(
            pattern, lambda found, text=text: found[1] + text + found[2], page, flags=re.DOTALL
        )
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
