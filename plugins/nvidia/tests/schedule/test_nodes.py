"""What a node publishes about its devices: texts that others read and write."""

import json

import pytest
from hami_nvidia.schedule.mig_placement import MIG_PROFILES
from hami_nvidia.schedule.node_annotations import SCORES_ANNOTATION, decode_pair_scores
from hami_nvidia.schedule.topology import PAIR_SCORES, PairScore
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.errors import Malformed
from hami.domain.extra import NO_EXTRA

from ..builders import a_gpu, a_mig_gpu, a_node, a_profile, linked, the_vendor

REGISTER = "hami.io/node-nvidia-register"

GOLDEN_MIG = (
    '[{"id":"GPU-0","count":7,"devmem":40960,"devcore":100,"type":"NVIDIA-A100-SXM4-40GB",'
    '"mode":"mig","migProfiles":[{"name":"1g.5gb","memoryMB":4864,"core":15,"sliceCount":1,'
    '"placements":[{"start":6,"size":1}]}],"health":true}]'
)
GOLDEN_SCORES = (
    '[{"uuid":"GPU-0","score":{"GPU-1":50,"GPU-2":20}},{"uuid":"GPU-1","score":{"GPU-0":50}}]'
)


def published(annotations):
    return the_vendor().node_devices(a_node(annotations))


def registered(*ids, scores=None):
    text = json.dumps([{"id": id, "count": 1, "devmem": 1, "health": True} for id in ids])
    annotations = {REGISTER: text}
    if scores is not None:
        annotations[SCORES_ANNOTATION] = scores
    return annotations


def a_published_mig_gpu():
    return a_mig_gpu(
        profiles=[a_profile("1g.5gb", 4864, 15, 1, (6,), 1)], model="NVIDIA-A100-SXM4-40GB"
    )


def test_golden_mig_device():
    assert the_vendor().node_annotations([a_published_mig_gpu()]) == {REGISTER: GOLDEN_MIG}
    assert list(published({REGISTER: GOLDEN_MIG})) == [a_published_mig_gpu()]


def test_golden_device_of_hami():
    text = (
        '[{"id":"GPU-0","count":5,"devmem":8192,"devcore":100,"type":"NVIDIA-Tesla P4",'
        '"mode":"hami-core","health":true}]'
    )
    gpu = a_gpu("GPU-0", slots=5, memory=8192, model="NVIDIA-Tesla P4")
    assert the_vendor().node_annotations([gpu]) == {REGISTER: text}
    assert list(published({REGISTER: text})) == [gpu]


def test_golden_pair_scores():
    devices = linked("GPU-0", "GPU-1")({(0, 1): 50})
    devices[0] = a_gpu(
        "GPU-0",
        extra=NO_EXTRA.with_(
            PAIR_SCORES, (PairScore(peer="GPU-1", score=50), PairScore(peer="GPU-2", score=20))
        ),
    )
    assert the_vendor().node_annotations(devices)[SCORES_ANNOTATION] == GOLDEN_SCORES


def test_a_node_without_the_annotation_has_no_device():
    assert list(published({})) == []


def test_an_empty_list_has_no_device():
    assert list(published({REGISTER: "[]"})) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("GPU-0,10,7680,100,NVIDIA-Tesla P4,0,true:", id="the older colon format"),
        pytest.param("{}", id="no list"),
        pytest.param("[null]", id="a null device, which stops HAMi"),
        pytest.param("[{]", id="no JSON"),
        pytest.param("", id="an empty text"),
        pytest.param(
            '[{"id":"GPU-0","mode":"mig","migProfiles":{}}]', id="profiles that are no list"
        ),
        pytest.param(
            '[{"id":"GPU-0","mode":"mig","migProfiles":[{"name":"1g"}]}]', id="half a profile"
        ),
        pytest.param(GOLDEN_MIG.replace('"1g.5gb"', '""'), id="a profile without a name"),
        pytest.param(GOLDEN_MIG.replace("4864", "-1"), id="a profile with negative memory"),
        pytest.param(GOLDEN_MIG.replace('"start":6', '"start":-1'), id="a negative start"),
        pytest.param(GOLDEN_MIG.replace('"size":1', '"size":0'), id="a placement of size 0"),
    ],
)
def test_a_register_annotation_that_cannot_be_read(text):
    answer = published({REGISTER: text})
    assert isinstance(answer, Malformed)
    assert answer.annotation == REGISTER


@pytest.mark.parametrize("profiles", ["null", "[]"])
def test_no_profiles_are_none(profiles):
    text = f'[{{"id":"GPU-0","mode":"mig","migProfiles":{profiles}}}]'
    (device,) = published({REGISTER: text})
    assert device.extra == NO_EXTRA


def test_unknown_keys_are_ignored_at_every_depth():
    text = GOLDEN_MIG.replace('"size":1', '"size":1,"later":[]').replace(
        '"core":15', '"core":15,"instanceCount":7'
    )
    assert list(published({REGISTER: text})) == [a_published_mig_gpu()]


class TestPairScores:
    def links(self, text, *ids):
        devices = published(registered(*ids, scores=text))
        assert not isinstance(devices, Malformed), str(devices)
        return [
            {link.peer: link.score for link in device.extra.get(PAIR_SCORES) or ()}
            for device in devices
        ]

    def test_each_device_gets_its_own(self):
        assert self.links(GOLDEN_SCORES, "GPU-0", "GPU-1", "GPU-2") == [
            {"GPU-1": 50, "GPU-2": 20},
            {"GPU-0": 50},
            {},
        ]

    def test_the_first_of_two_entries_for_one_device_counts(self):
        text = '[{"uuid":"GPU-0","score":{"GPU-1":1}},{"uuid":"GPU-0","score":{"GPU-1":2}}]'
        assert self.links(text, "GPU-0") == [{"GPU-1": 1}]

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("null", id="null"),
            pytest.param("[]", id="an empty list"),
            pytest.param('[{"uuid":"GPU-0"}]', id="an entry without scores"),
            pytest.param('[{"uuid":"GPU-0","score":null}]', id="null scores"),
            pytest.param('[{"uuid":"GPU-9","score":{"GPU-0":1}}]', id="an unknown device"),
        ],
    )
    def test_nothing_about_this_device(self, text):
        assert self.links(text, "GPU-0") == [{}]

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("", id="an empty text"),
            pytest.param("{}", id="no list"),
            pytest.param("[1]", id="a number as entry"),
            pytest.param('[{"score":{}}]', id="an entry without a device"),
            pytest.param('[{"uuid":"GPU-0","score":{"GPU-1":"near"}}]', id="a word as score"),
            pytest.param('[{"uuid":"GPU-0","score":{"GPU-1":1.5}}]', id="a fraction as score"),
        ],
    )
    def test_malformed_scores_make_the_devices_unusable(self, text):
        answer = published(registered("GPU-0", scores=text))
        assert isinstance(answer, Malformed)
        assert answer.annotation == SCORES_ANNOTATION

    def test_no_annotation_is_written_without_scores(self):
        assert set(the_vendor().node_annotations([a_gpu()])) == {REGISTER}

    @given(
        text=st.text()
        | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)
    )
    def test_law_no_text_raises(self, text):
        assert decode_pair_scores(text) is not None


_IDS = st.lists(st.from_regex(r"GPU-[0-9a-f]{1,6}", fullmatch=True), unique=True, max_size=5)
_PROFILES = st.lists(
    st.builds(
        a_profile,
        name=st.sampled_from(["1g.5gb", "2g.10gb", "1g.10gb+me", "7g.40gb"]),
        memory=st.integers(0, 2**31 - 1),
        cores=st.integers(0, 100),
        slices=st.integers(0, 8),
        starts=st.lists(st.integers(0, 7), max_size=7),
        size=st.integers(1, 8),
    ),
    max_size=4,
)


@given(data=st.data())
def test_law_devices_are_read_as_they_were_written(data):
    ids = data.draw(_IDS)
    devices = []
    for id in ids:
        extra = NO_EXTRA
        if profiles := data.draw(_PROFILES):
            extra = extra.with_(MIG_PROFILES, tuple(profiles))
        if scores := data.draw(st.dictionaries(st.sampled_from(ids), st.integers(-(2**31), 2**31))):
            links = tuple(PairScore(peer=p, score=s) for p, s in sorted(scores.items()))
            extra = extra.with_(PAIR_SCORES, links)
        devices.append(
            a_gpu(
                id,
                memory=data.draw(st.integers(0, 2**31 - 1)),
                mode=data.draw(st.sampled_from(["", "hami-core", "mig"])),
                healthy=data.draw(st.booleans()),
                extra=extra,
            )
        )
    vendor = the_vendor()
    assert list(vendor.node_devices(a_node(vendor.node_annotations(devices)))) == devices
