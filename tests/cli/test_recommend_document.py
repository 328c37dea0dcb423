"""docs/recommend.md says what is so."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.main import get_command

from hami.cli.commands.recommend import app
from hami.cli.recommending import monitors, tables
from hami.cli.recommending.workloads import advise
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import VendorKey
from hami.monitor.node_api import NODE_DECODER, node_json
from hami.monitor.usage_history import HourOfUse
from hami.policy import recommendation as rules
from hami.vendors.registry import load_vendors
from tests.monitor.tables import GIB, NOW, a_node, a_slice, held

PAGE = (Path(__file__).parents[2] / "docs" / "recommend.md").read_text()
PROSE = " ".join(PAGE.split())


def a_pod(name: str, owner: tuple[str, str] | None = None) -> Pod:
    """``owner``: kind and name."""
    about = {"name": name, "uid": f"uid-{name}", "namespace": "team-a", "labels": {"pod-template-hash": "7d"}}  # fmt: skip
    if owner:
        about["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True}]
    return msgspec.convert({"metadata": about, "spec": {"nodeName": "n1"}}, Pod)


def example() -> monitors.Heard:
    """Two pods of a Deployment, one of a StatefulSet that waits, and one that fits."""
    deployment = ("ReplicaSet", "train-7d")
    pods = [
        a_pod("train-7d-a", deployment),
        a_pod("train-7d-b", deployment),
        a_pod("serve-0", ("StatefulSet", "serve")),
        a_pod("notebook"),
    ]
    hours = {
        "train-7d-a": HourOfUse(minutes=60, max_used_bytes=GIB, p95_utilisation=10.0),
        "train-7d-b": HourOfUse(minutes=48, max_used_bytes=GIB // 2, p95_utilisation=12.0),
        "serve-0": HourOfUse(minutes=60, max_used_bytes=4 * GIB, p95_utilisation=30.0, waited_minutes=55),
        "notebook": HourOfUse(minutes=12, max_used_bytes=GIB, p95_utilisation=0.0),
    }  # fmt: skip
    slices = [
        a_slice(pod.name, held(guarantee=30), namespace="team-a", created_at=NOW - 7200)
        for pod in pods
    ]
    body = node_json(a_node(*slices), lambda figures, _: hours[figures.pod])
    return monitors.Heard(nodes=[NODE_DECODER.decode(body)], pods={pod.uid: pod for pod in pods})


def test_the_table_is_what_is_printed():
    printed = io.StringIO()
    tables.show(Console(file=printed, width=110), advise(example(), "team-a"))
    lines = "\n".join(line.rstrip() for line in printed.getvalue().splitlines()).strip("\n")
    (shown,) = re.findall(r"<!-- shown -->\n```\n(.*?)\n?```", PAGE, re.DOTALL)
    assert shown == lines


def test_what_to_write_is_what_is_printed():
    profiles = {key: vendor.profile for key, vendor in load_vendors().items()}
    assert VendorKey("NVIDIA") in profiles
    printed = list(tables.templates(advise(example(), "team-a"), profiles))
    assert f"      {printed[1]}\n" in PAGE


COMMANDS = re.findall(r"^    hami recommend (.*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("arguments", COMMANDS)
def test_every_command_is_understood(arguments):
    get_command(app).make_context("recommend", shlex.split(arguments))


def test_the_rules_have_the_numbers_of_the_code():
    memory, compute = re.findall(r"^\| (?:memory|compute) \| (.*) \|$", PAGE, re.MULTILINE)
    headroom = f"{rules.HEADROOM_PERCENT} % on top"
    assert headroom in memory
    assert f"in steps of {rules.MEMORY_STEP} MiB" in memory
    assert headroom in compute
    assert f"in steps of {rules.CORES_STEP} %" in compute
    assert f"less than {rules.WORTH_PERCENT} % of what is asked is not said" in PROSE
    assert (
        f"{monitors.AT_ONCE} nodes are asked at the same time, each for {monitors.PATIENCE:g} "
        f"seconds and {monitors.MOST_BYTES >> 20} MiB at most" in PROSE
    )


def test_every_reason_is_explained():
    (table,) = re.findall(r"<!-- reasons -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    shown = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))
    assert shown == {why.name: why.value for why in rules.NoRecommendation}


def test_the_monitors_are_those_that_the_command_looks_for():
    defaults = {p.name: p.default for p in get_command(app).params}
    names = re.findall(r"`(app\.kubernetes\.io/[\w=]+)`", PAGE)
    assert ",".join(names) == defaults["monitor_selector"]
    assert f"in namespace `{defaults['monitor_namespace']}`" in PROSE
