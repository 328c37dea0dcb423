"""Ways to break the toy vendor, one at a time; each gives a plugin object."""

from __future__ import annotations

import dataclasses
import itertools

from msgspec.structs import replace

from hami.domain import reasons
from hami.domain.admission import Admission
from hami.domain.errors import Malformed
from hami.domain.measurements import Measurement
from hami.domain.reasons import Rejected
from hami.domain.requests import DeviceRequest, Placement
from hami.domain.slices import Mount
from hami.policy.fit import exact
from hami.policy.profile import defaults
from hami.testing.subject import subject_of

from .toy import CONFIG, SEAT, TOY, Seat, ToyVendor, broken, edits, map_grants, toy_node

COUNT = TOY.resources.count
SEATS = TOY.modes["seats"]

# Profiles.


def profiled(**changes):
    return broken(profile=dataclasses.replace(TOY, **changes))


def named(**changes):
    return profiled(resources=dataclasses.replace(TOY.resources, **changes))


def keyed(**changes):
    return profiled(pod_annotations=dataclasses.replace(TOY.pod_annotations, **changes))


def with_a_twin(key):
    twin = dataclasses.replace(
        TOY,
        key=key,
        resources=dataclasses.replace(
            TOY.resources, count="x.io/a", memory="", memory_percentage="", cores=""
        ),
        node_annotations=dataclasses.replace(TOY.node_annotations, register="x.io/r", handshake=""),
        pod_annotations=dataclasses.replace(
            TOY.pod_annotations, to_allocate="", allocated="x.io/d", also_written=()
        ),
    )
    return broken(hami_vendors=lambda self: (TOY, twin))


def another_profile_each_time():
    factors = itertools.count(1)
    return broken(
        hami_vendors=lambda self: (dataclasses.replace(TOY, memory_factor=next(factors)),)
    )


def another_default_beside_others():
    """The third registry of that check, after the subject's and the lone one, has neighbours."""
    loads = itertools.count()
    shy = dataclasses.replace(TOY, default_memory_mib=5)
    return broken(hami_vendors=lambda self: (TOY if next(loads) < 2 else shy,))


# Devices.


def reading(change):
    """Devices as published, then changed; what cannot be read stays so."""

    def hami_node_devices(self, node):
        found = defaults.node_devices(TOY, node)
        return found if isinstance(found, Malformed) else change(found)

    return broken(hami_node_devices=hami_node_devices)


def reading_malformed(answer):
    def hami_node_devices(self, node):
        found = defaults.node_devices(TOY, node)
        return answer() if isinstance(found, Malformed) else found

    return broken(hami_node_devices=hami_node_devices)


def boom():
    raise KeyError("boom")


def in_turn(*answers):
    turns = itertools.cycle(answers)
    return lambda *_: next(turns)


def silence_is_malformed(self, node):
    if not node.annotations:
        return Malformed(annotation="toy", position="", text="", problem="is missing")
    return defaults.node_devices(TOY, node)


def with_the_handshake(self, devices):
    return {**defaults.node_annotations(TOY, devices), "toy.example.com/handshake": "now"}


def with_a_key_of_nobody(self, devices):
    return {**defaults.node_annotations(TOY, devices), "toy.example.com/links": "[]"}


# Requests.


def parsing(change):
    """The toy's request, or what it says instead of one, changed."""

    def hami_parse_request(self, container, pod):
        return change(defaults.parse_request(TOY, container, pod))

    return broken(hami_parse_request=hami_parse_request)


def asking(**changes):
    return parsing(lambda r: replace(r, **changes) if isinstance(r, DeviceRequest) else r)


def answering_for_all():
    """Reads the count of whichever vendor."""

    def hami_parse_request(self, container, pod):
        if any(name.endswith("/device") for name in container.limits):
            return DeviceRequest(vendor="TOY", count=1, memory_percent=100)
        return None

    return broken(hami_parse_request=hami_parse_request)


def admission(**sets):
    return broken(hami_admit=lambda self: Admission(**sets))


def admitting(count):
    def hami_admit(self, container):
        return Admission(limits={COUNT: str(count(container.limits.get(COUNT, "0")))})

    return broken(hami_admit=hami_admit)


# Fit.


def charging(change):
    def hami_charge(self, profile, request, state, ctx):
        return change(ToyVendor().hami_charge(profile, request, state, ctx), state)

    return broken(hami_charge=hami_charge)


def halving(field, *, when, **members):
    """Grants half of ``field`` where ``when(request)``."""

    def hami_charge(self, profile, request, state, ctx):
        grant = ToyVendor().hami_charge(profile, request, state, ctx)
        if isinstance(grant, reasons.Reason) or not when(request):
            return grant
        return replace(grant, **{field: getattr(grant, field) // 2})

    return broken(hami_charge=hami_charge, **members)


def greedy(grant, state):
    return grant if isinstance(grant, reasons.Reason) else replace(grant, memory_mib=1 << 20)


def same_seat(grant, state):
    seat = Seat(0)
    return grant if isinstance(grant, reasons.Reason) else with_extra(grant, SEAT, seat)


def seats_in_turn():
    seats = in_turn(Seat(1), Seat(2))
    return charging(lambda grant, state: with_extra(grant, SEAT, seats()))


def with_extra(grant, key, value):
    if isinstance(grant, reasons.Reason):
        return grant
    return replace(grant, extra=grant.extra.with_(key, value))


def looking_at_nothing(self, profile, request, states, ctx):
    states = list(states)[: request.count]
    grants = [ToyVendor().hami_charge(profile, request, state, ctx) for state in states]
    if len(grants) < request.count or any(isinstance(g, reasons.Reason) for g in grants):
        return Rejected.of(reasons.TOO_FEW)
    return Placement(tuple(grants))


def fitting(change):
    """The default loop with its states and surroundings changed."""

    def hami_fit(self, profile, request, states, ctx):
        vendor = subject_of(ToyVendor(), toy_node(), config=CONFIG).vendor
        return exact.place(vendor, request, *change(states, ctx))

    return broken(hami_fit=hami_fit)


def healed(states, ctx):
    return [replace(s, device=replace(s.device, healthy=True)) for s in states], ctx


def known(states, ctx):
    return [replace(state, known=True) for state in states], ctx


def unlimited(states, ctx):
    return states, replace(ctx, allowed=lambda grants: True)


def the_first(self, request, candidates):
    return [grant for _, grant in candidates][: request.count]


def shrunk(self, request, candidates):
    return [replace(grant, memory_mib=1) for _, grant in candidates][: request.count]


def scoring_anew():
    scores = itertools.count()
    return broken(hami_score=lambda self: next(scores))


# Pods.


def restoring(change, otherwise=None):
    """The toy's restore; ``change`` applies to its grants, ``otherwise`` where it says Corrupt."""

    def hami_restore(self, pod, allocation):
        back = ToyVendor().hami_restore(pod, allocation)
        if hasattr(back, "containers"):
            return change(back)
        return otherwise(allocation) if otherwise else back

    return broken(hami_restore=hami_restore)


def emptied(allocation):
    return map_grants(allocation, lambda g, c, n: replace(g, memory_mib=0))


def seats_for_all(allocation):
    def seated(container):
        return replace(
            container, grants=tuple(with_extra(g, SEAT, Seat(0)) for g in container.grants)
        )

    return replace(allocation, containers=tuple(map(seated, allocation.containers)))


def with_cores_key(self):
    return {"hami.io/vgpu-node": "elsewhere"}


# Nodes.


class Half:
    """A vendor that discovers and cannot enforce."""

    HAMI_API = 1
    profile = TOY
    hami_vendors = ToyVendor.hami_vendors
    hami_discover = ToyVendor.hami_discover


def enforcing(**changes):
    return broken(hami_enforce=lambda self, slice: edits(slice, **changes))


def enforcing_in_turn():
    envs = in_turn({"N": "1"}, {"N": "2"}, {"N": "3"})
    return broken(hami_enforce=lambda self, slice: edits(slice, env=envs()))


def forgetting_live_slices():
    kept = ["TOY-0"]
    return broken(
        hami_reconcile=lambda self: kept.clear(),
        hami_enforce=lambda self, slice: edits(slice, env={"TOY_DEVICE": "".join(kept)}),
    )


def a_mount(host_path, **rest):
    return (Mount(host_path=host_path, container_path="/x", **rest),)


def releasing_once(self, slice):
    (slice.state_dir / "limits").unlink()


def measuring(**found):
    return broken(hami_measure=lambda self: Measurement(**found))
