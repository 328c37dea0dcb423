"""The way of a pod through the code, as docs/architecture.md shows it: one real filter, one bind.

A small cluster is filled: NVIDIA's vendor, nodes with eight devices, bound pods, a ResourceQuota,
signing keys. Then one pod is filtered and bound through the :class:`Extender`, and every call of a
function of ``hami`` is followed, from the extender's entry to its answer and to the Binding.

What counts. A *file of the walk* is a file of ``hami/`` in which a call goes on into another file:
to follow the decision one must read it. A file *asked on the way* returns a value and calls nothing
else; one may believe its name. Both are on the page, each file once, in the order in which they are
entered first, and the page is compared exactly. Left out are four packages alone: ``hami.domain``
and ``hami.wire`` (values, and how they are spelled), below which the import contracts allow nothing
of the walk; and ``hami.vendors`` with ``hami.hookspecs``, which carry any question to any plugin
alike. What a plugin calls in turn counts as called by whoever asked it.

A *return* is an arrow from one file of the walk to another in which the walk has been before; an
arrow that is gone again, in a loop or by another function, is the same arrow.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

import hami
from hami.domain.devices import Device
from hami.domain.kubernetes.objects import Metadata, Node, Pod, ResourceQuota, ResourceQuotaSpec
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import DeviceId, MemoryMiB, VendorKey
from hami.kube.client import PodBinding
from hami.scheduler.bookings.deps import SchedulerDeps
from hami.scheduler.bookings.lock_book import needs_lock
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.decide.binding import Binder, BindSettings
from hami.scheduler.decide.extender import Extender
from hami.scheduler.decide.locks import LockSettings, NodeLocks
from hami.scheduler.metrics import Metrics
from hami.scheduler.web.filter_args import read_args
from hami.signing import Signer, new_private_pem
from hami.vendors.registry import load_vendors
from hami.wire import keys
from hami.wire.bodies import BadBody
from hami.wire.extender import ExtenderBindingArgs

ROOT = Path(hami.__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
LEFT_OUT = ("hami/domain/", "hami/wire/", "hami/vendors/", "hami/hookspecs/")
MOST_FILES, MOST_RETURNS = 12, 6
NVIDIA = VendorKey("NVIDIA")


@dataclass
class Way:
    """What was entered, in order; ``arrows`` from file to file, each once, in order."""

    entered: dict[str, None] = field(default_factory=dict)
    arrows: dict[tuple[str, str], None] = field(default_factory=dict)
    calls: int = 0

    @property
    def stations(self) -> list[str]:
        """The files of the walk."""
        goes_on = {caller for caller, _ in self.arrows}
        return [path for path in self.entered if path in goes_on]

    @property
    def asked(self) -> list[str]:
        """The files asked on the way."""
        return [path for path in self.entered if path not in self.stations]

    @property
    def returns(self) -> list[tuple[str, str]]:
        been, found = {self.stations[0]}, []
        for caller, callee in self.arrows:
            if callee in self.stations:
                if callee in been:
                    found.append((caller, callee))
                been.add(callee)
        return found

    def see(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and (path := _counted(frame)):
            self.calls += 1
            self.entered[path] = None
            caller, back = "", frame.f_back
            while back is not None and not (caller := _counted(back)):
                back = back.f_back
            if caller and caller != path:
                self.arrows[caller, path] = None

    def __str__(self) -> str:
        lines = [f"{len(self.entered)} files, {self.calls} calls", "walk:", *self.stations]
        lines += ["asked on the way:", *self.asked, "returns:"]
        return "\n  ".join([*lines, *(f"{one} -> {other}" for one, other in self.returns)])


def _counted(frame: FrameType) -> str:
    """The file, from the repository's root; empty for one that does not count."""
    file = Path(frame.f_code.co_filename)
    if not file.is_relative_to(ROOT / "hami"):
        return ""
    path = file.relative_to(ROOT).as_posix()
    return "" if path.startswith(LEFT_OUT) else path


@contextmanager
def followed() -> Iterator[Way]:
    way, before = Way(), sys.getprofile()
    sys.setprofile(way.see)
    try:
        yield way
    finally:
        sys.setprofile(before)


class _Leads:
    leading = True
    term = 1
    holder = "this"


class _Client:
    """As much of the API server as a bind takes."""

    def __init__(self) -> None:
        self.posts: list[PodBinding] = []

    async def bind(self, binding: PodBinding, *, timeout: float) -> None:
        self.posts.append(binding)


class World:
    def __init__(self) -> None:
        self.signer = Signer.from_pem(new_private_pem())
        self.client = _Client()
        vendors, policy = load_vendors(), SchedulingPolicy()
        deps = SchedulerDeps(
            clock=time.monotonic,
            alive=lambda _profile, _node: True,
            signer=lambda: self.signer,
            report=lambda problem: pytest.fail(problem.text),
            bind_seen=lambda _seconds: None,
            scheduler_name=lambda: "hami-scheduler",
            needs_lock=needs_lock,
        )
        self.state = state = ClusterState(vendors, deps)
        state.pending.begin_leading()
        client: Any = self.client
        leads: Any = _Leads()
        locks = NodeLocks(state, client, LockSettings)
        binder = Binder(
            state,
            client,
            leads,
            locks,
            settings=lambda: BindSettings(policy=policy),
            signer=lambda: self.signer,
            failed=lambda _pod, text: pytest.fail(text),
        )
        self.extender = Extender(
            state,
            binder,
            leads,
            Metrics(),
            policy=lambda: policy,
            refused=lambda _pod, text: pytest.fail(text),
        )
        for number in range(3):
            devices = [
                Device(
                    id=DeviceId(f"GPU-{number}-{index}"),
                    vendor=NVIDIA,
                    index=index,
                    model="NVIDIA-NVIDIA H100 80GB HBM3",
                    slots=10,
                    memory_mib=MemoryMiB(81559),
                    mode="hami-core",
                )
                for index in range(8)
            ]
            about = dict(vendors[NVIDIA].node_annotations(devices))
            about[keys.NODE_IDENTITY] = "NVIDIA=simulated"
            state.node_changed(Node(metadata=Metadata(name=f"n{number}", annotations=about)))
        limits = ResourceQuotaSpec(hard={"limits.nvidia.com/gpumem": "400000"})
        about_quota = Metadata(name="q", namespace="default")
        state.quota_changed(ResourceQuota(metadata=about_quota, spec=limits))

    async def place(self, name: str) -> tuple[Way, Way]:
        """The pod is filtered and bound: the ways of both."""
        asks = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000", "nvidia.com/gpucores": "10"}
        body = {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {
                "schedulerName": "hami-scheduler",
                "containers": [{"name": "main", "resources": {"limits": asks}}],
            },
        }
        self.state.pod_changed(msgspec.convert(body, Pod))
        question = {"Pod": body, "NodeNames": list(self.state.nodes)}
        args = read_args(msgspec.json.encode(question))
        assert not isinstance(args, BadBody)
        with followed() as filtered:
            answer = await self.extender.filter(args)
        (node,) = answer.node_names or ()
        to_bind = ExtenderBindingArgs(
            pod_name=name, pod_namespace="default", pod_uid=name, node=node
        )
        with followed() as bound:
            assert (await self.extender.bind(to_bind)).error == ""
        post = self.client.posts[-1]
        assert (post.uid, keys.ALLOCATION_SIGNATURE in post.annotations) == (name, True)
        written = {**body, "metadata": {**body["metadata"], "annotations": post.annotations}}
        written["spec"] = {**body["spec"], "nodeName": node}
        self.state.pod_changed(msgspec.convert(written, Pod))
        return filtered, bound


@pytest.fixture(scope="module")
def ways() -> dict[str, Way]:
    """Of the third pod: the first ones fill what is kept between questions."""

    async def run() -> dict[str, Way]:
        world = World()
        for name in ("one", "two", "three"):
            filtered, bound = await world.place(name)
        return {"filter": filtered, "bind": bound}

    return asyncio.run(run())


def listed(heading: str) -> tuple[list[str], list[str]]:
    """What the page says below a heading: its numbered items, and what is asked on the way."""
    text = re.split(r"\n#+ ", PAGE.read_text().partition(f"\n{heading}\n")[2])[0]
    numbered = re.findall(r"^\d+\. `([^`]+)`", text, re.MULTILINE)
    return numbered, re.findall(r"^- `([^`]+)`", text, re.MULTILINE)


WALKS = {"filter": "## Walk: a pod, from filter to bind", "bind": "### The bind"}
each_walk = pytest.mark.parametrize("walk", WALKS)


@each_walk
def test_the_page_shows_the_files_of_the_walk(walk: str, ways: dict[str, Way]) -> None:
    assert listed(WALKS[walk]) == (ways[walk].stations, ways[walk].asked)


@each_walk
def test_a_walk_is_short(walk: str, ways: dict[str, Way]) -> None:
    assert len(ways[walk].stations) <= MOST_FILES


@each_walk
def test_a_walk_seldom_comes_back(walk: str, ways: dict[str, Way]) -> None:
    assert len(ways[walk].returns) <= MOST_RETURNS, ways[walk]


@each_walk
def test_without_elastic_quota_that_wing_is_not_entered(walk: str, ways: dict[str, Way]) -> None:
    wing = ("hami/policy/quota/elastic/", "hami/policy/quota/elastic_quotas.py")
    assert [path for path in ways[walk].entered if path.startswith(wing)] == []
