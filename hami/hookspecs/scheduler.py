"""The hooks that whoever decides asks: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from hami.domain.admission import Admission, Denied
from hami.domain.allocations import ContainerKind, Corrupt, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.errors import Malformed
from hami.domain.kubernetes.objects import Container, Node, Pod
from hami.domain.profile import VendorProfile
from hami.domain.reasons import Reason, Rejected
from hami.domain.requests import DeviceRequest, FitContext, Invalid, Placement
from hami.domain.scheduling import NodePolicy
from hami.hookspecs.markers import PluginConfig, hookspec, one, required


class SchedulerHooks:
    """Asked by whoever decides: the scheduler, the webhook, ``hami simulate``.

    Pure functions: the same arguments give the same answer, in whatever thread they are asked.

    The scheduler asks again for a waiting pod only when something changes that it knows of. Of a
    pod they may read the namespace, the containers' names and resources, the priority class, the
    deadline, the affinity, and annotations under ``hami.io`` or under a domain that the profile
    names. Of a node, what is not in the devices themselves is read as it was at the last change.
    """

    @required
    def hami_vendors(self, config: PluginConfig) -> Sequence[VendorProfile]:  # type: ignore[empty-body]
        """The vendors that this plugin carries.

        Called: once at start and once per reload of the configuration, before any other hook;
            never concurrently with itself.
        Args:
            config: the whole device configuration; a plugin reads its own section and must do
                without it.
        Returns: one profile per vendor, keys unique over all plugins, in lower case too. Empty:
            this plugin offers nothing under this configuration.
        Order: plugins are asked in the order of their entry points' names; the result is sorted
            by vendor key.
        Errors: ``ConfigError`` for a section that makes no sense, naming key and value; start-up
            stops (a reload keeps the former vendors). Any other exception: the same, with the
            distribution's name.
        Must not: read files, the environment or the clock.
        Since: API 1.
        """

    @one
    def hami_node_devices(  # type: ignore[empty-body]
        self, profile: VendorProfile, node: Node
    ) -> Sequence[Device] | Malformed:
        """The devices of this vendor that a node published.

        Called: when a node appears and when its annotations change; up to thousands of times at
            start.
        Args:
            profile: the vendor in question.
            node: the node, with its annotations.
        Returns: every device, healthy or not, ids unique, memory in MiB. Empty: this node has no
            such device. ``Malformed``: it published something that cannot be read. Default:
            decode the register annotation with the profile's codec.
        Order: one vendor's answer is independent of the others'.
        Errors: an exception counts as a vendor failure: the node keeps no device of this vendor.
        Must not: drop devices that are unhealthy, in use or cordoned; the core decides that.
        Since: API 1.
        """

    @one
    def hami_node_annotations(  # type: ignore[empty-body]
        self, profile: VendorProfile, devices: Sequence[Device]
    ) -> Mapping[str, str]:
        """The annotations that a node of this vendor publishes.

        Called: by the node agent after each discovery, and for simulated nodes.
        Args:
            profile: the vendor in question.
            devices: every device of this vendor on the node.
        Returns: annotation keys and texts, such that ``hami_node_devices`` gives back equal
            devices. Empty: nothing to publish. Default: the register annotation in the profile's
            codec.
        Order: keys of different vendors must differ.
        Errors: an exception counts as a vendor failure; the annotations stay as they were.
        Must not: write the handshake annotation; the agent does. Write a key that the profile
            names neither as ``register`` nor in ``also_written``: the cluster's policy lets an
            agent write no other.
        Since: API 1.
        """

    @one
    def hami_admit(  # type: ignore[empty-body]
        self, profile: VendorProfile, container: Container, pod: Pod, kind: ContainerKind
    ) -> Admission | Denied:
        """What changes in a container when its pod is created.

        Called: for every container of every new pod that our scheduler may own, and again when
            the API server re-invokes the webhook.
        Args:
            profile: the vendor in question.
            container: the container, with what earlier vendors have set.
            pod: the pod it belongs to.
            kind: init, sidecar or app.
        Returns: values to set; an empty ``Admission`` changes nothing. ``Denied``: the pod is
            refused with this text. Default: the profile's ``default_count`` and
            ``runtime_class``.
        Order: containers in spec order, init first; vendors by key; a later vendor sees the
            earlier one's changes.
        Errors: an exception denies the pod, naming the plugin.
        Must not: depend on being called once; the same call on its own result changes nothing.
        Since: API 1.
        """

    @one
    def hami_parse_request(
        self, profile: VendorProfile, container: Container, pod: Pod
    ) -> DeviceRequest | Invalid | None:
        """What a container asks of this vendor.

        Called: for every container at admission, and once per pod in the scheduler.
        Args:
            profile: the vendor in question.
            container: the container; its quantities are texts as the API server stores them. Its
                environment is there at admission alone.
            pod: the pod it belongs to, for annotations.
        Returns: the request. None: it asks nothing of this vendor. ``Invalid``: it asks for
            something that cannot be; the text names container, key and value. Default: the
            profile's resource names, units and defaults.
        Order: vendors by key; one vendor's answer is independent of the others'.
        Errors: an exception refuses the pod with reason ``VendorError``.
        Must not: answer None for a request it does not understand: the pod would run without a
            device.
        Since: API 1.
        """

    @one
    def hami_charge(  # type: ignore[empty-body]
        self,
        profile: VendorProfile,
        request: DeviceRequest,
        state: DeviceState,
        ctx: FitContext,
    ) -> Grant | Reason:
        """What one slice of this request takes of this device as it is now.

        Called: for each device that passed health, selection and slots, on each node that is
            fitted; hundreds of times per pod at worst.
        Args:
            profile: the vendor in question.
            request: what the container asks.
            state: the device with its usage and live grants.
            ctx: pod, node, container and what the pod has so far.
        Returns: the grant (of ``state.device.id``), whether or not it fits: the core compares it
            with what is free. ``Reason``: this device cannot serve it. Default: memory as asked,
            a percentage of this device's memory rounded down, cores clamped to 100, everything
            for an exclusive request.
        Order: devices in policy order; before quota, memory and cores are compared.
        Errors: an exception refuses the device with reason ``VendorError``.
        Must not: change ``state``; grant more than the device has.
        Since: API 1.
        """

    @one
    def hami_accept(
        self,
        profile: VendorProfile,
        request: DeviceRequest,
        state: DeviceState,
        chosen: Sequence[Grant],
        ctx: FitContext,
    ) -> Reason | None:
        """A vendor's own rule about a device that passed every other check.

        Called: after ``hami_charge`` and the core's checks, for each such device.
        Args:
            profile: the vendor in question.
            request: what the container asks.
            state: the device as it is now.
            chosen: the grants already taken for this request on this node.
            ctx: pod, node, container and what the pod has so far.
        Returns: None: accepted. ``Reason``: refused, counted for this device. Default: accept.
        Order: devices in policy order; last of the checks.
        Errors: an exception refuses the device with reason ``VendorError``.
        Must not: repeat what the profile's rules already check.
        Since: API 1.
        """

    @one
    def hami_choose(
        self,
        profile: VendorProfile,
        request: DeviceRequest,
        candidates: Sequence[tuple[DeviceState, Grant]],
        ctx: FitContext,
    ) -> Sequence[Grant] | Rejected | None:
        """Which of the devices that fit are taken together.

        Called: once per request on each node that is fitted, if the vendor implements it.
        Args:
            profile: the vendor in question.
            request: what the container asks.
            candidates: devices that would each fit alone, with their grants, in policy order; a
                device that can hold several slices occurs several times, its states in sequence.
            ctx: pod, node, container and what the pod has so far.
        Returns: ``request.count`` grants out of ``candidates``, such that ``ctx.allowed`` holds
            for all of them together. ``Rejected``: no such set. None: take the default, the first
            ``request.count`` that quota allows.
        Order: under NUMA binding once per NUMA node, in policy order, until one serves.
        Errors: an exception, a foreign grant or a set that quota refuses: reason ``VendorError``
            or ``ResourceQuotaNotFit``.
        Must not: depend on the order in which devices were registered.
        Since: API 1.
        """

    @one
    def hami_fit(  # type: ignore[empty-body]
        self,
        profile: VendorProfile,
        request: DeviceRequest,
        states: Sequence[DeviceState],
        ctx: FitContext,
    ) -> Placement | Rejected:
        """The whole decision for one request on one node.

        Called: once per request on each node that is fitted.
        Args:
            profile: the vendor in question.
            request: what the container asks.
            states: every device of this vendor on the node, in the order of their indexes.
            ctx: pod, node, container and what the pod has so far.
        Returns: a placement, or the reasons counted per device. Default: ``policy.fit.place``,
            built from charge, accept and choose.
        Order: containers in spec order, vendors by key.
        Errors: an exception refuses the node with reason ``VendorError``.
        Must not: exceed a device or ``ctx.allowed``; the core checks and refuses such a placement.
        Since: API 1.
        """

    @one
    def hami_score(  # type: ignore[empty-body]
        self,
        profile: VendorProfile,
        request: DeviceRequest,
        placement: Placement,
        before: Sequence[DeviceState],
        policy: NodePolicy,
    ) -> float:
        """A number added to the node's rank for this placement.

        Called: for every node that passed the prefilter, if the vendor implements it. That places
            the pod on each of them first: on 5000 nodes some hundred milliseconds per pod.
        Args:
            profile: the vendor in question.
            request: what the container asked.
            placement: the grants it would get on this node.
            before: the node's devices of this vendor before the pod.
            policy: the node policy in force; ``spread`` prefers low base scores.
        Returns: higher is better, whatever the policy. The base score is 0 to 30. Absent: nodes
            are ranked without being placed.
        Order: summed over the pod's containers and vendors.
        Errors: an exception refuses the node with reason ``VendorError``.
        Must not: return a value that is not finite.
        Since: API 1.
        """

    @one
    def hami_allocation_annotations(  # type: ignore[empty-body]
        self,
        profile: VendorProfile,
        allocation: PodAllocation,
        devices: Sequence[Device],
        pod: Pod,
        now: datetime,
    ) -> Mapping[str, str]:
        """Pod annotations beside the two device lists that the core writes.

        Called: once per pod that was placed and uses this vendor.
        Args:
            profile: the vendor in question.
            allocation: the whole pod's allocation, every vendor's grants.
            devices: this vendor's devices on the chosen node.
            pod: the pod.
            now: the time of the decision, with a zone.
        Returns: annotation keys and texts. Empty and default: none.
        Order: vendors by key; keys of different vendors must differ.
        Errors: an exception refuses the node with reason ``VendorError``.
        Must not: write a key that the profile does not name in ``also_written``.
        Since: API 1.
        """

    @one
    def hami_restore(  # type: ignore[empty-body]
        self, profile: VendorProfile, pod: Pod, allocation: PodAllocation
    ) -> PodAllocation | Corrupt:
        """Complete an allocation that was read back from a pod.

        Called: for every bound pod that uses this vendor, when it is first seen or changes.
        Args:
            profile: the vendor in question.
            pod: the pod, with all its annotations.
            allocation: what the core's device lists say: ids, memory and cores, no extras.
        Returns: the allocation with this vendor's extras. ``Corrupt``: its own annotations
            contradict it; the named devices take no new pod. Default: as read.
        Order: vendors by key, each on the former's result.
        Errors: an exception counts as ``Corrupt`` for every device of this vendor in it.
        Must not: change other vendors' grants, or lower a charge.
        Since: API 1.
        """

    @hookspec
    def hami_simulated_annotations(  # type: ignore[empty-body]
        self, node: Node, config: PluginConfig
    ) -> Mapping[str, str]:
        """The annotations that a simulated node carries besides its own.

        Called: once per node by ``hami simulate`` and the embedded cluster; never in a real one.
        Args:
            node: the node as written, for example with ``mock.hami.io/devices: "h100x8"``.
            config: the whole device configuration.
        Returns: annotation keys and texts, for vendors of any plugin. Empty: this node is not
            simulated by this plugin.
        Order: every plugin is asked; an annotation that the node already has is kept.
        Errors: ``ConfigError`` for a value that makes no sense: the command stops with it.
        Must not: depend on which vendors are installed.
        Since: API 1.
        """
