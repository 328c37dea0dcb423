"""For each check of the node side: toys that break its rule, and what the check says then."""

from __future__ import annotations

from hami.domain.measurements import MeasuredDevice, MeasuredProcess, MeasuredSlice
from hami.domain.slices import DeviceNode, HealthChange

from .breakages import (
    Half,
    a_mount,
    enforcing,
    enforcing_in_turn,
    forgetting_live_slices,
    in_turn,
    measuring,
    releasing_once,
)
from .toy import a_toy, broken

BROKEN_NODE_SIDES = {
    "test_a_plugin_has_all_needed_node_hooks_or_none": {
        "half of them": (Half, "implements hami_enforce"),
        "no device": (lambda: broken(hami_discover=lambda self: ()), "found no device"),
    },
    "test_discovery_is_stable": {
        "a device that comes and goes": (
            lambda: broken(hami_discover=in_turn([a_toy(0), a_toy(1)], [a_toy(0)])),
            "then",
        ),
    },
    "test_discovered_devices_can_be_published": {
        "a blank in an id": (
            lambda: broken(hami_discover=lambda self: [a_toy(0, id="TOY 0")]),
            "holds a blank",
        ),
        "one id twice": (
            lambda: broken(hami_discover=lambda self: [a_toy(0), a_toy(0)]),
            "one id twice",
        ),
    },
    "test_enforcing_twice_gives_the_same_edits": {
        "other edits each time": (enforcing_in_turn, "for the same slice"),
    },
    "test_edits_stay_inside_the_slice": {
        "a relative path": (lambda: enforcing(mounts=a_mount("limits")), "not absolute"),
        "a path that climbs": (lambda: enforcing(mounts=a_mount("/a/../etc")), "not absolute"),
        "a foreign writable file": (
            lambda: enforcing(mounts=a_mount("/tmp/usage", read_only=False)),
            "mounted writable",
        ),
        "an unknown permission": (
            lambda: enforcing(
                device_nodes=(
                    DeviceNode(host_path="/dev/a", container_path="/dev/a", permissions="rx"),
                )
            ),
            "permissions 'rx'",
        ),
        "a bad variable": (lambda: enforcing(env={"A B": "1"}), "cannot be set"),
        "a bad CDI name": (lambda: enforcing(cdi_devices=("toy",)), "CDI name"),
        "a bad annotation": (lambda: enforcing(annotations={"a b": ""}), "annotation 'a b'"),
    },
    "test_release_is_idempotent": {
        "a second release fails": (
            lambda: broken(hami_release=releasing_once),
            "hami_release of TOY failed: FileNotFoundError",
        ),
    },
    "test_reconcile_keeps_live_slices": {
        "live slices forgotten": (forgetting_live_slices, "changed a live slice"),
    },
    "test_reconcile_of_an_empty_node_is_nothing": {
        "a slice taken for granted": (
            lambda: broken(hami_reconcile=lambda self, live_slices: live_slices[0] and None),
            "hami_reconcile of TOY failed: IndexError",
        ),
    },
    "test_health_speaks_of_known_devices": {
        "a stranger": (
            lambda: broken(hami_check_health=lambda self: [HealthChange("TOY-9", healthy=False)]),
            "'TOY-9', which was not discovered",
        ),
    },
    "test_a_change_of_health_is_told_once": {
        "told again and again": (
            lambda: broken(hami_check_health=lambda self: [HealthChange("TOY-0", healthy=False)]),
            "said twice in a row that 'TOY-0' became unhealthy",
        ),
    },
    "test_measurements_speak_of_what_was_asked": {
        "a dead slice": (
            lambda: measuring(slices=(MeasuredSlice(device_id="TOY-0", slice_id="gone"),)),
            "'gone', which is not live",
        ),
        "a stranger": (
            lambda: measuring(devices=(MeasuredDevice(id="TOY-9"),)),
            "'TOY-9', which was not discovered",
        ),
        "a process of a stranger": (
            lambda: measuring(processes=(MeasuredProcess(device_id="TOY-9", pid=1),)),
            "'TOY-9', which was not discovered",
        ),
        "a process without a number": (
            lambda: measuring(processes=(MeasuredProcess(device_id="TOY-0", pid=0),)),
            "a process without a number",
        ),
        "negative memory": (
            lambda: measuring(devices=(MeasuredDevice(id="TOY-0", memory_used_bytes=-1),)),
            "figures that are none",
        ),
        "more than everything": (
            lambda: measuring(
                slices=(MeasuredSlice(device_id="TOY-0", slice_id="gone", utilisation=101.0),)
            ),
            "figures that are none",
        ),
        "no time": (lambda: measuring(seconds=float("nan")), "over nan seconds"),
    },
}
