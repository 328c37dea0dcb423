"""Checks of a vendor inside the whole decision: prefilter, rank, order of arrival."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hami.domain.allocations import PodAllocation
from hami.domain.devices import Device
from hami.domain.kubernetes.objects import Node
from hami.domain.requests import Invalid, PodRequest
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.policy.filter.decision import Placed, decide, prefilter
from hami.policy.fit.exact import fit_pod
from hami.policy.pods.pod_request import parse_pod
from hami.policy.tables.cluster_table import ClusterTable
from hami.testing.asks import Limits, pods, policies
from hami.testing.neighbour import Neighbour
from hami.testing.subject import LAW, Subject, annotated, container_asking, pod_of, registry
from hami.vendors.registry import Vendors


def table_of(vendors: Vendors, node: Node) -> ClusterTable:
    table = ClusterTable(vendors)
    problems = table.set_node(node)
    assert not problems, f"the node cannot be read: {'; '.join(map(str, problems))}"
    return table


def pod_request(
    vendors: Vendors, asks: Limits, policy: SchedulingPolicy, number: int
) -> PodRequest | None:
    """A pod with one container, or None where a vendor refuses its limits."""
    pod = pod_of(container_asking(asks), uid=f"pod-uid-{number}", name=f"pod-{number}")
    request = parse_pod(pod, vendors, policy)
    return None if isinstance(request, Invalid) or not request.vendors else request


def decisions(
    vendors: Vendors, node: Node, asked: Sequence[Limits], policy: SchedulingPolicy
) -> list[PodAllocation | None]:
    """What each pod gets when they come one after the other."""
    table = table_of(vendors, node)
    made: list[PodAllocation | None] = []
    for number, asks in enumerate(asked):
        request = pod_request(vendors, asks, policy, number)
        answer = decide(table, request, None, [node.name]) if request else None
        allocation = answer.allocation if isinstance(answer, Placed) else None
        if allocation:
            table.charge(PodUid(f"pod-uid-{number}"), allocation)
        made.append(allocation)
    return made


class ClusterRules:
    """The core's shortcuts and the order of events never change a vendor's decision."""

    def test_the_prefilter_is_sound(self, subject: Subject) -> None:
        """The vectorised pass drops no node that the exact fit accepts: a profile names in
        ``ModeRules.prefilter`` only what its own hooks agree with."""
        vendors, name = subject.vendors, subject.node.name

        @LAW
        @given(pods(subject.profile, subject.devices), policies())
        def law(asked: list[Limits], policy: SchedulingPolicy) -> None:
            table = table_of(vendors, subject.node)
            for number, asks in enumerate(asked):
                request = pod_request(vendors, asks, policy, number)
                if request is None:
                    continue
                fitted = fit_pod(request, table.devices(name), vendors)
                if not isinstance(fitted, PodAllocation):
                    continue
                first = prefilter(table, request, None, [name])
                assert bool(first.kept[0]), (
                    f"the prefilter drops a node for {dict(asks)} "
                    f"({first.explain([name])[name]}) that hami_fit accepts; name fewer columns "
                    f"in ModeRules.prefilter"
                )
                table.charge(PodUid(f"pod-uid-{number}"), fitted)

        law()

    def test_the_order_of_devices_does_not_matter(self, subject: Subject) -> None:
        """The same devices, published in another order, give the same grants."""
        devices = subject.devices

        @LAW
        @given(
            st.permutations(devices),
            pods(subject.profile, devices, at_most=6),
            policies(),
        )
        def law(mixed: Sequence[Device], asked: list[Limits], policy: SchedulingPolicy) -> None:
            nodes = [
                annotated(subject.node, subject.vendor.node_annotations(order))
                for order in (devices, mixed)
            ]
            first, second = (decisions(subject.vendors, node, asked, policy) for node in nodes)
            assert first == second, (
                f"devices published as {[d.id for d in devices]} gave {first}, "
                f"as {[d.id for d in mixed]} {second}"
            )

        law()

    def test_the_order_of_registration_does_not_matter(self, subject: Subject) -> None:
        """Beside another plugin, loaded before it or after it, a vendor decides alike."""
        count = subject.profile.resources.count
        asked: list[Limits] = [{count: "1"}, {count: "2"}, {count: "1"}]
        plugin, config = subject.plugin, subject.config
        orders = (
            {"plugin": plugin},
            {"a-neighbour": Neighbour(), "plugin": plugin},
            {"plugin": plugin, "z-neighbour": Neighbour()},
        )
        made = [
            decisions(registry(plugins, config), subject.node, asked, SchedulingPolicy())
            for plugins in orders
        ]
        for plugins, found in zip(orders, made, strict=True):
            assert found == made[0], (
                f"with the plugins {', '.join(plugins)} the grants are {found}, alone {made[0]}"
            )

    def test_a_pod_is_placed(self, subject: Subject) -> None:
        """A pod that asks for one slice goes to the node, through every step of the filter."""
        asks = {subject.profile.resources.count: "1"}
        placed = decisions(subject.vendors, subject.node, [asks], SchedulingPolicy())
        assert placed != [None], f"a pod that asks for {asks} is refused by an empty node"
