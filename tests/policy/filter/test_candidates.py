"""A block of candidates is decided on as a list of them is, whichever way the best is found."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from hami.policy.filter.decision import Placed, Refused, decide
from hami.policy.tables.node_names import NameBlock

from ..builders import Cluster, a_device, a_grant, a_node, a_pod, an_allocation

NODES = 14
names = st.lists(st.sampled_from([*(f"n{i:02}" for i in range(NODES)), "ghost"]), unique=True)


def in_json(candidates):
    block = NameBlock.read(json.dumps(candidates, separators=(",", ":")).encode())
    assert block is not None
    return block


def outcome(cluster, pod, candidates):
    found = decide(cluster.table, cluster.parse(pod), cluster.ledger.gate(pod), candidates)
    if isinstance(found, Placed):
        return found.allocation
    assert isinstance(found, Refused)
    return {name: str(why) for name, why in found.reasons.items()}


@given(
    st.lists(st.integers(0, 8000), min_size=NODES, max_size=NODES),
    names,
    st.sampled_from([1000, 4000, 8000, 9000]),
    st.sampled_from(["binpack", "spread"]),
    st.integers(1, 2),
)
def test_a_block_and_a_list_of_the_same_candidates_have_one_answer(
    used, candidates, memory, policy, devices
):
    cluster = Cluster(
        *(
            a_node(f"n{i:02}", *(a_device(f"d{k}", index=k) for k in range(devices)))
            for i in range(NODES)
        ),
        node=policy,
    )
    for number, taken in enumerate(used):
        grant = an_allocation(f"n{number:02}", a_grant(memory=taken))
        cluster.table.charge(f"u{number}", grant)
    pod = a_pod(gpu=1, mem=memory)
    assert outcome(cluster, pod, in_json(candidates)) == outcome(cluster, pod, candidates)
