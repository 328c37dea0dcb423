"""The spelling of every key is a promise to HAMi's plugins and to people's manifests."""

from __future__ import annotations

import pytest

from hami.wire import keys

SPELLED = {
    "NODE": "hami.io/vgpu-node",
    "TIME": "hami.io/vgpu-time",
    "BIND_PHASE": "hami.io/bind-phase",
    "BIND_TIME": "hami.io/bind-time",
    "ALLOCATION_SIGNATURE": "hami.io/allocation-signature",
    "ALLOCATED_CORES_LIMIT": "hami.io/allocated-gpucores-limit",
    "CORES_LIMIT": "hami.io/gpucores-limit",
    "SCHEDULER_TERM": "hami.io/scheduler-term",
    "RESIZES": "hami.io/resizes",
    "WAKE_UP": "hami.io/wake-up",
    "NODE_POLICY": "hami.io/node-scheduler-policy",
    "DEVICE_POLICY": "hami.io/gpu-scheduler-policy",
    "SCORING_WEIGHTS": "hami.io/device-scoring-weights",
    "NODE_LOCK": "hami.io/mutex.lock",
    "CORDON": "hami.io/device-cordon",
    "NODE_IDENTITY": "hami.io/node-identity",
    "AGENT": "hami.io/agent",
    "SCHEDULER_ROLE": "hami.io/scheduler-role",
    "WEBHOOK": "hami.io/webhook",
    "POD_GROUP": "scheduling.x-k8s.io/pod-group",
    "VOLCANO_POD_GROUP": "scheduling.k8s.io/group-name",
}


@pytest.mark.parametrize("name", SPELLED)
def test_keys_are_spelled_as_promised(name):
    assert getattr(keys, name) == SPELLED[name]


def test_no_key_is_without_a_promise():
    assert {name for name in vars(keys) if name.isupper()} == set(SPELLED)
