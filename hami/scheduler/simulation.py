"""Filter requests that carry whole nodes: a question of a planner, answered without any effect.

Cluster Autoscaler asks whether a pod would fit on nodes that do not exist yet. Such nodes count as
empty; quota counts as it is.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from hami.domain.objects import Node, Pod
from hami.domain.profile import VendorProfile
from hami.domain.requests import Invalid
from hami.domain.scheduling import SchedulingPolicy
from hami.policy.cluster import ClusterTable
from hami.policy.filter import Placed, decide, parse_pod
from hami.policy.liveness import alive
from hami.scheduler import answers
from hami.scheduler.state import ClusterState
from hami.wire.extender import ExtenderArgs, ExtenderFilterResult

_BEGINNING = datetime.fromisoformat("0001-01-01T00:00:00")


class _NodeList(msgspec.Struct):
    """The nodes undecoded, so that the chosen one is given back as it came."""

    items: list[msgspec.Raw] | None = None


def simulated(
    state: ClusterState, args: ExtenderArgs, policy: SchedulingPolicy
) -> ExtenderFilterResult | str:
    """The best node as a list of one, or why none; a text when the body cannot be read."""
    try:
        pod = msgspec.json.decode(args.pod, type=Pod)
        raw = msgspec.json.decode(args.nodes, type=_NodeList).items or []
        nodes = [msgspec.json.decode(item, type=Node) for item in raw]
    except msgspec.DecodeError as error:
        return f"the simulated pod or node cannot be read: {error}"
    request = parse_pod(pod, state.vendors, policy)
    names = [node.name for node in nodes]
    if isinstance(request, Invalid):
        return answers.unfit_everywhere(names, request.text)
    if not request.vendors:
        return ExtenderFilterResult(nodes=args.nodes, node_names=names)
    table = ClusterTable(state.vendors, alive=_alive)
    for node in nodes:
        table.set_node(node)
    outcome = decide(table, request, state.ledger.gate(pod), names)
    if not isinstance(outcome, Placed):
        return answers.refusal(outcome)
    best = outcome.allocation.node
    chosen = msgspec.json.encode({"items": [raw[names.index(best)]]})
    return ExtenderFilterResult(nodes=msgspec.Raw(chosen), node_names=[best])


def _alive(profile: VendorProfile, node: Node) -> bool:
    """A node that does not exist yet has no age, and lists what its group's nodes list."""
    return alive(profile, node, _BEGINNING, absent_is_alive=True)
