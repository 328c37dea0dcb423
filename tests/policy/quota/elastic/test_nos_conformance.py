"""The tables of nos' own tests, with its rule that cpu and memory are always limited.

cpu in milli, memory in bytes. Where nos' test contradicts its code, the code is followed.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from hami.domain.kubernetes.objects import Container, Pod, PodSpec, Resources
from hami.policy.quota.elastic import Leaf, Options, pod_vector
from hami.policy.quota.elastic.vector import slice_gb

from .builders import UNITS, G, a_book, a_claim, a_leaf, a_member, capacities, labels

STRICT = Options(strict_core=True)
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
EPHEMERAL = "ephemeral-storage"


def plain(gb_per_gpu: int, **asks: int) -> dict[str, int]:
    """The vector of a pod that asks memory, cpu and GPUs of another device plugin."""
    texts = {"memory": str(asks.get("memory", 0)), "cpu": f"{asks.get('cpu', 0)}m",
             GPU: str(asks.get("gpu", 0))}  # fmt: skip
    pod = Pod(spec=PodSpec(containers=[Container(resources=Resources(requests=texts))]))
    return pod_vector(pod, None, UNITS, gb_per_gpu)


# Admission (nos: PreFilter); 8 GB a GPU.

ONE = [(a_leaf("ns1", {"memory": 1000}), {})]
BOUND = [(a_leaf("ns1", {"memory": 1000, G: 40}), {"memory": 300, G: 32})]
TWO = [*BOUND, (a_leaf("ns2", {"memory": 5000, G: 48}), {})]
MAX = {"memory": 2000, G: 800}
FULL = [
    (a_leaf("ns1", {"memory": 1000, G: 40}, max=MAX), {"memory": 1800, G: 32}),
    (a_leaf("ns2", {"memory": 1000, G: 8}, max=MAX), {"memory": 200, G: 8}),
]


@pytest.mark.parametrize(
    ("quotas", "pod", "expected"),
    [
        pytest.param(ONE, ("ns1", 500, 0, 0), True, id="memory within min"),
        pytest.param(ONE, ("ns1", 10, 0, 0), True, id="little memory"),
        pytest.param(ONE, ("ns1", 10, 10, 0), False, id="cpu that no quota names"),
        pytest.param(ONE, ("ns1", 0, 0, 1), True, id="a GPU that no quota names"),
        pytest.param(BOUND, ("ns1", 500, 0, 1), True, id="memory and a GPU within min"),
        pytest.param(BOUND, ("ns1", 1800, 0, 0), False, id="more memory than all min"),
        pytest.param(BOUND, ("ns1", 0, 0, 2), False, id="more GPU memory than all min"),
        pytest.param(TWO, ("ns1", 500, 0, 1), True, id="another quota idle: a little"),
        pytest.param(TWO, ("ns1", 1800, 0, 0), True, id="another quota idle: its memory is borrowed"),
        pytest.param(TWO, ("ns1", 0, 0, 6), True, id="another quota idle: its GPU memory is borrowed"),
        pytest.param(FULL, ("ns2", 500, 0, 0), False, id="another quota has borrowed the memory"),
        pytest.param(FULL, ("ns2", 0, 0, 2), False, id="and the GPU memory"),
    ],
)  # fmt: skip
def test_prefilter(quotas, pod, expected):
    used = [a_member(f"{leaf.namespace}/used", held) for leaf, held in quotas]
    book = a_book(*(leaf for leaf, _ in quotas), members=used, options=STRICT)
    namespace, memory, cpu, gpu = pod
    asked = plain(8, memory=memory, cpu=cpu, gpu=gpu)
    assert (not book.refusals(a_claim(f"{namespace}/new", asked))) is expected


@pytest.mark.parametrize(
    ("used", "most", "asked", "over"),
    [
        pytest.param({"cpu": 0}, None, {"cpu": 100}, False, id="max not enforced"),
        pytest.param({"cpu": 100}, {"cpu": 100}, {"cpu": 100}, True, id="used all"),
        pytest.param({"cpu": 50}, {"cpu": 100}, {"cpu": 50}, False, id="exactly"),
        pytest.param({G: 20, MIG: 2}, {G: 40}, {MIG: 1}, False, id="a slice that is not limited"),
        pytest.param({G: 20, MIG: 2}, {G: 25, MIG: 0}, {G: 20, MIG: 1}, True, id="more than two limits"),
        pytest.param({"memory": 30}, {"memory": 20, G: 10}, {G: 1}, True, id="over in what it does not ask"),
        pytest.param({}, {}, {"memory": 1}, True, id="an empty max refuses all memory"),
        pytest.param({}, {}, {G: 1}, False, id="an empty max refuses no GPU memory"),
    ],
)  # fmt: skip
def test_used_over_max_with(used, most, asked, over):
    leaf = a_leaf("a", dict.fromkeys([*used, *asked, "cpu", "memory"], 1000), max=most)
    book = a_book(leaf, members=[a_member("a/used", used)], options=STRICT)
    found = [refusal.rule for refusal in book.refusals(a_claim("a/new", asked))]
    assert ("max" in found) is over


def test_aggregated_used_over_min_with():
    leaves = [a_leaf(f"n{i}", {"cpu": least}) for i, least in enumerate((20, 10, 10))]
    book = a_book(*leaves, members=[a_member("n1/used", {"cpu": 40})], options=STRICT)
    (refusal,) = book.refusals(a_claim("n0/new", {"cpu": 10}))
    assert (refusal.rule, refusal.used, refusal.asked, refusal.limit) == ("pool", 40, 10, 40)


# Fair share.

EQ1 = ({"cpu": 10, "memory": 10, "pods": 10, GPU: 5, G: 64, "new": 3},
       {"cpu": 5, "memory": 5, "pods": 5, GPU: 0, G: 10, "new": 1})  # fmt: skip
EQ2 = ({"cpu": 30, "memory": 30, EPHEMERAL: 30, "pods": 30, GPU: 3, G: 24},
       {"cpu": 35, "memory": 35, EPHEMERAL: 0, "pods": 5, GPU: 0, G: 10})  # fmt: skip
EQ3 = ({"cpu": 20, "memory": 20, EPHEMERAL: 20, "pods": 0},
       {"cpu": 10, "memory": 10, EPHEMERAL: 10, "pods": 0})  # fmt: skip
EMPTY = ({}, {})


def quotas(*some):
    leaves = [a_leaf(f"eq-{i}", least) for i, (least, _) in enumerate(some, start=1)]
    used = [a_member(f"eq-{i}/used", held) for i, (_, held) in enumerate(some, start=1)]
    return a_book(*leaves, members=used, options=STRICT), leaves


@pytest.mark.parametrize(
    ("some", "expected"),
    [
        pytest.param([EMPTY, ({"cpu": 100, "memory": 1000, "pods": 10}, {"cpu": 50, "memory": 50, "pods": 5})],
                     {}, id="guaranteed nothing beside another"),
        pytest.param([EMPTY, EMPTY], {}, id="nobody is guaranteed anything"),
        pytest.param([EQ1, EQ2, EQ3], {"cpu": 2, "memory": 2, "pods": 7, "new": 2, GPU: 5, G: 49}, id="three quotas"),
    ],
)  # fmt: skip
def test_guaranteed_over_quotas(some, expected):
    book, leaves = quotas(*some)
    assert {r: n for r, n in book.guaranteed(leaves[0]).items() if n} == expected


def test_guaranteed_over_quotas_of_an_unknown_quota():
    book, _ = quotas(EQ1)
    with pytest.raises(KeyError):
        book.guaranteed(Leaf(namespace="x", name="x", namespaces=("x",), min={}))


HUGE = dict.fromkeys(("cpu", "memory", "pods", EPHEMERAL, G, GPU), 2**63 - 1)
HALF, PART = Fraction(1, 2), Fraction
P1 = {"cpu": 50, "memory": 10, "pods": 10, GPU: 5, G: 64, "new": 3}
P2 = {"cpu": 30, "memory": 30, EPHEMERAL: 30, "pods": 30, GPU: 3, G: 24}
P3 = {"cpu": 20, "memory": 60, EPHEMERAL: 20}


@pytest.mark.parametrize(
    ("least", "expected"),
    [
        pytest.param([{}], {}, id="empty"),
        pytest.param([HUGE, {}], dict.fromkeys(HUGE, 1), id="beside an empty one"),
        pytest.param([HUGE], dict.fromkeys(HUGE, 1), id="alone, with the largest numbers"),
        pytest.param([{"cpu": 10, "memory": 10, GPU: 10}, {"cpu": 10, "pods": 10, G: 10}],
                     {"cpu": HALF, "memory": 1, GPU: 1}, id="two with different resources"),
        pytest.param([P1, P2, P3], {"cpu": HALF, "memory": PART(1, 10), "pods": PART(1, 4), "new": 1,
                                    G: PART(64, 88), GPU: PART(5, 8)}, id="three"),
    ],
)  # fmt: skip
def test_guaranteed_over_quota_percentages(least, expected):
    book, leaves = quotas(*((amounts, {}) for amounts in least))
    assert {r: part for r, part in book.share(leaves[0]).items() if part} == expected
    whole = {r: sum(book.share(leaf)[r] for leaf in leaves) for r in book.share(leaves[0])}
    promised = {r: sum(amounts.get(r, 0) for amounts in least) for r in whole}
    assert whole == {r: 1 if promised[r] else 0 for r in whole}


@pytest.mark.parametrize(
    ("some", "expected"),
    [
        pytest.param([], {}, id="nobody"),
        pytest.param([({"cpu": 100, "memory": 200, EPHEMERAL: 5, "pods": 10, GPU: 5, G: 5},
                       {"memory": 100, GPU: 5})],
                     {"cpu": 100, "memory": 100, EPHEMERAL: 5, "pods": 10, GPU: 0, G: 5}, id="one"),
        pytest.param([({"cpu": 10, "memory": 10, GPU: 1}, {"cpu": 11, "memory": 30, GPU: 2}),
                       ({"cpu": 300, "memory": 200, EPHEMERAL: 5, "pods": 5, GPU: 5}, {"cpu": 200}),
                       ({"cpu": 100, "memory": 200, EPHEMERAL: 5, "pods": 5, GPU: 5, G: 5}, {"memory": 10, GPU: 1})],
                     {"cpu": 200, "memory": 390, EPHEMERAL: 10, "pods": 10, GPU: 9, G: 5},
                     id="who is over takes nothing from what others leave"),
    ],
)  # fmt: skip
def test_aggregated_over_quotas(some, expected):
    book, _ = quotas(*some)
    assert {r: n for r, n in book.available.items() if r in expected} == expected
    least = {r: sum(amounts.get(r, 0) for amounts, _ in some) for r in book.available}
    assert all(n <= least[r] for r, n in book.available.items())


# Reserve and Unreserve; 16 GB a GPU.

BEFORE = {"cpu": 1000, "memory": 200, GPU: 2, G: 32}
AFTER = {"cpu": 4000, "memory": 350, GPU: 5, G: 80}
PODS = [(50, 1000, 1), (100, 2000, 0), (0, 0, 2)]


def test_reserve_and_unreserve():
    leaf = a_leaf("a", {"cpu": 1, "memory": 1, G: 1})
    book = a_book(leaf, members=[a_member("a/before", BEFORE)], options=STRICT)
    reserved = [a_member(f"a/p{i}", plain(16, memory=memory, cpu=cpu, gpu=gpu))
                for i, (memory, cpu, gpu) in enumerate(PODS)]  # fmt: skip
    for member in reserved:
        book.put(member)
    assert book.used(leaf) == AFTER
    for member in reserved:
        book.drop(member.uid)
    assert book.used(leaf) == BEFORE


def test_a_pod_may_be_taken_out_that_was_never_in():
    leaf = a_leaf("a", {"cpu": 1})
    book = a_book(leaf, members=[a_member("a/before", BEFORE)])
    book.drop("a/p0")
    assert book.used(leaf) == BEFORE


# Sets of quotas (nos: Infos.Add and Infos.Update).


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param([], [], {}, id="none and none"),
        pytest.param([], [a_leaf("ns-1", 1, "ns-2")], {"ns-1": "q", "ns-2": "q"}, id="both added"),
        pytest.param([a_leaf("ns-1", 1)], [a_leaf("ns-1", 1), a_leaf("ns-2", 1, "ns-3", "ns-4")],
                     {"ns-1": "q", "ns-2": "q", "ns-3": "q", "ns-4": "q"}, id="one kept, three added"),
        pytest.param([a_leaf("ns-1", 1, "ns-2")], [a_leaf("ns-2", 1, "ns-3", name="new")],
                     {"ns-2": "new", "ns-3": "new"}, id="others under a new name"),
    ],
)  # fmt: skip
def test_sets_of_quotas(before, after, expected):
    book = a_book(*before)
    book.set_quotas(after)
    found = {f"ns-{i}": book.leaf_of(f"ns-{i}") for i in range(1, 6)}
    assert {ns: leaf.name for ns, leaf in found.items() if leaf} == expected


# GPU memory.


@pytest.mark.parametrize(
    ("asked", "gb"),
    [
        pytest.param({"cpu": "1", "memory": "1"}, 0, id="no GPU"),
        pytest.param({GPU: "2"}, 16, id="two GPUs of 8 GB"),
        pytest.param({GPU: "2", "foo/1g32gb": "2", "nvidia.com/mig-2g.32gb": "3"}, 112, id="and three slices of 32"),
    ],
)  # fmt: skip
def test_compute_required_gpu_memory_gb(asked, gb):
    pod = Pod(spec=PodSpec(containers=[Container(resources=Resources(requests=asked))]))
    assert pod_vector(pod, None, UNITS, 8).get(G, 0) == gb


@pytest.mark.parametrize(
    ("name", "gb"),
    [
        pytest.param("", 0, id="empty"),
        pytest.param(GPU, 0, id="a whole GPU"),
        pytest.param("nvidia.com/mig-1g12agb", 0, id="malformed"),
        pytest.param("nvidia.com/mig-1g.1gb15gb", 0, id="two numbers"),
        pytest.param("foo/1g2gb", 0, id="another vendor"),
        pytest.param("nvidia.com/mig-1g.16gb", 16, id="a MIG slice"),
        pytest.param("nvidia.com/mig-1g.10gb.me", 10, id="with an attribute"),
        pytest.param("nvidia.com/gpu-10gb", 10, id="fix: an MPS slice counts"),
        pytest.param("nvidia.com/gpu-10gb.shared", 0, id="not quite an MPS slice"),
    ],
)
def test_extract_memory_gb(name, gb):
    assert slice_gb(name) == gb


# Status and labels (nos' operator); 16 GB a GPU.

LEAST = {"cpu": 4000, G: 64}


def gpus(name: str, *asked: dict[str, str], running: bool = True):
    containers = [Container(resources=Resources(requests=texts)) for texts in asked]
    vector = pod_vector(Pod(spec=PodSpec(containers=containers)), None, UNITS, 16)
    return a_member(name, vector, running=running)


@pytest.mark.parametrize(
    ("leaf", "namespace"),
    [
        pytest.param(a_leaf("ns-1", LEAST, max={"cpu": 6000, G: 80}), "ns-1", id="single"),
        pytest.param(a_leaf("ns-1", LEAST, "ns-2", max={"cpu": 6000, G: 80}), "ns-2", id="composite"),
    ],
)  # fmt: skip
def test_status_is_what_runs_of_the_resources_in_min(leaf, namespace):
    asked = ({"cpu": "500m", GPU: "1"}, {"cpu": ".5", GPU: "2", "nvidia.com/mig-1g.1gb": "1"})
    book = a_book(leaf, members=[gpus(f"{namespace}/p", *asked, running=False)])
    assert book.running_used(leaf) == {"cpu": 0, G: 0}
    book.put(gpus("other/p", *asked))
    book.put(gpus(f"{namespace}/p", *asked))
    assert book.running_used(leaf) == {"cpu": 1000, G: 49}
    assert UNITS.texts(book.running_used(leaf)) == {"cpu": "1", G: "49"}
    assert labels(book, leaf) == ["in"]


@pytest.mark.parametrize(
    "leaf",
    [pytest.param(a_leaf("a", 64, max=96), id="single"),
     pytest.param(a_leaf("a", 64, "b", max=96), id="composite")],
)  # fmt: skip
def test_a_pod_larger_than_min_is_over_quota(leaf):
    book = a_book(leaf, a_leaf("other", 1600), members=[gpus("a/p", {GPU: "5"}, {GPU: "5"})])
    assert (book.running_used(leaf), labels(book, leaf)) == ({G: 160}, ["over"])


def test_when_a_pod_ends_the_next_is_in_quota():
    leaf = a_leaf("a", 64)
    book = a_book(leaf, members=[gpus("a/p1", {GPU: "2"}), gpus("a/p2", {GPU: "3"})])
    assert (book.running_used(leaf), labels(book, leaf)) == ({G: 80}, ["in", "over"])
    book.drop("a/p1")
    assert (book.running_used(leaf), labels(book, leaf)) == ({G: 48}, ["in"])


def test_when_min_is_lowered_the_name_decides_between_equals():
    leaf = a_leaf("a", 64)
    book = a_book(leaf, members=[gpus("a/pod-2", {GPU: "2"}), gpus("a/pod-1", {GPU: "2"})])
    assert labels(book, leaf) == ["in", "in"]
    lower = a_leaf("a", 32)
    book.set_quotas([lower])
    assert capacities(book, lower) == {"a/pod-1": "in-quota", "a/pod-2": "over-quota"}


def test_a_composite_takes_over_the_namespaces_of_single_quotas():
    singles = [a_leaf(f"n{i}", 10) for i in (1, 2, 3)]
    composite = a_leaf("n1", 30, "n2")
    book = a_book()
    book.set_quotas([*singles, composite])
    assert book.leaves == [composite, singles[2]]
