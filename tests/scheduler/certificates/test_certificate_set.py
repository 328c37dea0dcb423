"""What comes next in the Secret: which damage is mended how, and that no client is ever locked out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.scheduler.certificates.certificate_set import (
    MOST_TRUSTED,
    CertificateSet,
    CertificateTimes,
    next_set,
    read_set,
)
from hami.scheduler.certificates.issuing import hosts_of

NAMES = ("hami-scheduler.hami.svc", "127.0.0.1")
DAY = timedelta(days=1)
TIMES = CertificateTimes(serving=30 * DAY, authority=1080 * DAY, drain=timedelta(hours=1))
START = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING = CertificateSet()


def after(found, now=START, *, served=NOTHING, known=False, names=NAMES):
    return next_set(found, served=served, names=names, now=now, times=TIMES, known_everywhere=known)


def issuer(found: CertificateSet) -> int:
    """The place of the CA that vouches for what is served."""
    subjects = [ca.subject for ca in found.trusted]
    return subjects.index(found.serving.cert.issuer)


@pytest.fixture(scope="module")
def first():
    """What a new cluster gets."""
    return after(NOTHING)


def test_an_empty_secret_gets_a_ca_and_a_certificate_at_once(first):
    assert (len(first.trusted), issuer(first)) == (1, 0)
    assert set(hosts_of(first.serving.cert)) == set(NAMES)
    assert first.serving.cert.not_valid_before_utc < START  # for a clock that is behind


def test_what_is_written_is_read_back(first):
    assert read_set(first.data()).data() == first.data()


def test_nothing_is_done_while_all_is_well(first):
    assert after(first, START + 19 * DAY) is first


def test_a_certificate_is_renewed_when_a_third_is_left_and_its_ca_stays(first):
    later = after(first, START + 21 * DAY)
    assert later.trusted == first.trusted
    assert later.serving != first.serving


def test_other_names_make_another_certificate(first):
    later = after(first, names=("elsewhere.svc",))
    assert hosts_of(later.serving.cert) == ("elsewhere.svc",)


def test_a_new_ca_is_trusted_first_then_used_then_alone(first):
    now = START + 721 * DAY
    before = replace(first, serving=after(first, now - 20 * DAY).serving)
    trusted = after(before, now)
    assert (len(trusted.trusted), trusted.serving) == (2, before.serving)
    assert after(trusted, now) is trusted
    used = after(trusted, now, known=True)
    assert (len(used.trusted), issuer(used)) == (2, 0)
    assert after(used, now + TIMES.drain / 2) is used
    assert len(after(used, now + TIMES.drain).trusted) == 1


def test_what_has_ended_while_nobody_led_is_made_anew_at_once(first):
    later = after(first, START + 3000 * DAY)
    assert (len(later.trusted), issuer(later)) == (1, 0)


DAMAGE = {
    "ca.crt": {"ca.crt": "no base64"},
    "ca.key": {"ca.key": ""},
    "tls.crt": {"tls.crt": "Z2FyYmFnZQ=="},
    "tls.key": {"tls.key": "Z2FyYmFnZQ=="},
    "everything": dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"), "%"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_mended_so_that_what_is_served_stays_trusted(first, what):
    """Also while webhooks trust nothing but the former CA, and replicas show the former certificate."""
    mended = after(read_set({**first.data(), **DAMAGE[what]}), served=first, known=True)
    assert first.trusted[0] in mended.trusted
    assert mended.serving.cert.issuer == first.trusted[0].subject


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["nothing", *DAMAGE]),
            st.integers(min_value=0, max_value=400),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_what_is_served_is_valid_and_of_a_trusted_ca_whatever_happened(steps):
    """Unless something ended meanwhile, a client of the former bundle is served by its CA too."""
    now, current = START, after(NOTHING)
    for what, days, known in steps:
        now += days * DAY
        found = read_set({**current.data(), **DAMAGE.get(what, {})})
        later = after(found, now, served=current, known=known)
        cert = later.serving.cert
        assert cert.not_valid_before_utc <= now < cert.not_valid_after_utc
        assert 1 <= len(later.trusted) <= MOST_TRUSTED
        assert later.authority is not None
        cert.verify_directly_issued_by(later.trusted[issuer(later)])
        still = current.serving.cert.not_valid_after_utc > now
        if still and not known:
            assert cert.issuer in [ca.subject for ca in current.trusted]
        current = later
