"""Every check of the kit fails for a vendor that breaks its rule, and says so in a sentence."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
from msgspec.structs import replace

from hami.domain import reasons
from hami.domain.admission import Denied
from hami.domain.extra import ExtraKey
from hami.domain.profile import ALL_COLUMNS
from hami.domain.reasons import Rejected
from hami.domain.requests import DeviceRequest, Invalid
from hami.policy.profile import defaults
from hami.testing import VendorContract
from hami.testing.subject import subject_of

from .breakages import (
    COUNT,
    SEATS,
    admission,
    admitting,
    another_default_beside_others,
    another_profile_each_time,
    answering_for_all,
    asking,
    boom,
    charging,
    emptied,
    fitting,
    greedy,
    halving,
    healed,
    in_turn,
    keyed,
    known,
    looking_at_nothing,
    named,
    parsing,
    profiled,
    reading,
    reading_malformed,
    restoring,
    same_seat,
    scoring_anew,
    seats_for_all,
    seats_in_turn,
    shrunk,
    silence_is_malformed,
    the_first,
    unlimited,
    with_a_key_of_nobody,
    with_a_twin,
    with_cores_key,
    with_extra,
    with_the_handshake,
)
from .broken_nodes import BROKEN_NODE_SIDES
from .toy import CONFIG, TOY, Seat, a_toy, broken, toy_node

BROKEN = {
    "test_the_profile_follows_the_rules": {
        "a comma in the key": (lambda: profiled(key="T,Y"), "letters, digits"),
        "two keys that differ by case": (lambda: with_a_twin("Toy"), "differ by case"),
        "a name without a domain": (lambda: named(memory="memory"), "has a domain"),
        "a name for two amounts": (lambda: named(memory=COUNT), "each needs its own"),
        "no name for the count": (lambda: named(count=""), "count is empty"),
        "a blank in an annotation": (lambda: keyed(use_type=("Toy Type",)), "letters, digits"),
        "nothing to read grants from": (lambda: keyed(allocated=""), "allocated is empty"),
        "a factor of zero": (lambda: profiled(memory_factor=0), "memory_factor is 0"),
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
        "a key that the profile does not name": (
            lambda: broken(hami_node_annotations=with_a_key_of_nobody),
            "name it in node_annotations.also_written",
        ),
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
    "test_what_other_vendors_count_is_none": {
        "the count of whichever vendor": (answering_for_all, "ask another vendor"),
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
    "test_admission_leaves_other_containers_alone": {
        "a denial": (
            lambda: broken(hami_admit=lambda self: Denied("ask me")),
            "denies a container with limits {}, which ask nothing of this vendor: ask me",
        ),
        "a device for everybody": (
            lambda: admission(limits={COUNT: "1"}),
            "sets {'limits': {'toy.example.com/device': '1'}}",
        ),
        "a request for everybody": (lambda: admission(requests={COUNT: "1"}), "sets {'requests'"),
        "an annotation for everybody": (
            lambda: admission(pod_annotations={"toy.example.com/seen": "yes"}),
            "sets {'pod_annotations'",
        ),
        "a runtime for everybody": (
            lambda: admission(runtime_class="toy"),
            "sets {'runtime_class': 'toy'}",
        ),
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
        "less than the asked share": (
            lambda: halving("memory_mib", when=lambda request: request.memory_percent),
            r"grants \d+ MiB when \d+ were asked",
        ),
        "less compute than was asked": (
            lambda: halving("cores", when=lambda request: request.cores),
            r"grants \d+ percent when \d+ were asked",
        ),
        "a part of an exclusive device": (
            lambda: halving(
                "memory_mib",
                when=lambda request: request.exclusive,
                profile=dataclasses.replace(TOY, whole_device=True),
            ),
            "grants 2048 MiB when 4096 were asked",
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
    "test_a_score_is_a_function_of_the_placement": {
        "another score each time": (scoring_anew, "for the same placement"),
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
            lambda: profiled(
                modes=TOY.modes | {"seats": dataclasses.replace(SEATS, prefilter=ALL_COLUMNS)}
            ),
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
} | BROKEN_NODE_SIDES

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
