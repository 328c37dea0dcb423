"""The hooks that the node agent asks, on the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hami.domain.devices import Device
from hami.domain.measurements import Measurement
from hami.domain.options import NodeOption
from hami.domain.profile import VendorProfile
from hami.domain.slices import ContainerEdits, HealthChange, Slice
from hami.hookspecs.markers import PluginConfig, one, required


class NodeHooks:
    """Asked by the node agent, on the node. May do I/O; the caller enforces a timeout on each.

    ``config`` is the device configuration with the agent's options in it, and two sections of the
    agent's: ``node`` (the node's ``name``, its ``labels``, the agent's ``identity``) and
    ``nodeconfig`` (the entries of the per-node file that match this node, later ones win).
    """

    @one
    def hami_node_options(  # type: ignore[empty-body]
        self, profile: VendorProfile
    ) -> Sequence[NodeOption]:
        """The flags and variables that the agent takes for this vendor.

        Called: once at the agent's start, and for its help text.
        Args:
            profile: the vendor in question.
        Returns: the options; their values reach the other hooks in ``config``. Empty and default:
            none.
        Order: as the help text shows them.
        Errors: an exception ends the agent's start with the distribution's name.
        Must not: claim a flag of the agent's own.
        Since: API 1.
        """

    @required
    def hami_discover(  # type: ignore[empty-body]
        self, profile: VendorProfile, config: PluginConfig
    ) -> Sequence[Device]:
        """Every device of this vendor on this node.

        Called: at start, after a health change and periodically; never concurrently with itself.
        Args:
            profile: the vendor in question.
            config: the node's configuration.
        Returns: all devices, healthy or not; ids unique and stable across restarts; memory in MiB,
            rounded down. Empty: none here.
        Order: vendors by key.
        Errors: an exception keeps the former answer; after three in a row the devices are
            published as not healthy.
        Must not: take longer than 10 s; change the node.
        Since: API 1.
        """

    @one
    def hami_static_devices(  # type: ignore[empty-body]
        self, profile: VendorProfile, config: PluginConfig
    ) -> Mapping[str, Sequence[Device]]:
        """Devices that kubelet itself hands out, whole, under resource names of their own.

        Called: after ``hami_discover``, as often; never concurrently with it.
        Args:
            profile: the vendor in question.
            config: the node's configuration.
        Returns: devices by resource name (``nvidia.com/mig-1g.5gb``), none of which
            ``hami_discover`` returns. kubelet chooses among the healthy ones; our scheduler does
            not know them. Empty and default: none.
        Order: vendors by key.
        Errors: an exception keeps the former answer.
        Must not: name a resource of the profile; take longer than 10 s; change the node.
        Since: API 1.
        """

    @one
    def hami_static_edits(  # type: ignore[empty-body]
        self, profile: VendorProfile, devices: Sequence[Device], config: PluginConfig
    ) -> ContainerEdits:
        """What a container needs to use devices that kubelet chose.

        Called: when kubelet allocates devices of ``hami_static_devices``.
        Args:
            profile: the vendor in question.
            devices: the chosen ones.
            config: the node's configuration.
        Returns: environment, mounts, device files and CDI names. Default: nothing.
        Order: as kubelet asks.
        Errors: an exception fails the pod, with the text in its status.
        Must not: do anything that would have to be undone; take longer than 5 s.
        Since: API 1.
        """

    @required
    def hami_enforce(  # type: ignore[empty-body]
        self, profile: VendorProfile, slice: Slice, config: PluginConfig
    ) -> ContainerEdits:
        """Make a slice real: what the container needs to use it and to stay inside it.

        Called: before each start of the container, after its identity and signature were checked.
        Args:
            profile: the vendor in question.
            slice: whose slice, which grants, and a directory of its own.
            config: the node's configuration.
        Returns: environment, mounts, device files and CDI names. May act (create a MIG instance)
            and records what it did in ``slice.state_dir``.
        Order: slices of one pod one after the other.
        Errors: an exception keeps the container from starting, with the text in its status.
        Must not: give different edits for the same slice id; mount anything writable but its usage
            file (with ``identity`` ``lock`` also what HAMi's library writes); name relative paths;
            take longer than 20 s.
        Since: API 1.
        """

    @one
    def hami_release(self, profile: VendorProfile, slice: Slice, config: PluginConfig) -> None:
        """Undo ``hami_enforce``.

        Called: when the pod is gone, at least once per slice.
        Args:
            profile: the vendor in question.
            slice: the slice as it was enforced.
            config: the node's configuration.
        Returns: None. Default: nothing to undo.
        Order: after the last container of the pod has ended.
        Errors: an exception is retried with back-off; the slice stays until it succeeds.
        Must not: fail because it was already released.
        Since: API 1.
        """

    @one
    def hami_reconcile(
        self, profile: VendorProfile, live_slices: Sequence[Slice], config: PluginConfig
    ) -> None:
        """Undo whatever on this node belongs to no live slice.

        Called: at start, about every minute, and sooner after a failure; never while
            ``hami_enforce`` begins.
        Args:
            profile: the vendor in question.
            live_slices: every slice of this vendor whose pod still exists.
            config: the node's configuration.
        Returns: None. Default: nothing.
        Order: beside registration; what is being enforced is among ``live_slices``.
        Errors: an exception is logged and retried; allocation goes on.
        Must not: touch what it did not make.
        Since: API 1.
        """

    @one
    def hami_check_health(  # type: ignore[empty-body]
        self, profile: VendorProfile, devices: Sequence[Device]
    ) -> Sequence[HealthChange]:
        """Which devices became healthy or unhealthy.

        Called: in a loop; may block up to its timeout while nothing happens.
        Args:
            profile: the vendor in question.
            devices: what ``hami_discover`` last returned.
        Returns: changes since the last call, in both directions. Empty and default: none.
        Order: never concurrently with itself.
        Errors: an exception is logged once; three in a row make the devices unhealthy.
        Must not: report a device that was not discovered.
        Since: API 1.
        """

    @one
    def hami_measure(  # type: ignore[empty-body]
        self, profile: VendorProfile, devices: Sequence[Device], slices: Sequence[Slice]
    ) -> Measurement:
        """What devices, processes and slices use now.

        Called: by the monitor, at each of its ticks: every 500 ms, or as often as its setting says;
            never concurrently with itself.
        Args:
            profile: the vendor in question.
            devices: what ``hami_discover`` last returned in the same process.
            slices: every slice of this vendor on this node.
        Returns: bytes, and percent of a device since the last call: of each device that answers, of
            each process that has one open, and of each slice that the hardware itself counts. None
            for what nobody can say. Empty and default: nothing is known.
        Order: vendors by key.
        Errors: an exception leaves the former values, marked as stale; after 10 s the containers of
            this vendor are told that nobody measures them.
        Must not: name a device or slice that it was not given; leave out all for one that fails;
            take longer than 1 s; change the node.
        Since: API 1.
        """
