"""A resize is reserved before it is written, charged as the larger of both, and in force once seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.kubernetes.objects import Container, Metadata, Pod, PodSpec, PodStatus, Resources
from hami.domain.resizes import ContainerResize
from hami.domain.units import PodUid, VendorKey
from hami.policy.pods.accounting import Account
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.policy.quota import QuotaLedger
from hami.policy.tables.cluster_table import ClusterTable
from hami.policy.usage import device_usage
from hami.scheduler.bookings.charge_book import ChargeBook
from hami.scheduler.bookings.charges import Charge
from hami.scheduler.bookings.decision import annotations_of, resize_annotations, signed
from hami.scheduler.bookings.resizes import PendingResize
from hami.signing import Signer, new_private_pem
from hami.vendors.registry import Vendors

from ..builders import PROFILE, Cluster, a_node, a_quota, acme, an_elastic_quota, granted
from ..builders import a_pod as a_plain_pod

NOW = datetime(2026, 11, 21, tzinfo=UTC)
PEM = new_private_pem()
KUBELET = {"hami.io/node-identity": "ACME=simulated"}
DEVICE = VendorKey("ACME"), "n1-d0"


def a_pod(name: str = "p", *, mem: int = 1000, cores: int = 10, also: int | None = None,
          init: int | None = None, namespace: str = "default") -> Pod:  # fmt: skip
    """A pod of one container ``main``; with ``also`` of another, ``side``."""

    def container(name: str, mem: int) -> Container:
        limits = {"acme.com/gpu": "1", "acme.com/mem": str(mem), "acme.com/cores": str(cores)}
        return Container(name=name, resources=Resources(limits=limits))

    more = [] if also is None else [container("side", also)]
    return Pod(
        metadata=Metadata(name=name, namespace=namespace, uid=PodUid(f"uid-{namespace}-{name}")),
        spec=PodSpec(
            containers=[container("main", mem), *more],
            init_containers=None if init is None else [container("init", init)],
            scheduler_name="hami-scheduler",
        ),
        status=PodStatus(phase="Running"),
    )


@dataclass
class Node:
    """One node with one device, and what its pods show."""

    identity: dict[str, str] = field(default_factory=lambda: KUBELET)
    profile: str = PROFILE

    def __post_init__(self) -> None:
        self.shown: dict[str, Pod] = {}
        self.nodes = [a_node(**self.identity)]
        self.start()

    def start(self) -> None:
        """A scheduler that knows nothing but what is shown."""
        vendors = Vendors.of({"acme": ProfileVendor(self.profile)})
        self.cluster = Cluster(*self.nodes, signer=Signer.from_pem(PEM), vendors=vendors)
        self.state = self.cluster.state
        self.cluster.sees(*self.shown.values())

    def run(self, pod: Pod) -> PodUid:
        """Bind the pod; nothing if it does not fit."""
        outcome = self.cluster.reserve(pod)
        if isinstance(outcome, PodAllocation):
            written = annotations_of(pod, outcome, self.state.table, NOW)
            decision = signed(pod, outcome, written, self.state.table, self.cluster.signer)
            self.show(decision.pod)
        return pod.uid

    def show(self, pod: Pod) -> None:
        self.shown[pod.uid] = pod
        self.cluster.sees(pod)

    def reserve(self, uid: PodUid, container: str = "", *, mem: int | None = None,
                cores: int | None = None, limit: int | None = None):  # fmt: skip
        wanted = ContainerResize(
            container=container, memory_mib=mem, cores=cores, cores_limit=limit
        )
        return self.state.resizes.reserve(uid, [wanted])

    def written(self, pending: PendingResize) -> Pod:
        """The pod as a write of what is reserved makes it."""
        pod, table = pending.pod, self.state.table
        annotations = resize_annotations(pod, pending.allocation, table, NOW)
        decision = signed(
            pod, pending.allocation, annotations, table, self.cluster.signer, pending.generation
        )
        self.state.resizes.sign(pod.uid, decision.signature)
        return decision.pod

    def resize(self, uid: PodUid, **wanted) -> None:
        pending = self.reserve(uid, **wanted)
        assert isinstance(pending, PendingResize), pending
        self.show(self.written(pending))

    @property
    def used(self) -> tuple[int, int, int]:
        (state,) = self.state.table.device_states("n1", VendorKey("ACME"))
        return state.usage.slots, state.usage.memory_mib, state.usage.cores

    def words(self, refused) -> list[str]:
        assert isinstance(refused, tuple), refused
        return [refusal.reason.word for refusal in refused]


@pytest.fixture
def node() -> Node:
    return Node()


# What it comes to.


@pytest.mark.parametrize(
    ("wanted", "used"),
    [
        pytest.param({"mem": 5000}, (1, 5000, 10), id="it grows"),
        pytest.param({"mem": 500, "cores": 5}, (1, 500, 5), id="it shrinks"),
        pytest.param({"cores": 100}, (1, 1000, 100), id="alone it may have all of the compute"),
        pytest.param({"mem": 8000}, (1, 8000, 10), id="all of the memory"),
        pytest.param({"mem": 1000}, (1, 1000, 10), id="the same again"),
    ],
)
def test_what_a_resize_comes_to(node, wanted, used):
    uid = node.run(a_pod())
    node.resize(uid, **wanted)
    assert node.used == used
    assert node.state.charges[uid].generation == 2
    node.resize(uid, mem=700)
    assert node.state.charges[uid].generation == 3


def test_each_of_several_slices_has_the_new_amounts():
    node = Node()
    node.nodes = [a_node(devices=2, **KUBELET)]
    node.start()
    pod = a_plain_pod(gpu=2, mem=1000)
    node.run(pod)
    node.resize(pod.uid, mem=3000)
    assert [g.memory_mib for g in node.state.charges[pod.uid].account.allocation.grants] == [3000, 3000]  # fmt: skip


def test_slices_of_different_sizes_keep_what_is_not_named():
    """Half of a large device and half of a small one."""
    node = Node()
    small, large = (a_node(memory=memory, **KUBELET) for memory in (4000, 8000))
    key = "acme.com/register"
    both = [
        *msgspec.json.decode(small.annotations[key]),
        {**msgspec.json.decode(large.annotations[key])[0], "id": "n1-d1", "index": 1},
    ]
    annotations = {**small.annotations, key: msgspec.json.encode(both).decode()}
    metadata = msgspec.structs.replace(small.metadata, annotations=annotations)
    node.nodes = [msgspec.structs.replace(small, metadata=metadata)]
    node.start()
    limits = {"acme.com/gpu": "2", "acme.com/mem-percent": "50", "acme.com/cores": "10"}
    main = Container(name="main", resources=Resources(limits=limits))
    pod = a_pod()
    uid = node.run(msgspec.structs.replace(pod, spec=PodSpec(containers=[main])))
    node.resize(uid, cores=20)
    grants = node.state.charges[uid].account.allocation.grants
    assert sorted((g.memory_mib, g.cores) for g in grants) == [(2000, 20), (4000, 20)]


@pytest.mark.parametrize(
    ("steps", "limit"),
    [
        pytest.param([{"limit": 80}], 80, id="it gets one"),
        pytest.param([{"limit": 80}, {"mem": 500}], 80, id="it stays with another amount"),
        pytest.param([{"limit": 80}, {"cores": 60, "limit": 90}], 90, id="with a larger share"),
        pytest.param([{"limit": 80}, {"cores": 80}], 0, id="the share has reached it"),
        pytest.param([{"limit": 10}], 0, id="one that is the share is none"),
        pytest.param([{"limit": 80}, {"limit": 0}], 0, id="it goes"),
        pytest.param([{"limit": 80}, {"limit": 0}, {"limit": 70}], 70, id="and comes back"),
    ],
)
def test_the_limit_of_compute_beyond_the_share(node, steps, limit):
    uid = node.run(a_pod(cores=10))
    for step in steps:
        node.resize(uid, **step)
    node.start()
    (main,) = node.state.charges[uid].account.allocation.containers
    assert main.cores_limit == limit
    assert node.state.charges[uid].generation == 1 + len(steps)


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param({"limit": 9}, id="below the share"),
        pytest.param({"cores": 90}, id="a share above the limit that it has"),
        pytest.param({"cores": 0}, id="a limit and no share"),
    ],
)
def test_a_limit_of_compute_that_does_not_fit(node, wanted):
    uid = node.run(a_pod(cores=10))
    node.resize(uid, limit=80)
    assert node.words(node.reserve(uid, **wanted)) == ["CoresLimitNotFit"]


def test_until_it_is_seen_the_larger_of_both_is_charged(node):
    uid = node.run(a_pod(mem=1000, cores=50))
    pending = node.reserve(uid, mem=5000, cores=20)
    assert node.used == (1, 5000, 50)
    node.show(node.written(pending))
    assert node.used == (1, 5000, 20)


def test_what_was_written_by_ourselves_is_in_force_at_once(node):
    """Others' signatures are verified some turns later."""
    uid = node.run(a_pod())
    pending = node.reserve(uid, mem=5000)
    node.state.pod_changed(node.written(pending))
    assert node.state.charges[uid].generation == 2
    assert node.state.bound.unjudged == {}


def test_a_write_that_fails_gives_back_what_was_reserved(node):
    uid = node.run(a_pod())
    node.reserve(uid, mem=5000)
    node.state.resizes.end(uid)
    node.state.resizes.end(uid)
    assert node.used == (1, 1000, 10)


def test_a_change_of_the_pod_that_says_nothing_of_it_leaves_it_reserved(node):
    uid = node.run(a_pod())
    pending = node.reserve(uid, mem=5000)
    noted = {**node.shown[uid].annotations, "note": "1"}
    metadata = msgspec.structs.replace(node.shown[uid].metadata, annotations=noted)
    node.cluster.sees(msgspec.structs.replace(node.shown[uid], metadata=metadata))
    assert node.used == (1, 5000, 10)
    node.show(node.written(pending))
    assert node.used == (1, 5000, 10)
    node.resize(uid, mem=100)
    assert node.used == (1, 100, 10)


@pytest.mark.parametrize(
    "seen", [False, True], ids=["before it is written", "written, and not seen"]
)
def test_a_restart_charges_what_the_pod_shows(node, seen):
    uid = node.run(a_pod())
    pending = node.reserve(uid, mem=5000)
    if seen:
        node.shown[uid] = node.written(pending)
    node.start()
    assert node.used == ((1, 5000, 10) if seen else (1, 1000, 10))
    assert node.state.charges[uid].generation == (2 if seen else 1)


def test_a_pod_that_goes_takes_what_was_reserved_with_it(node):
    uid = node.run(a_pod())
    node.reserve(uid, mem=5000)
    node.state.pod_gone(node.shown.pop(uid))
    node.state.resizes.end(uid)
    assert node.used == (0, 0, 0)


def test_other_profiles_leave_it_reserved(node):
    uid = node.run(a_pod())
    pending = node.reserve(uid, mem=5000)
    node.state.use(node.state.vendors)
    node.cluster.sees()
    assert node.used == (1, 5000, 10)
    node.show(node.written(pending))
    assert node.used == (1, 5000, 10)


def test_of_a_vendor_that_is_no_more_nothing_is_charged():
    """A pod of two vendors is being resized when the settings drop one of them."""

    def holding(*vendors: str) -> PodAllocation:
        grants = tuple(Grant(device_id=f"d-{v}", vendor=v, memory_mib=1000) for v in vendors)
        main = ContainerAllocation(name="main", kind=ContainerKind.APP, grants=grants)
        return PodAllocation(node="n1", containers=(main,))

    pod, vendors = a_pod(), acme()
    books = ChargeBook(ClusterTable(vendors), QuotaLedger(vendors))
    books.ledger.set_quota(a_quota(mem="8000"))
    books.resizing[pod.uid] = holding("ACME", "GONE")
    books.charge_bound(Charge(pod=pod, account=Account(allocation=holding("ACME"))))
    assert books.ledger.used("default", "q") == {"acme.com/mem": 1000}


def test_another_scheduler_s_books_follow_too(node):
    """A follower has reserved nothing: it believes the signature."""
    uid = node.run(a_pod())
    follower = Node()
    follower.shown = dict(node.shown)
    follower.start()
    for wanted in (5000, 500):
        node.resize(uid, mem=wanted)
        follower.show(node.shown[uid])
        assert follower.used == node.used == (1, wanted, 10)


def test_an_ended_init_container_s_share_is_not_asked_for_again(node):
    uid = node.run(a_pod(mem=1000, init=7000))
    node.run(a_pod("other", mem=500))
    (refused,) = node.reserve(uid, "init", mem=7600)
    assert (refused.reason.word, refused.asked, refused.free) == ("CardInsufficientMemory", 7600, 7500)  # fmt: skip


# Refusals.


def test_a_refusal_has_the_device_and_its_numbers(node):
    uid = node.run(a_pod(mem=1000, cores=30))
    node.run(a_pod("other", mem=6000, cores=60))
    memory, cores = node.reserve(uid, mem=2001, cores=41)
    assert (memory.reason.word, memory.device, memory.asked, memory.free) == (
        "CardInsufficientMemory", "n1-d0", 2001, 2000,
    )  # fmt: skip
    assert (cores.reason.word, cores.resource, cores.asked, cores.free) == (
        "CardInsufficientCore", "acme.com/cores", 41, 40,
    )  # fmt: skip
    assert str(memory) == (
        "device n1-d0: acme.com/mem: asked 2001 MiB > free 2000 MiB (it has 8000, other pods 6000)"
    )
    assert node.used == (2, 7000, 90), "nothing is charged for it"
    node.resize(uid, mem=2000, cores=40)


def test_what_grows_needs_room_beside_what_shrinks(node):
    """Their pages are written one after the other."""
    uid = node.run(a_pod(mem=6000, also=2000))
    wanted = [ContainerResize(container="main", memory_mib=2000), ContainerResize(container="side", memory_mib=6000)]  # fmt: skip
    assert node.words(node.state.resizes.reserve(uid, wanted)) == ["CardInsufficientMemory"]
    node.resize(uid, container="main", mem=2000)
    node.resize(uid, container="side", mem=6000)
    assert node.used == (2, 8000, 20)


@pytest.mark.parametrize(
    ("container", "cores", "words"),
    [
        pytest.param("main", 100, ["CardInsufficientCore", "ExclusiveDeviceAllocateConflict"], id="all of the compute beside another"),
        pytest.param("nobody", 10, ["NoSuchSlice"], id="another container"),
        pytest.param("main", 0, [], id="no share is a share"),
    ],
)  # fmt: skip
def test_refusals_about_compute(node, container, cores, words):
    uid = node.run(a_pod())
    node.run(a_pod("other"))
    outcome = node.reserve(uid, container, cores=cores)
    assert ([] if isinstance(outcome, PendingResize) else node.words(outcome)) == words


def test_all_of_the_compute_is_for_one_alone_also_beside_one_without_a_share(node):
    uid = node.run(a_pod(cores=40))
    node.run(a_pod("other", cores=0))
    assert node.words(node.reserve(uid, cores=100)) == ["ExclusiveDeviceAllocateConflict"]
    node.resize(uid, cores=99)


def test_a_device_that_has_less_than_before_refuses_only_what_grows(node):
    uid = node.run(a_pod(mem=5000, cores=10))
    node.nodes = [a_node(memory=4000, **KUBELET)]
    node.state.node_changed(node.nodes[0])
    assert node.words(node.reserve(uid, mem=5001)) == ["CardInsufficientMemory"]
    node.resize(uid, cores=20)
    node.resize(uid, mem=4500)


def test_one_container_of_several_is_named(node):
    uid = node.run(a_pod(also=500))
    (refused,) = node.reserve(uid, mem=600)
    assert str(refused) == "several containers have devices: main, side; name one"


def test_a_quota_s_numbers_are_in_the_refusal(node):
    node.state.quota_changed(a_quota(mem="5000"))
    uid = node.run(a_pod(mem=1000))
    node.run(a_pod("other", mem=2000))
    (refused,) = node.reserve(uid, mem=3001)
    assert (refused.reason.word, refused.asked, refused.free) == ("ResourceQuotaNotFit", 3001, 3000)
    text = "default/q: limits.acme.com/mem: used 2000 MiB + asked 3001 MiB > limit 5000 MiB"
    assert text in str(refused)
    node.resize(uid, mem=3000)
    assert node.state.ledger.used("default", "q") == {"acme.com/mem": 5000}


def test_a_quota_that_was_lowered_refuses_only_what_grows(node):
    uid = node.run(a_pod(mem=4000, cores=10))
    node.state.quota_changed(a_quota(mem="2000", cores="100"))
    node.resize(uid, mem=3000, cores=50)
    assert node.words(node.reserve(uid, mem=3001)) == ["ResourceQuotaNotFit"]


def test_what_grows_needs_quota_beside_what_shrinks(node):
    node.state.quota_changed(a_quota(mem="5000"))
    uid = node.run(a_pod(mem=4000, also=1000))
    wanted = [ContainerResize(container="main", memory_mib=1000), ContainerResize(container="side", memory_mib=4000)]  # fmt: skip
    assert node.words(node.state.resizes.reserve(uid, wanted)) == ["ResourceQuotaNotFit"]


def test_elastic_quota_counts_it(node):
    node.cluster.limits(an_elastic_quota("default", 1000, 3000), an_elastic_quota("lends", 5000))
    uid = node.run(a_pod(mem=1000))
    refused, *_ = node.reserve(uid, mem=3001)
    assert (refused.reason.word, refused.asked, refused.free) == ("ResourceQuotaNotFit", 3001, 3000)
    node.resize(uid, mem=3000)
    assert node.state.ledger.elastic.member(uid).vector["acme.com/mem"] == 3000


def test_where_the_agent_follows_hami_s_protocol():
    node = Node(identity={})
    uid = node.run(a_pod())
    assert node.words(node.reserve(uid, mem=500)) == ["LimitsInEnvironment"]


@pytest.mark.parametrize(
    ("more", "word"),
    [
        pytest.param("whole_device: true", "WholeDevice", id="whole devices"),
        pytest.param(
            'modes: {"": {placements: true}}', "PlacedInstance", id="an instance of hardware"
        ),
    ],
)
def test_slices_whose_size_is_fixed(more, word):
    node = Node(profile=f"{PROFILE}  {more}\n")
    uid = node.run(a_pod())
    assert node.words(node.reserve(uid, mem=500)) == [word]


def test_a_vendor_without_compute():
    node = Node(profile=PROFILE.replace("cores: acme.com/cores", 'cores: ""'))
    uid = node.run(a_pod())
    assert node.words(node.reserve(uid, mem=500, cores=5)) == ["NoSuchAmount"]
    assert node.words(node.reserve(uid, cores=5)) == ["NoSuchAmount"]
    node.resize(uid, mem=500)


def test_an_allocation_that_nobody_signed(node):
    node.show(granted(a_plain_pod(), "n1", "n1-d0:1000"))
    assert node.words(node.reserve(PodUid("uid-default-p"), mem=500)) == ["NotSigned"]


def test_an_older_allocation_that_somebody_put_back(node):
    uid = node.run(a_pod())
    old = node.shown[uid]
    node.resize(uid, mem=3000)
    node.show(old)
    assert node.words(node.reserve(uid, mem=500)) == ["NotSigned"]


@pytest.mark.parametrize("judged", [False, True], ids=["at once", "after a verdict"])
def test_an_author_gets_nothing_signed_that_he_wrote_himself(node, judged):
    """More than was signed, which a resize of something else would sign without a look."""
    uid = node.run(a_pod())
    more = granted(node.shown[uid], "n1", "n1-d0:7000")
    if judged:
        node.show(more)
        metadata = msgspec.structs.replace(
            more.metadata, annotations={**more.annotations, "note": "x"}
        )
        more = msgspec.structs.replace(more, metadata=metadata)
    node.state.pod_changed(more)
    assert node.words(node.reserve(uid, limit=80)) == ["NotSigned"]


def test_a_pod_that_is_being_deleted(node):
    uid = node.run(a_pod())
    metadata = msgspec.structs.replace(node.shown[uid].metadata, deletion_timestamp="2026-11-21T00:00:00Z")  # fmt: skip
    node.show(msgspec.structs.replace(node.shown[uid], metadata=metadata))
    assert node.words(node.reserve(uid, mem=500)) == ["PodLeaving"]


def test_a_node_that_is_gone(node):
    uid = node.run(a_pod())
    node.state.node_gone(node.nodes[0])
    assert node.words(node.reserve(uid, mem=500)) == ["node unregistered"]


# The law.

AMOUNTS = st.tuples(st.sampled_from(["main", "side"]), st.integers(1, 9000), st.integers(0, 100))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("resize"), st.integers(0, 2), AMOUNTS),
        st.tuples(st.just("reserve"), st.integers(0, 2), AMOUNTS),
        st.tuples(st.just("fail"), st.integers(0, 2), st.none()),
        st.tuples(st.just("write"), st.integers(0, 2), st.none()),
        st.tuples(st.just("see"), st.integers(0, 2), st.none()),
        st.tuples(st.just("restart"), st.just(0), st.none()),
    ),
    max_size=25,
)


@given(STEPS)
def test_books_are_the_annotations_and_never_more_than_a_device_or_a_quota(steps):
    """Whatever is resized, refused, lost and restarted; what is reserved is charged besides."""
    node = Node()
    node.nodes, quota = [a_node(**KUBELET)], a_quota(mem="7000", cores="90")
    node.state.quota_changed(quota)
    uids = [node.run(a_pod(f"p{n}", mem=1500, cores=20, also=500)) for n in range(3)]
    uids = [uid for uid in uids if uid in node.state.charges]
    reserved: dict[PodUid, PendingResize] = {}
    unseen: dict[PodUid, Pod] = {}
    for step, index, amounts in steps:
        uid = uids[index % len(uids)]
        match step:
            case "resize" | "reserve" if uid not in reserved and amounts:
                container, mem, cores = amounts
                outcome = node.reserve(uid, container, mem=mem, cores=cores)
                if isinstance(outcome, PendingResize):
                    reserved[uid] = outcome
                    if step == "resize":
                        node.show(node.written(reserved.pop(uid)))
            case "fail" if uid in reserved and uid not in unseen:
                node.state.resizes.end(uid)
                del reserved[uid]
            case "write" if uid in reserved and uid not in unseen:
                unseen[uid] = node.written(reserved[uid])
            case "see" if uid in unseen:
                node.show(unseen.pop(uid))
                del reserved[uid]
            case "restart":
                node.shown |= unseen
                reserved, unseen = {}, {}
                node.start()
                node.state.quota_changed(quota)
        holds(node, reserved, uids)


def holds(node: Node, reserved: dict[PodUid, PendingResize], uids: list[PodUid]) -> None:
    """Counted anew from what the pods show."""
    fresh = Node()
    fresh.shown = dict(node.shown)
    fresh.nodes = node.nodes
    fresh.start()
    slots, memory, cores = fresh.used
    for uid, pending in reserved.items():
        had = device_usage(pending.before.containers)[DEVICE]
        most = [
            max(one, other)
            for one, other in zip(
                _amounts(pending.before), _amounts(pending.allocation), strict=True
            )
        ]
        memory += sum(most[0::2]) - had.memory_mib
        cores += sum(most[1::2]) - had.cores
        assert uid in uids
    assert node.used == (slots, memory, cores)
    assert memory <= 8000
    assert cores <= 100
    used = node.state.ledger.used("default", "q")
    assert (used["acme.com/mem"], used["acme.com/cores"]) == (memory, cores)
    assert memory <= 7000
    assert cores <= 90


def _amounts(allocation: PodAllocation) -> list[int]:
    return [n for grant in allocation.grants for n in (grant.memory_mib, grant.cores)]
