"""The core's own annotation and label keys, spelled as HAMi spells them.

A vendor's keys are in its profile.
"""

from __future__ import annotations

from typing import Final

# Pod annotations that only the scheduler writes.
NODE: Final = "hami.io/vgpu-node"
"""The node decided on; also a pod label of the same key and value."""
TIME: Final = "hami.io/vgpu-time"
"""When it was decided, in unix seconds."""
BIND_PHASE: Final = "hami.io/bind-phase"
"""``allocating``, ``success`` or ``failed``."""
BIND_TIME: Final = "hami.io/bind-time"
"""When the bind began, in unix seconds."""
ALLOCATION_SIGNATURE: Final = "hami.io/allocation-signature"
SCHEDULER_TERM: Final = "hami.io/scheduler-term"
"""Which term of leadership decided, for the record."""
WAKE_UP: Final = "hami.io/wake-up"
"""A counter; a change of it makes kube-scheduler try a waiting pod again."""

# Pod annotations that the pod's author writes.
NODE_POLICY: Final = "hami.io/node-scheduler-policy"
DEVICE_POLICY: Final = "hami.io/gpu-scheduler-policy"
SCORING_WEIGHTS: Final = "hami.io/device-scoring-weights"

# Node annotations.
NODE_LOCK: Final = "hami.io/mutex.lock"
CORDON: Final = "hami.io/device-cordon"
"""Device ids that take no new pod, separated by commas."""
NODE_IDENTITY: Final = "hami.io/node-identity"
"""How each vendor's agent finds the pod to serve: ``NVIDIA=kubelet,DCU=lock``."""

# Labels.
SCHEDULER_ROLE: Final = "hami.io/scheduler-role"
"""On the scheduler's own pods: ``leader`` or ``follower``."""
AGENT: Final = "hami.io/agent"
"""On the Lease that a node's agent renews: the key of its vendor."""
WEBHOOK: Final = "hami.io/webhook"
"""``ignore`` on a pod or namespace keeps the webhook away from it."""
POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"
"""On a pod: the PodGroup of scheduler-plugins' coscheduling."""

# Annotations of others.
VOLCANO_POD_GROUP: Final = "scheduling.k8s.io/group-name"
"""On a pod: Volcano's PodGroup."""
