"""The core's own annotation and label keys, spelled as HAMi spells them.

A vendor's keys are in its profile.
"""

from __future__ import annotations

from typing import Final

# Pod annotations that only the scheduler writes.
NODE: Final = "hami.io/vgpu-node"
"""The node that was chosen; also a pod label with the same key and value."""
TIME: Final = "hami.io/vgpu-time"
"""When the node was chosen, in unix seconds."""
BIND_PHASE: Final = "hami.io/bind-phase"
"""``allocating``, ``success`` or ``failed``."""
BIND_TIME: Final = "hami.io/bind-time"
"""When the bind began, in unix seconds."""
ALLOCATION_SIGNATURE: Final = "hami.io/allocation-signature"
ALLOCATED_CORES_LIMIT: Final = "hami.io/allocated-gpucores-limit"
"""What containers may have of idle compute: ``main=80,side=100``, in percent of each device."""
SCHEDULER_TERM: Final = "hami.io/scheduler-term"
"""The leader's term in which the node was chosen, for the record."""
RESIZES: Final = "hami.io/resizes"
"""Whose requests became the pod's last generations: ``ID:GENERATION:DIGEST``, with commas."""
WAKE_UP: Final = "hami.io/wake-up"
"""A counter; kube-scheduler tries a waiting pod again when it changes."""

# Pod annotations that the pod's author writes.
NODE_POLICY: Final = "hami.io/node-scheduler-policy"
DEVICE_POLICY: Final = "hami.io/gpu-scheduler-policy"
SCORING_WEIGHTS: Final = "hami.io/device-scoring-weights"
CORES_LIMIT: Final = "hami.io/gpucores-limit"
"""How much of idle compute containers may have, in percent; with ``.<container>``: one of them."""

# Node annotations.
NODE_LOCK: Final = "hami.io/mutex.lock"
CORDON: Final = "hami.io/device-cordon"
"""Ids of devices that take no new pod, separated by commas."""
NODE_IDENTITY: Final = "hami.io/node-identity"
"""How each vendor's agent finds the pod to serve: ``NVIDIA=kubelet,DCU=lock``."""

# Labels.
SCHEDULER_ROLE: Final = "hami.io/scheduler-role"
"""``leader`` or ``follower``, on the scheduler's own pods."""
AGENT: Final = "hami.io/agent"
"""The vendor's key, on the Lease that a node's agent renews."""
WEBHOOK: Final = "hami.io/webhook"
"""``ignore`` on a pod or namespace: the webhook leaves it alone."""
POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"
"""The PodGroup of scheduler-plugins' coscheduling, on a pod."""

# Annotations of others.
VOLCANO_POD_GROUP: Final = "scheduling.k8s.io/group-name"
"""Volcano's PodGroup, on a pod."""
