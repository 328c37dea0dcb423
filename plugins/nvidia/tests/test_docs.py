"""What docs/nvidia.md promises is what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hami_nvidia import NvidiaVendor
from hami_nvidia.health.xids import NEEDS_RESET, PROGRAMS_FAULT
from hami_nvidia.settings.config import NvidiaConfig
from hami_nvidia.settings.node_settings import NodeSettings, node_settings
from hami_nvidia.settings.options import MIG_STRATEGIES, NODE_OPTIONS
from hami_simgpu.gpus import read_gpus

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "nvidia.md").read_text()
CELL = re.compile(r"`([^`]*)`")


def section(name: str) -> str:
    found = re.search(rf"<!-- {name} -->(.*?)<!-- end -->", TEXT, re.DOTALL)
    assert found, f"docs/nvidia.md has no part {name}"
    return found[1]


def code_block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", TEXT, re.DOTALL)
    assert found, f"docs/nvidia.md has no block {name}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


def table_after(heading: str) -> list[list[str]]:
    """The rows of the first table below these words, without its header."""
    lines = TEXT[TEXT.index(heading) :].splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("|"))
    end = next((n for n, line in enumerate(lines[start:], start) if not line.startswith("|")), None)
    return rows("\n".join(lines[start:end]))[1:]


def test_every_option_is_in_the_table_as_it_is():
    _, *listed = rows(section("options"))
    expected = [
        [
            ", ".join(f"`{flag}`" for flag in option.flags),
            ", ".join(f"`{variable}`" for variable in option.variables),
            f"`{option.key}`",
            f"`{option.default}`" if option.default else "",
            option.help,
        ]
        for option in NODE_OPTIONS
    ]
    assert listed == expected


def test_the_further_keys_are_keys_with_these_defaults():
    keys = {f.validation_alias: f for f in NodeSettings.__pydantic_fields__.values()}
    listed = table_after("Further keys there")
    assert len(listed) == 6
    for key, default, _ in listed:
        found = keys[CELL.fullmatch(key)[1]]
        shown = CELL.fullmatch(default)[1] if default else ""
        assert shown == str(
            found.default or {bool: "false", int: "0"}.get(type(found.default), "")
        ), key


def test_resources_are_named_as_by_default():
    named = {CELL.fullmatch(row[0])[1] for row in table_after("## What a pod asks for")}
    found = NvidiaConfig()
    assert named == {
        found.count_name,
        found.memory_name,
        found.percentage_name,
        found.cores_name,
        found.priority_name,
    }


def test_annotations_are_those_that_are_read():
    (profile,) = NvidiaVendor().hami_vendors(config={})
    pod = profile.pod_annotations
    listed = [
        name for row in table_after("Annotations of the pod") for name in CELL.findall(row[0])
    ]
    assert sorted(listed) == sorted(
        [*pod.use_type, *pod.nouse_type, *pod.use_uuid, *pod.nouse_uuid, pod.mode, pod.numa_bind]
    )


def test_strategies_are_all_told():
    rows_ = table_after("`--mig-strategy` offers")
    assert tuple(CELL.fullmatch(row[0])[1] for row in rows_) == MIG_STRATEGIES


def test_the_example_of_nodes_that_differ_is_what_it_says():
    entries = json.loads(code_block("nodeconfig"))["nodeconfig"]
    found = node_settings({"nodeconfig": entries, "node": {"name": "gpu-7"}})
    assert (found.mode, found.split_count, found.memory_scaling) == ("hami-core", 4, 1.5)
    assert (found.filter_uuids, found.filter_indexes) == (frozenset(), frozenset({3}))
    assert node_settings({"nodeconfig": entries[:1]}).mode == "mig"


def test_the_simulated_node_is_one():
    [gpus] = re.findall(r"--simulated-gpus=([^' ]+)", code_block("simulated"))
    assert [(card.name, card.mig) for card in read_gpus(gpus, "worker-1")] == [
        ("NVIDIA A100-SXM4-40GB", True),
        ("NVIDIA A100-SXM4-40GB", True),
        ("Tesla T4", False),
    ]


@pytest.mark.parametrize(("name", "xids"), [("programs", PROGRAMS_FAULT), ("resets", NEEDS_RESET)])
def test_xids_are_listed_as_they_count(name, xids):
    assert {int(number) for number in section(name).split(",")} == xids


def test_the_recovery_time_is_the_default():
    assert f"`--health-recovery` seconds ({NodeSettings().health_recovery:.0f}; 0: never)" in TEXT


@pytest.mark.parametrize("link", re.findall(r"\]\(([a-z-]+\.md)\)", TEXT))
def test_links_lead_somewhere(link):
    assert (DOCS / link).is_file()


@pytest.mark.parametrize(
    "row", table_after("## When something is wrong"), ids=lambda row: row[0][:40]
)
def test_messages_in_the_troubleshooting_table_are_said_by_the_code(row):
    """What is in code marks is a message's text, up to a value in it."""
    package = Path(__file__).parents[1] / "hami_nvidia"
    sources = "".join(path.read_text() for path in package.rglob("*.py"))
    spoken = re.sub(r'"\s*f?"', "", sources).replace("{NAME}", "libvgpu.so")
    spoken = spoken.replace("{settings.cdi_kind}", "nvidia.com/gpu").replace("{MIG_MODE}", "mig")
    for said in CELL.findall(row[0]):
        assert said.startswith("ERROR: ld.so") or said in spoken, said
