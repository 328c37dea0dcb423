"""Checks of a plugin's node side: discovery, enforcement, release, health, measurement.

They run the real hooks on the machine of the tests, with the configuration of the ``config``
fixture: point it at a fake tree of files or a simulated library. A slice's ``state_dir`` lies in
pytest's ``tmp_path``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from os.path import normpath
from pathlib import Path

import pytest

from hami.domain.allocations import ContainerKind
from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.requests import Placement
from hami.domain.slices import ContainerEdits, Slice
from hami.domain.units import PodUid
from hami.policy.profile.profile_rules import annotation_key_problem
from hami.testing.asks import context
from hami.testing.request_rules import asked
from hami.testing.subject import Subject, annotated, devices_of
from hami.testing.wire_rules import by_id, device_problem

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CDI_NAME = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9_-]+=[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class PluginOnNode:
    """A plugin on its node, with what it discovers there and what of it was granted."""

    subject: Subject
    devices: tuple[Device, ...]
    slices_dir: Path
    granted: list[Grant] = field(default_factory=list)

    def slice(self, number: int) -> Slice:
        """A slice beside the former ones, as the scheduler would place it."""
        vendor, profile = self.subject.vendor, self.subject.profile
        request = asked(self.subject, {profile.resources.count: "1"})
        states = [
            DeviceState(device).taking(*(g for g in self.granted if g.device_id == device.id))
            for device in self.devices
        ]
        outcome = vendor.fit(request, states, context(self.subject))
        assert isinstance(outcome, Placement), (
            f"the devices that hami_discover found take no slice beside {len(self.granted)} "
            f"others: {outcome}; let the config fixture name two devices or more"
        )
        self.granted.extend(outcome.grants)
        state_dir = self.slices_dir / f"slice-{number}"
        state_dir.mkdir(parents=True, exist_ok=True)
        return Slice(
            id=f"{number:024x}",
            vendor=profile.key,
            pod_uid=PodUid(f"pod-uid-{number}"),
            namespace="default",
            pod=f"pod-{number}",
            container="main",
            kind=ContainerKind.APP,
            grants=outcome.grants,
            state_dir=state_dir,
        )

    def enforce(self, slice: Slice) -> ContainerEdits:
        return self.subject.vendor.enforce(slice, self.subject.config)

    def release(self, slice: Slice) -> None:
        self.subject.vendor.release(slice, self.subject.config)


def node_side(subject: Subject, tmp_path: Path) -> PluginOnNode:
    """Skips for a plugin without node hooks; fails for one with a part of them."""
    if not subject.vendor.has_node_hooks:
        pytest.skip(f"{subject.profile.key} implements no node hook: nothing to check on a node")
    for hook in ("hami_discover", "hami_enforce"):
        assert hook in subject.vendor.hooks, (
            f"a plugin with node hooks implements {hook}; it has {', '.join(subject.vendor.hooks)}"
        )
    devices = tuple(subject.vendor.discover(subject.config))
    assert devices, "hami_discover found no device under the config fixture"
    return PluginOnNode(subject, devices, tmp_path / "slices" / subject.profile.key.lower())


def edits_problem(edits: ContainerEdits, state_dir: Path) -> str:
    """What a container must not get; empty when the edits are legal."""
    paths = [(mount.host_path, mount.container_path) for mount in edits.mounts]
    paths += [(node.host_path, node.container_path) for node in edits.device_nodes]
    for text in (text for pair in paths for text in pair):
        if not text.startswith("/") or normpath(text) != text:
            return f"path {text!r} is not absolute and plain"
    for mount in edits.mounts:
        if not mount.read_only and mount.host_path != str(state_dir / "usage"):
            return (
                f"{mount.host_path} is mounted writable; only the file 'usage' in the slice's "
                f"state_dir may be"
            )
    for node in edits.device_nodes:
        if not node.permissions or set(node.permissions) - set("rwm"):
            return f"device file {node.host_path} has permissions {node.permissions!r}, not 'rwm'"
    for name, value in edits.env.items():
        if not _ENV_NAME.fullmatch(name) or "\0" in value:
            return f"environment {name!r}={value!r} cannot be set"
    for cdi in edits.cdi_devices:
        if not _CDI_NAME.fullmatch(cdi):
            return f"CDI name {cdi!r} is not vendor.example.com/class=name"
    for key in (*edits.annotations, *edits.pod_annotations):
        if problem := annotation_key_problem(key):
            return f"annotation {key!r}: {problem}"
    return ""


class NodeRules:
    """What happens on a node happens once, can be undone, and stays inside the slice."""

    def test_a_plugin_has_all_needed_node_hooks_or_none(
        self, subject: Subject, tmp_path: Path
    ) -> None:
        """A node needs to discover devices and to enforce slices; the rest has defaults."""
        node_side(subject, tmp_path)

    def test_discovery_is_stable(self, subject: Subject, tmp_path: Path) -> None:
        """The same hardware gives the same devices."""
        first = by_id(node_side(subject, tmp_path).devices)
        again = by_id(subject.vendor.discover(subject.config))
        assert first == again, f"hami_discover gave {first}, then {again}"

    def test_discovered_devices_can_be_published(self, subject: Subject, tmp_path: Path) -> None:
        """What is discovered reaches the scheduler unchanged."""
        devices = node_side(subject, tmp_path).devices
        for device in devices:
            problem = device_problem(device, subject.profile.key)
            assert not problem, f"hami_discover: {problem}"
        assert len(by_id(devices)) == len(devices), (
            f"hami_discover gave one id twice: {[device.id for device in devices]}"
        )
        node = annotated(subject.node, subject.vendor.node_annotations(devices))
        received = by_id(devices_of(subject.vendor, node))
        assert received == by_id(devices), f"discovered {devices}, the scheduler reads {received}"

    def test_enforcing_twice_gives_the_same_edits(self, subject: Subject, tmp_path: Path) -> None:
        """A container is started again with the slice that it had."""
        node = node_side(subject, tmp_path)
        mine, other = node.slice(1), node.slice(2)
        first = node.enforce(mine)
        node.enforce(other)
        again = node.enforce(mine)
        assert first == again, f"hami_enforce gave {first}, then for the same slice {again}"

    def test_edits_stay_inside_the_slice(self, subject: Subject, tmp_path: Path) -> None:
        """Absolute paths, nothing writable but the usage file, names a runtime understands."""
        node = node_side(subject, tmp_path)
        mine = node.slice(1)
        problem = edits_problem(node.enforce(mine), mine.state_dir)
        assert not problem, f"hami_enforce: {problem}"

    def test_release_is_idempotent(self, subject: Subject, tmp_path: Path) -> None:
        """A slice may be released twice, and without ever having been enforced."""
        node = node_side(subject, tmp_path)
        mine, never_enforced = node.slice(1), node.slice(2)
        node.enforce(mine)
        node.release(mine)
        node.release(mine)
        node.release(never_enforced)

    def test_reconcile_keeps_live_slices(self, subject: Subject, tmp_path: Path) -> None:
        """A restart of the agent changes nothing for a container that runs."""
        node = node_side(subject, tmp_path)
        live, gone = node.slice(1), node.slice(2)
        before = node.enforce(live)
        node.enforce(gone)
        for live_slices in ((live,), (live,)):
            subject.vendor.reconcile(live_slices, subject.config)
        after = node.enforce(live)
        assert before == after, f"hami_reconcile changed a live slice from {before} to {after}"

    def test_reconcile_of_an_empty_node_is_nothing(self, subject: Subject, tmp_path: Path) -> None:
        """The first start of an agent finds no slice."""
        node_side(subject, tmp_path)
        subject.vendor.reconcile((), subject.config)

    def test_health_speaks_of_known_devices(self, subject: Subject, tmp_path: Path) -> None:
        """A change names a device that was discovered."""
        devices = node_side(subject, tmp_path).devices
        for change in subject.vendor.check_health(devices):
            assert change.device_id in by_id(devices), (
                f"hami_check_health names {change.device_id!r}, which was not discovered"
            )

    def test_a_change_of_health_is_told_once(self, subject: Subject, tmp_path: Path) -> None:
        """``hami_check_health`` answers with what changed since it was last asked."""
        devices = node_side(subject, tmp_path).devices
        first, again = (
            {(change.device_id, change.healthy) for change in subject.vendor.check_health(devices)}
            for _ in range(2)
        )
        for device_id, healthy in sorted(first & again):
            raise AssertionError(
                f"hami_check_health said twice in a row that {device_id!r} became "
                f"{'healthy' if healthy else 'unhealthy'}; a change is told once"
            )

    def test_measurements_speak_of_what_was_asked(self, subject: Subject, tmp_path: Path) -> None:
        """A measurement is of discovered devices and live slices, in bytes and percent."""
        node = node_side(subject, tmp_path)
        live = node.slice(1)
        node.enforce(live)
        for slices in ((live,), ()):
            subject.vendor.measure(node.devices, slices)
