"""Our words and kubelet's, there and back."""

from __future__ import annotations

from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from hami.domain.slices import ContainerEdits, DeviceNode, Mount
from hami.node.kubelet.responses import decode, encode

words = st.text(max_size=12)
mappings = st.dictionaries(words, words, max_size=4)
some_edits = st.builds(
    ContainerEdits,
    env=mappings.map(MappingProxyType),
    mounts=st.lists(
        st.builds(Mount, host_path=words, container_path=words, read_only=st.booleans())
    ).map(tuple),
    device_nodes=st.lists(
        st.builds(DeviceNode, host_path=words, container_path=words, permissions=words)
    ).map(tuple),
    cdi_devices=st.lists(words).map(tuple),
    annotations=mappings,
)


@given(some_edits)
def test_what_goes_out_comes_back(edits):
    data = encode(edits).SerializeToString(deterministic=True)
    found = decode(data)
    assert found == edits
    assert encode(found).SerializeToString(deterministic=True) == data


def test_the_bytes_that_kubelet_keeps():
    """Written by hand from the field numbers: kubelet's checkpoint outlives an agent's version."""
    edits = ContainerEdits(
        env={"A": "1"},
        mounts=(Mount(host_path="/h", container_path="/c"),),
        device_nodes=(DeviceNode(host_path="/d", container_path="/e"),),
        cdi_devices=("v/k=1", "v/k=0"),
        annotations={"k": "v"},
    )
    assert encode(edits).SerializeToString(deterministic=True) == (
        b"\x0a\x06\x0a\x01A\x12\x011"
        b"\x12\x0a\x0a\x02/c\x12\x02/h\x18\x01"
        b"\x1a\x0c\x0a\x02/e\x12\x02/d\x1a\x02rw"
        b"\x22\x06\x0a\x01k\x12\x01v"
        b"\x2a\x07\x0a\x05v/k=1\x2a\x07\x0a\x05v/k=0"
    )


def test_the_agents_own_part_stays_here():
    assert encode(ContainerEdits(pod_annotations={"a": "b"})).ByteSize() == 0


def test_what_is_no_answer_is_said():
    assert str(decode(b"\xff\xff\xff")).startswith("no ContainerAllocateResponse: ")


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(data):
    assert isinstance(decode(data), ContainerEdits | str)
