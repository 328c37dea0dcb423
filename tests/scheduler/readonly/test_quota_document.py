"""docs/quota.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import yaml
from hami_nvidia import plugin as nvidia

from hami.domain.kubernetes.objects import (
    CompositeElasticQuota,
    ElasticQuota,
    PodStatus,
    QuotaTree,
    ResourceQuota,
)
from hami.durations import go_duration
from hami.policy.quota.constraint import read_quota
from hami.policy.quota.elastic import CAPACITY_LABEL, GPU_MEMORY, Units
from hami.policy.quota.elastic.objects import reading as objects
from hami.policy.quota.elastic.objects.validation import validate
from hami.scheduler.publish import elastic_status
from hami.scheduler.settings.config import SchedulerConfig
from hami.vendors.registry import Vendors

from ..builders import Cluster, a_node, a_pod, an_elastic_quota, granted
from .test_quota_command import shown

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "quota.md").read_text()
GB = 1024
KINDS = {
    "ResourceQuota": ResourceQuota,
    "ElasticQuota": ElasticQuota,
    "CompositeElasticQuota": CompositeElasticQuota,
    "QuotaTree": QuotaTree,
}


def rows(heading: str) -> list[list[str]]:
    """The first table after a line that contains ``heading``, without its own heading."""
    table = TEXT.partition(heading)[2].partition("\n|")[2].partition("\n\n")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    return [[cell.strip() for cell in line] for line in lines]


def manifests() -> list[object]:
    blocks = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    found = [document for block in blocks for document in yaml.safe_load_all(block)]
    return [msgspec.convert(document, KINDS[document["kind"]]) for document in found]


@pytest.fixture(scope="module")
def vendors() -> Vendors:
    return Vendors.of({"nvidia": nvidia})


def test_every_kind_of_quota_is_shown():
    assert {type(quota) for quota in manifests()} == set(KINDS.values())


def test_the_manifests_are_without_fault_and_are_let_in_together(vendors):
    units = Units.of(vendors)
    quotas = manifests()
    elastic = [quota for quota in quotas if not isinstance(quota, ResourceQuota)]
    for quota in quotas:
        if isinstance(quota, ResourceQuota):
            constraint, problems = read_quota(quota, vendors)
            assert (len(constraint.limits), problems) == (3, ())
        else:
            verdict = validate(quota, "CREATE", elastic, units)
            assert (verdict.refusals, verdict.warnings) == ((), ())


def test_what_the_example_of_a_tree_says_is_read(vendors):
    (quota,) = [q for q in manifests() if isinstance(q, ElasticQuota) and q.labels]
    leaf, problems = objects.read_leaf(quota, Units.of(vendors))
    assert problems == ()
    assert (leaf.parent, leaf.weight) == ("vision", 2)
    assert (leaf.borrow, leaf.lend) == ({GPU_MEMORY: 40}, {GPU_MEMORY: 8})


# The example of nos.


def the_example() -> Cluster:
    """As its first table says."""
    cluster = Cluster(a_node("n1", devices=8, memory=10 * GB))
    device = 0
    quotas = []
    for team, least, used, _ in rows("borrows 30 GB that"):
        quotas.append(an_elastic_quota(team, int(least), resource=GPU_MEMORY))
        for number in range(int(used) // 10):
            pod = a_pod(f"p{number}", mem=10 * GB, namespace=team)
            pod = granted(pod, "n1", f"n1-d{device}:{10 * GB}")
            cluster.sees(msgspec.structs.replace(pod, status=PodStatus(phase="Running")))
            device += 1
    cluster.limits(*quotas)
    return cluster


def test_the_example_begins_as_its_table_says():
    book = the_example().state.ledger.elastic
    found = [
        [leaf.namespace, *(str(amounts.get(GPU_MEMORY, 0)) for amounts in
                           (leaf.min, book.running_used(leaf), book.guaranteed(leaf)))]
        for leaf in book.leaves
    ]  # fmt: skip
    assert found == rows("borrows 30 GB that")


def test_hami_quota_prints_what_is_shown():
    (block,) = re.findall(r"<!-- quota -->\n```\n(.*?)\n```", TEXT, re.DOTALL)
    assert block == shown(the_example())


# Names.


def test_every_option_is_there_with_its_default():
    fields = SchedulerConfig.model_fields
    about = {
        name: field
        for name, field in fields.items()
        if name.startswith(("quota_", "preemption_", "priority_")) and name != "quota_admission"
    }
    expected = {}
    for name, field in about.items():
        default = field.default
        if isinstance(default, bool):
            text = str(default).lower()
        else:
            text = go_duration(default) if isinstance(default, float) else str(default)
        expected[name.replace("_", "-")] = f"`{text}`"
    assert {row[0].strip("`"): row[1] for row in rows("## Options")} == expected


def test_every_word_of_an_option_is_known():
    for name, default, text in rows("## Options"):
        field = SchedulerConfig.model_fields[name.strip("`").replace("-", "_")]
        known = [word for word in get_args(field.annotation) if isinstance(word, str)]
        said = re.findall(r"`(\w+)`", f"{default} {text}")
        assert set(known) <= set(said), name


@pytest.mark.parametrize(
    "word",
    [
        CAPACITY_LABEL, objects.PARENT_LABEL, objects.WEIGHT_LABEL, objects.BORROW_ANNOTATION,
        objects.LEND_ANNOTATION, objects.PREEMPTIBLE, elastic_status.RESERVED,
        elastic_status.BORROWED, elastic_status.LENT, elastic_status.GUARANTEED, "HAMI_SERVER",
    ],
)  # fmt: skip
def test_every_label_and_annotation_is_named(word):
    assert word in TEXT


def test_every_link_leads_somewhere():
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", TEXT):
        target = DOCS / (path or "quota.md")
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
        assert not anchor or anchor in anchors, (path, anchor)


def test_no_line_of_prose_is_wider_than_the_rest():
    prose = [line for line in TEXT.splitlines() if not line.startswith("|")]
    assert [line for line in prose if len(line) > 104] == []
