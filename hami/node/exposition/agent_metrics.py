"""The agent's metrics: every name, and the part that it is read from.

All are there from the beginning, at 0, and none has a label whose values grow: no pod, no
container, no slice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from hami import __version__
from hami.http.metrics import (
    GaugeFamily,
    MetricFamily,
    ReadCounterFamily,
    ReadHistogramFamily,
)
from hami.node.exposition.agent_parts import AgentParts
from hami.node.start.container_start import PREPARE_BUCKETS
from hami.slices.record import SLICE_STATES

_PREFIX = "hami_node_"


def build_info() -> MetricFamily:
    """The version; the one metric of an agent that still begins."""
    return GaugeFamily(
        f"{_PREFIX}build_info",
        "Always 1; the version is a label.",
        lambda: {__version__: 1},
        "version",
    )


def families(parts: AgentParts) -> Sequence[MetricFamily]:
    """All metrics of an agent."""
    return [build_info(), *_of_slices(parts), *_of_starts(parts), *_of_neighbours(parts)]


def _of_slices(parts: AgentParts) -> Sequence[MetricFamily]:
    around = parts.around

    def slices() -> Mapping[str, int]:
        found = Counter(live.record.state for live in around.slices)
        return {state: found[state] for state in SLICE_STATES}

    def devices() -> Mapping[str, int]:
        healthy = sum(device.healthy for device in around.inventory.devices.values())
        return {"healthy": healthy, "unhealthy": len(around.inventory.devices) - healthy}

    return [
        GaugeFamily(f"{_PREFIX}slices", "Slices on this node, by state.", slices, "state"),
        GaugeFamily(f"{_PREFIX}devices", "Devices, by health.", devices, "health"),
        ReadCounterFamily(
            f"{_PREFIX}resizes_total",
            "Tries to give a slice the limits of a newer allocation, by outcome.",
            lambda: parts.resizing.counts,
            "outcome",
        ),
        ReadCounterFamily(
            f"{_PREFIX}store_errors_total",
            "Failures of the node's disk with what slices need there.",
            lambda: {"": around.disk.failures + around.pages.failures},
        ),
    ]


def _of_starts(parts: AgentParts) -> Sequence[MetricFamily]:
    counts = parts.starts

    def outcomes() -> Mapping[str, int]:
        failed = sum(times for cause, times in counts.refused.items() if cause.failed)
        refused = sum(counts.refused.values()) - failed
        return {"prepared": counts.prepared, "refused": refused, "failed": failed}

    return [
        ReadCounterFamily(
            f"{_PREFIX}container_starts_total",
            "Containers that kubelet asked to prepare, by outcome.",
            outcomes,
            "outcome",
        ),
        ReadCounterFamily(
            f"{_PREFIX}start_refusals_total",
            "Containers that were refused or failed, by cause.",
            lambda: {str(cause): times for cause, times in counts.refused.items()},
            "cause",
        ),
        ReadHistogramFamily(
            f"{_PREFIX}prepare_duration_seconds",
            "Time from PreStartContainer until the container's slice was ready.",
            PREPARE_BUCKETS,
            lambda: (counts.took, counts.seconds),
        ),
    ]


def _of_neighbours(parts: AgentParts) -> Sequence[MetricFamily]:
    around, resources = parts.around, parts.resources

    def heard() -> Mapping[str, float]:
        now = time.monotonic()
        return {
            "pods": now - around.pods.heard_at,
            "nodes": now - parts.advertiser.heard_at,
        }

    return [
        GaugeFamily(
            f"{_PREFIX}kubelet_registered",
            "1 while kubelet follows the list of this resource's devices.",
            lambda: {one.resource: int(one.registered.is_set()) for one in resources.servers},
            "resource",
        ),
        ReadCounterFamily(
            f"{_PREFIX}kubelet_registrations_total",
            "Registrations that kubelet took.",
            lambda: {one.resource: one.registrations for one in resources.servers},
            "resource",
        ),
        GaugeFamily(
            f"{_PREFIX}kubelet_last_registration_timestamp_seconds",
            "When kubelet last took a registration, in Unix seconds; 0: never.",
            lambda: {one.resource: one.registered_at for one in resources.servers},
            "resource",
        ),
        GaugeFamily(
            f"{_PREFIX}watch_age_seconds",
            "Time since the API server last said anything of this node's objects.",
            heard,
            "resource",
        ),
        GaugeFamily(
            f"{_PREFIX}threads_stalled_seconds",
            "For how long no thread took work that waits.",
            lambda: {one.name: one.stalled() for one in (around.hooks, around.pages, around.disk)},
            "threads",
        ),
    ]
