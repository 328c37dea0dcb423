"""Every check of the kit fails for a vendor that breaks its rule, and says so in a sentence."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from hami.domain import reasons
from hami.domain.extra import ExtraKey
from hami.domain.profile import ALL_COLUMNS
from hami.domain.reasons import Rejected
from hami.domain.requests import DeviceRequest, Invalid
from hami.domain.slices import DeviceNode, HealthChange
from hami.policy import defaults
from hami.testing import VendorContract
from hami.testing.subject import subject_of

from .breakages import (
    COUNT,
    SEATS,
    Half,
    a_mount,
    admitting,
    another_default_beside_others,
    another_profile_each_time,
    asking,
    boom,
    charging,
    emptied,
    enforcing,
    enforcing_in_turn,
    fitting,
    forgetting_live_slices,
    greedy,
    healed,
    in_turn,
    keyed,
    known,
    looking_at_nothing,
    measuring,
    named,
    parsing,
    profiled,
    reading,
    reading_malformed,
    releasing_once,
    restoring,
    same_seat,
    seats_for_all,
    seats_in_turn,
    shrunk,
    silence_is_malformed,
    the_first,
    unlimited,
    with_a_twin,
    with_cores_key,
    with_extra,
    with_the_handshake,
)
from .toy import CONFIG, TOY, Seat, a_toy, broken, toy_node

BROKEN = {
    "test_the_key_is_one_plain_word": {
        "a comma in the key": (lambda: profiled(key="T,Y"), "letters, digits"),
        "a very long key": (lambda: profiled(key="T" * 41), "longer than 40"),
    },
    "test_keys_differ_in_lower_case": {
        "two keys that differ by case": (lambda: with_a_twin("Toy"), "differ by case"),
    },
    "test_resource_names_are_valid_and_distinct": {
        "a name without a domain": (lambda: named(memory="memory"), "has a domain"),
        "Kubernetes' own domain": (lambda: named(cores="kubernetes.io/cores"), "not yours"),
        "a name for two amounts": (lambda: named(memory=COUNT), "two meanings"),
        "no name for the count": (lambda: named(count=""), "count is empty"),
    },
    "test_annotation_keys_are_valid": {
        "a blank in a key": (lambda: keyed(use_type=("Toy Type",)), "letters, digits"),
        "a domain in capitals": (lambda: keyed(allocated="Toy.io/a"), "lower case"),
    },
    "test_written_annotations_have_one_meaning": {
        "nothing to read grants from": (lambda: keyed(allocated=""), "allocated is empty"),
        "a list and the vendor's own text in one": (
            lambda: keyed(also_written=(TOY.node_annotations.register,)),
            "two meanings",
        ),
        "one key for two texts": (lambda: keyed(numa_bind=TOY.pod_annotations.allocated), "two me"),
    },
    "test_numbers_make_sense": {
        "a factor of zero": (lambda: profiled(memory_factor=0), "memory_factor is 0"),
        "more than a whole device": (lambda: profiled(default_cores=101), "default_cores is 101"),
    },
    "test_the_same_config_names_the_same_vendors": {
        "other profiles each time": (another_profile_each_time, "other profiles"),
    },
    "test_the_plugin_does_without_its_section": {
        "a section that must be there": (
            lambda: broken(hami_vendors=lambda self, config: config["toy"] and (TOY,)),
            "failed to name its vendors: KeyError",
        ),
    },
    "test_the_fake_node_carries_two_devices": {
        "one device": (lambda: reading(lambda found: found[:1]), "carries 1 device"),
    },
    "test_ids_are_unique_and_stable": {
        "one id twice": (lambda: reading(lambda found: found + found), "not unique"),
        "other ids each time": (
            lambda: broken(hami_node_devices=in_turn([a_toy(0), a_toy(1)], [a_toy(2), a_toy(3)])),
            "ids changed",
        ),
    },
    "test_devices_are_legal": {
        "memory in bytes": (
            lambda: reading(lambda found: [replace(d, memory_mib=1 << 26) for d in found]),
            "the unit is MiB",
        ),
        "a separator in an id": (
            lambda: reading(lambda found: [replace(d, id="a:b") for d in found]),
            "one of , : ;",
        ),
        "no slot": (lambda: reading(lambda found: [replace(d, slots=0) for d in found]), "slots"),
    },
    "test_devices_survive_the_wire": {
        "ill devices dropped": (
            lambda: reading(lambda found: [d for d in found if d.healthy]),
            "read back None",
        ),
        "a field lost": (
            lambda: reading(lambda found: [replace(d, memory_mib=4096) for d in found]),
            "read back Device",
        ),
    },
    "test_no_device_is_an_answer": {
        "silence is malformed": (
            lambda: broken(hami_node_devices=silence_is_malformed),
            "a node without devices: annotation toy",
        ),
    },
    "test_published_annotations_are_valid": {
        "the agent's handshake": (
            lambda: broken(hami_node_annotations=with_the_handshake),
            "by the agent alone",
        ),
        "nothing": (lambda: broken(hami_node_annotations=lambda self: {}), "publishes nothing"),
    },
    "test_garbage_is_malformed": {
        "garbage is no device": (lambda: reading_malformed(tuple), "not Malformed"),
        "a traceback": (lambda: reading_malformed(boom), "hami_node_devices of TOY failed: KeyErr"),
    },
    "test_any_text_gets_an_answer": {
        "a traceback": (lambda: reading_malformed(boom), "hami_node_devices of TOY failed: KeyErr"),
        "a device of nobody": (
            lambda: reading_malformed(lambda: [a_toy(0, vendor="NOBODY")]),
            "published a device of vendor 'NOBODY'",
        ),
    },
    "test_asking_nothing_is_none": {
        "a request out of nothing": (
            lambda: parsing(
                lambda r: r or DeviceRequest(vendor="TOY", count=1, memory_percent=100)
            ),
            "ask nothing of this vendor",
        ),
    },
    "test_a_count_asks_for_slices": {
        "always one": (lambda: asking(count=1), "=2 asks for 1 slices"),
        "neither MiB nor percent": (lambda: asking(memory_percent=None), "set exactly one"),
        "another vendor": (lambda: asking(vendor="NOBODY"), "read a request to vendor 'NOBODY'"),
    },
    "test_memory_is_read_in_its_unit": {
        "too little": (lambda: asking(memory_mib=1), "less than 1000"),
    },
    "test_a_percentage_stays_a_percentage": {
        "resolved too early": (
            lambda: asking(memory_mib=99, memory_percent=None),
            "50 percent was read as None",
        ),
    },
    "test_cores_are_not_lowered": {
        "a part of what was asked": (lambda: asking(cores=10), "asks for 10 percent"),
    },
    "test_bad_quantities_are_invalid": {
        "taken for no request": (
            lambda: parsing(lambda r: None if isinstance(r, Invalid) else r),
            "gave None, not Invalid",
        ),
        "a refusal that names nothing": (
            lambda: parsing(lambda r: Invalid("bad") if isinstance(r, Invalid) else r),
            "does not name the resource",
        ),
        "a traceback": (
            lambda: parsing(lambda r: boom() if isinstance(r, Invalid) else r),
            "hami_parse_request of TOY failed",
        ),
    },
    "test_admission_survives_bad_quantities": {
        "a number taken for granted": (lambda: admitting(int), "hami_admit of TOY failed: Value"),
    },
    "test_admitting_twice_changes_nothing": {
        "one more each time": (lambda: admitting(lambda text: int(text) + 1), "again"),
    },
    "test_a_charge_never_exceeds_the_device": {
        "more than there is": (lambda: charging(greedy), "of a device that has"),
        "another device": (
            lambda: charging(lambda g, s: replace(g, device_id="TOY-9")),
            "when asked about",
        ),
        "less than was asked": (
            lambda: charging(lambda g, s: replace(g, memory_mib=0)),
            "were asked",
        ),
        "another answer each time": (
            seats_in_turn,
            "for the same state",
        ),
    },
    "test_an_unused_device_takes_a_slice": {
        "never room": (
            lambda: broken(hami_charge=lambda self: reasons.NO_SLOT),
            "an empty node refuses",
        ),
    },
    "test_a_fit_never_over_allocates": {
        "one placement twice": (lambda: charging(same_seat), "gave one placement twice"),
        "a fit that does not compare": (
            lambda: broken(hami_fit=looking_at_nothing),
            "device TOY-[01] gave",
        ),
        "a placement that is not named": (
            lambda: broken(
                hami_charge=lambda self, profile, request, state, ctx: defaults.charge(
                    profile, request, state, ctx
                )
            ),
            "does not say which",
        ),
    },
    "test_an_ill_device_takes_nothing": {
        "ill devices taken": (lambda: fitting(healed), "devices that are not healthy"),
        "unknown usage ignored": (lambda: fitting(known), "not known in its usage"),
    },
    "test_quota_is_honoured": {
        "a fit past quota": (lambda: fitting(unlimited), "ctx.allowed refuses"),
    },
    "test_choose_takes_what_it_was_offered": {
        "a choice past quota": (lambda: broken(hami_choose=the_first), "ctx.allowed refuses"),
        "a grant of its own": (lambda: broken(hami_choose=shrunk), "was not offered"),
        "too few": (lambda: broken(hami_choose=lambda self: ()), "took 0 grants"),
    },
    "test_an_allocation_is_restored": {
        "extras forgotten": (
            lambda: broken(hami_restore=lambda self, allocation: allocation),
            "read back",
        ),
    },
    "test_written_annotations_are_the_vendors_own": {
        "the core's key": (
            lambda: broken(hami_allocation_annotations=with_cores_key),
            "which the core does",
        ),
        "a key that the profile does not name": (
            lambda: keyed(also_written=()),
            "name it in pod_annotations.also_written",
        ),
    },
    "test_restoring_survives_spoilt_annotations": {
        "nothing charged": (
            lambda: restoring(emptied, emptied),
            "hami_restore of TOY failed: returned other grants",
        ),
        "a traceback": (lambda: restoring(emptied, lambda _: boom()), "hami_restore of TOY failed"),
    },
    "test_restoring_leaves_other_vendors_alone": {
        "every grant changed": (
            lambda: restoring(seats_for_all),
            "returned other grants than its own",
        ),
    },
    "test_extras_pass_through_json": {
        "a codec of another type": (
            lambda: charging(lambda g, s: with_extra(g, ExtraKey("toy.odd", int), Seat(1))),
            "'toy.odd' does not pass through JSON",
        ),
    },
    "test_the_prefilter_is_sound": {
        "columns that placements ignore": (
            lambda: profiled(modes=TOY.modes | {"seats": replace(SEATS, prefilter=ALL_COLUMNS)}),
            "the prefilter drops a node",
        ),
    },
    "test_the_order_of_devices_does_not_matter": {
        "an index by position": (
            lambda: reading(lambda found: [replace(d, index=n) for n, d in enumerate(found)]),
            "devices published as",
        ),
    },
    "test_the_order_of_registration_does_not_matter": {
        "shy beside others": (another_default_beside_others, "with the plugins a-neighbour"),
    },
    "test_a_pod_is_placed": {
        "no placement at all": (
            lambda: broken(hami_fit=lambda self: Rejected.of(reasons.TOO_FEW)),
            "refused by an empty node",
        ),
    },
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
    "test_measurements_speak_of_live_slices": {
        "a dead slice": (lambda: measuring(slice_id="gone"), "'gone': not live"),
        "a stranger": (lambda: measuring(device_id="TOY-9"), "'TOY-9', which was not"),
        "negative memory": (lambda: measuring(memory_mib=-1), "-1 MiB"),
    },
}

CASES = [
    pytest.param(check, make, says, id=f"{check.removeprefix('test_')}: {word}")
    for check, broken_by in BROKEN.items()
    for word, (make, says) in broken_by.items()
]


@pytest.mark.parametrize(("check", "make", "says"), CASES)
def test_the_check_fails_and_says_why(check, make, says, tmp_path) -> None:
    with pytest.raises(AssertionError, match=says) as failure:
        run(check, make(), tmp_path)
    assert len(str(failure.value).splitlines()) == 1


def test_every_check_has_a_vendor_that_breaks_it() -> None:
    checks = {name for name in dir(VendorContract) if name.startswith("test_")}
    assert set(BROKEN) == checks


@pytest.mark.parametrize("check", BROKEN)
def test_every_check_states_its_rule(check: str) -> None:
    assert (inspect.getdoc(getattr(VendorContract, check)) or "").endswith(".")


def run(check: str, vendor: object, tmp_path) -> None:
    subject = subject_of(vendor, toy_node(), config=CONFIG)
    method = getattr(VendorContract(), check)
    given = {"subject": subject, "tmp_path": tmp_path}
    method(**{name: given[name] for name in inspect.signature(method).parameters})
