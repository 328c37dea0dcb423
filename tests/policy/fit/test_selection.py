"""What a pod's annotations say about devices: models, uuids, modes, NUMA."""

from __future__ import annotations

import pytest

from hami.policy.fit.selection import Selection, cordoned_ids

from ..builders import a_pod, the_vendors

PROFILE = the_vendors()["ACME"].profile


def selecting(**annotations: str) -> Selection:
    return Selection.of(PROFILE, a_pod(annotations={f"acme.com/{k.replace('_', '-')}": v for k, v in annotations.items()}))  # fmt: skip


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, True, id="nothing said"),
        pytest.param({"use_uuid": "d0"}, True, id="wanted"),
        pytest.param({"use_uuid": "d1"}, False, id="another is wanted"),
        pytest.param({"nouse_uuid": "d0"}, False, id="not wanted"),
        pytest.param({"nouse_uuid": "d1"}, True, id="another is not wanted"),
        pytest.param({"use_uuid": "d0", "nouse_uuid": "d0"}, False, id="fix: both, and not wanted counts"),
        pytest.param({"use_uuid": "d0", "nouse_uuid": "d1"}, True, id="wanted, another not"),
        pytest.param({"use_uuid": " d1 , d0 "}, True, id="fix: blanks around a uuid do not count"),
        pytest.param({"use_uuid": "d"}, False, id="a part of a uuid is no match"),
        pytest.param({"use_uuid": ""}, True, id="empty is no constraint"),
        pytest.param({"use_uuid": "  "}, True, id="blank is no constraint"),
        pytest.param({"nouse_uuid": ","}, True, id="only commas are no constraint"),
    ],
)  # fmt: skip
def test_uuids(annotations, expected):
    assert selecting(**annotations).admits_uuid("d0") is expected


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, True, id="nothing said"),
        pytest.param({"use_type": "a10"}, True, id="a part of the name, whatever the case"),
        pytest.param({"use_type": "H100"}, False, id="another model"),
        pytest.param({"use_type": "H100,A100"}, True, id="one of several"),
        pytest.param({"nouse_type": "A100"}, False, id="not this model"),
        pytest.param({"nouse_type": "H100, a100"}, False, id="not one of several"),
        pytest.param({"nouse_type": "H100"}, True, id="not another model"),
        pytest.param({"use_type": "A100", "nouse_type": "SXM4"}, False, id="wanted and not wanted"),
        pytest.param({"use_type": " "}, True, id="blank is no constraint"),
        pytest.param({"use_type": ",A100,"}, True, id="empty members do not count"),
        pytest.param({"nouse_type": ",,"}, True, id="only commas are no constraint"),
    ],
)  # fmt: skip
def test_models(annotations, expected):
    assert selecting(**annotations).admits_model("NVIDIA A100-SXM4-40GB") is expected


def test_fix_a_profile_may_ask_for_exact_models_so_that_b4_is_not_b4_1():
    exact = Selection(use_models=(("ASCEND910B4",),), exact_models=True)
    assert exact.admits_model("Ascend910B4")
    assert not exact.admits_model("Ascend910B4-1")


@pytest.mark.parametrize(
    ("annotation", "mode", "expected"),
    [
        pytest.param(None, "mig", True, id="nothing said"),
        pytest.param("mig", "mig", True, id="this mode"),
        pytest.param("hami-core", "mig", False, id="another mode"),
        pytest.param("hami-core,mig", "mig", True, id="one of several"),
        pytest.param("MIG", "mig", False, id="the case counts"),
        pytest.param("mig", "", True, id="a device without a mode always passes"),
    ],
)
def test_modes(annotation, mode, expected):
    said = {} if annotation is None else {"mode": annotation}
    assert selecting(**said).admits_mode(mode) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [(t, True) for t in ("1", "t", "T", "TRUE", "true", "True")]
    + [(t, False) for t in ("0", "f", "false", "yes", "tRUE", "", " true")],
)
def test_numa_binding_reads_gos_booleans(text, expected):
    assert selecting(numa_bind=text).numa_bind is expected


def test_a_vendor_without_a_choice_ignores_its_annotations():
    pod = a_pod(annotations={"bolt.io/use-uuid": "x", "": "y"})
    assert Selection.of(the_vendors()["BOLT"].profile, pod) == Selection()


def test_a_cordon_is_a_list_with_blanks_and_empty_members():
    assert cordoned_ids(PROFILE, {"hami.io/device-cordon": "d1, ,d2 ,"}) == {"d1", "d2"}
    assert cordoned_ids(PROFILE, {}) == frozenset()
