"""What would be there without some pods is what is there once they are released."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hami.domain.allocations import ContainerKind
from hami.domain.kubernetes.objects import Metadata, Pod, PodSpec, ResourceQuota, ResourceQuotaSpec
from hami.domain.units import DeviceId, VendorKey
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.policy.quota import QuotaLedger
from hami.vendors.registry import Vendors

from ..builders import (
    ACME_YAML,
    SHORT,
    Cluster,
    a_device,
    a_grant,
    a_node,
    an_allocation,
    the_vendors,
)
from ..quota.test_quota_laws import SCOPES, allocations, limits, namespaces, pods, uids

VENDORS = the_vendors()
PLACING = Vendors.of(
    {
        "acme": ProfileVendor(
            ACME_YAML.replace("- key", "- modes: {part: {placements: true}}\n  key")
        )
    }
)
UIDS = [f"u{i}" for i in range(6)]

grants = st.builds(
    a_grant,
    st.sampled_from(["d0", "d1", "d2"]),
    memory=st.integers(0, 5000),
    cores=st.sampled_from([0, 30, 100]),
)
unknown = st.lists(
    st.sampled_from([None, "d0", "d1", "strange"]).map(
        lambda device: (VendorKey("ACME"), DeviceId(device) if device else None)
    ),
    max_size=1,
)
charges = st.fixed_dictionaries(
    {
        "uid": st.sampled_from(UIDS),
        "node": st.sampled_from(["n1", "n2", "gone"]),
        "grants": st.lists(grants, max_size=3),
        "kind": st.sampled_from(ContainerKind),
        "unknown": unknown,
        "init_ended": st.booleans(),
    }
)


def told(devices):
    """The grants of one device are in the order of charging, which a release may not change."""
    return {
        vendor: [(s.device, s.usage, Counter(s.grants), s.known) for s in states]
        for vendor, states in devices.states.items()
    }


@given(
    st.lists(charges, max_size=8), st.lists(st.sampled_from([*UIDS, "nobody"])), st.booleans()
)  # fmt: skip
def test_devices_without_pods_are_those_after_their_release(held, gone, placements):
    mode = "part" if placements else ""
    table = Cluster(
        a_node("n1", *(a_device(f"d{i}", memory=8000, slots=4, mode=mode) for i in range(3))),
        a_node("n2", a_device("d0", memory=4000)),
        vendors=PLACING,
    ).table
    for one in held:
        allocation = an_allocation(one["node"], *one["grants"], kind=one["kind"])
        table.charge(one["uid"], allocation, one["unknown"], init_ended=one["init_ended"])
    before = {name: table.devices(name) for name in table.node_names}
    would = {name: told(table.devices(name, gone)) for name in table.node_names}
    assert {name: table.devices(name) for name in table.node_names} == before
    for uid in gone:
        table.release(uid)
    assert {name: told(table.devices(name)) for name in table.node_names} == would


@given(
    st.lists(st.tuples(pods, allocations), max_size=8),
    st.lists(st.tuples(namespaces, limits, st.sampled_from(SCOPES)), max_size=3),
    st.lists(uids, max_size=4), namespaces, st.sampled_from([None, 60]), uids,
)  # fmt: skip
def test_a_gate_without_pods_is_the_one_after_their_release(
    held, quotas, gone, namespace, deadline, asking
):
    ledger = QuotaLedger(VENDORS)
    for number, (where, hard, scopes) in enumerate(quotas):
        ledger.set_quota(
            ResourceQuota(
                metadata=Metadata(name=f"q{number}", namespace=where),
                spec=ResourceQuotaSpec(
                    hard={f"limits.{SHORT[key]}": str(n) for key, n in hard.items()},
                    scopes=list(scopes),
                ),
            )
        )
    for pod, allocation in held:
        ledger.charge(pod, allocation)
    pod = Pod(
        metadata=Metadata(name="asks", namespace=namespace, uid=asking),
        spec=PodSpec(active_deadline_seconds=deadline),
    )
    used = {(c.namespace, c.name): ledger.used(c.namespace, c.name) for c in ledger.constraints}
    would = ledger.gate(pod, gone)
    assert used == {
        (c.namespace, c.name): ledger.used(c.namespace, c.name) for c in ledger.constraints
    }
    for uid in gone:
        ledger.release(uid)
    now = ledger.gate(pod)
    assert (would is None) == (now is None)
    if would and now:
        names = SHORT.values()
        assert {n: would.left(n) for n in names} == {n: now.left(n) for n in names}
        ask = dict.fromkeys(names, 100)
        assert would.refusals(ask) == now.refusals(ask)
