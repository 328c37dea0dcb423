"""Refusals as text: HAMi's spelling, which people's scripts and dashboards match on."""

from __future__ import annotations

import pytest

from hami.domain import reasons
from hami.domain.reasons import Reason, Rejected

HAMIS_WORDS = [
    "AllocatedCardsInsufficientRequest",
    "CardComputeUnitsExhausted",
    "CardCordoned",
    "CardInsufficientCore",
    "CardInsufficientMemory",
    "CardMigTopologyInfeasible",
    "CardNotFoundCustomFilterRule",
    "CardNotHealth",
    "CardTimeSlicingExhausted",
    "CardTypeMismatch",
    "CardUuidMismatch",
    "ExclusiveDeviceAllocateConflict",
    "ModeNotFit",
    "NodeInsufficientDevice",
    "NumaNotFit",
    "ResourceQuotaNotFit",
    "node unregistered",
]
OUR_WORDS = ["GivesWay", "NodeLocked", "PodGroupNotFit", "UnknownUsage", "VendorError"]

EVERY = [value for value in vars(reasons).values() if isinstance(value, Reason)]


def test_the_vocabulary_is_hamis_and_a_few_words_of_ours():
    assert sorted(reason.word for reason in EVERY) == sorted([*HAMIS_WORDS, *OUR_WORDS])


def test_a_reason_reads_as_its_word():
    assert str(reasons.NO_MEMORY) == "CardInsufficientMemory"


@pytest.mark.parametrize(
    ("rejected", "text"),
    [
        pytest.param(
            Rejected.of({reasons.QUOTA: 3, reasons.TOO_FEW: 1}, 4),
            "1/4 AllocatedCardsInsufficientRequest, 3/4 ResourceQuotaNotFit",
            id="counts of devices, as HAMi writes them",
        ),
        pytest.param(
            Rejected.of({reasons.NO_SLOT: 10, reasons.NOT_HEALTHY: 9}, 19),
            "10/19 CardTimeSlicingExhausted, 9/19 CardNotHealth",
            id="sorted as strings: 10 before 9",
        ),
        pytest.param(
            Rejected.of({reasons.NO_MEMORY: 1, reasons.CORDONED: 1}, 2),
            "1/2 CardCordoned, 1/2 CardInsufficientMemory",
            id="equal counts by word",
        ),
        pytest.param(
            Rejected.of(reasons.NODE_TOO_FEW_DEVICES),
            "NodeInsufficientDevice",
            id="a word about the node has no count",
        ),
        pytest.param(
            Rejected.of(reasons.NODE_UNREGISTERED), "node unregistered", id="nor has this"
        ),
        pytest.param(
            Rejected.of({reasons.NODE_TOO_FEW_DEVICES: 1, reasons.NO_CORES: 2}, 2),
            "2/2 CardInsufficientCore, NodeInsufficientDevice",
            id="words about the node come after the counts",
        ),
        pytest.param(
            Rejected.of({Reason("AcmeSays"): 1}, 1), "1/1 AcmeSays", id="a vendor's own word"
        ),
        pytest.param(
            Rejected.of({reasons.NO_CORES: 0, reasons.NO_SLOT: 1}, 1),
            "1/1 CardTimeSlicingExhausted",
            id="what never happened is not mentioned",
        ),
        pytest.param(
            Rejected.of({reasons.QUOTA: 1}, 1, ["ResourceQuota a/b: ..."]),
            "1/1 ResourceQuotaNotFit",
            id="details are for people and stay out",
        ),
    ],
)
def test_text(rejected, text):
    assert str(rejected) == text


@pytest.mark.parametrize(
    ("rejected", "expected"),
    [
        pytest.param(Rejected.of({reasons.TYPE_MISMATCH: 4}, 4), True, id="no such device"),
        pytest.param(Rejected.of({reasons.NO_MEMORY: 4}, 4), False, id="evicting frees memory"),
        pytest.param(
            Rejected.of({reasons.TYPE_MISMATCH: 3, reasons.NO_SLOT: 1}, 4),
            False,
            id="one device may be freed",
        ),
        pytest.param(Rejected.of(reasons.NODE_UNREGISTERED), True, id="not one of our nodes"),
        pytest.param(Rejected.of({reasons.VENDOR_ERROR: 1}, 1), True, id="a broken plugin"),
        pytest.param(Rejected.of({reasons.UNKNOWN_USAGE: 1}, 1), False, id="unreadable usage"),
        pytest.param(Rejected.of({reasons.QUOTA: 1}, 1), False, id="evicting frees quota"),
    ],
)
def test_what_no_eviction_can_help(rejected, expected):
    assert rejected.unresolvable is expected
