"""Checks of devices on their way through a node's annotations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hami.domain.devices import Device
from hami.domain.errors import Malformed
from hami.domain.units import MAX_DEVICE_MEMORY, MemoryMiB
from hami.policy.profile.profile_rules import annotation_key_problem
from hami.testing.subject import LAW, Subject, annotated, devices_of

_SEPARATORS = re.compile(r"[\s,:;]")

_GARBAGE = ("{", '[{"id": 7}]', "[[]]", "not devices", '"text"', "\x00", "💥,,,", "[" * 40)
"""Texts that no codec can read as devices."""


def device_problem(device: Device, vendor: str) -> str:
    """Why this device cannot be scheduled or written; empty when it can."""
    rules = (
        (device.vendor == vendor, f"vendor is {device.vendor!r}, not {vendor!r}"),
        (bool(device.id), "id is empty"),
        (not _SEPARATORS.search(device.id), "id holds a blank or one of , : ;"),
        (not re.search(r"[,:;]", device.model), f"model {device.model!r} holds one of , : ;"),
        (device.slots >= 1, f"slots is {device.slots}; at least one slice must fit"),
        (
            0 <= device.memory_mib <= MAX_DEVICE_MEMORY,
            f"memory_mib is {device.memory_mib}; the unit is MiB",
        ),
        (device.cores >= 0, f"cores is {device.cores}; the unit is percent"),
        (device.index >= 0, f"index is {device.index}"),
    )
    return next((f"device {device.id!r}: {text}" for holds, text in rules if not holds), "")


def by_id(devices: Sequence[Device]) -> dict[str, Device]:
    return {device.id: device for device in devices}


class WireRules:
    """Devices that are published can be read back, and nothing else is taken for a device."""

    def test_the_fake_node_carries_two_devices(self, subject: Subject) -> None:
        """The checks need two devices of the vendor on the ``fake_node`` fixture."""
        found = len(subject.devices)
        assert found >= 2, f"fake_node carries {found} devices of {subject.profile.key}, not 2"

    def test_ids_are_unique_and_stable(self, subject: Subject) -> None:
        """A device keeps its id; no two have the same."""
        first = [device.id for device in subject.devices]
        again = [device.id for device in subject.devices]
        assert first == again, f"asked twice, the ids changed from {first} to {again}"
        assert len(set(first)) == len(first), f"ids are not unique: {first}"

    def test_devices_are_legal(self, subject: Subject) -> None:
        """Every device can be scheduled and its id written beside others."""
        for device in subject.devices:
            problem = device_problem(device, subject.profile.key)
            assert not problem, problem

    def test_devices_survive_the_wire(self, subject: Subject) -> None:
        """``hami_node_devices`` reads what ``hami_node_annotations`` wrote, ill devices too."""
        devices = subject.devices
        changed = tuple(
            replace(device, healthy=False, memory_mib=MemoryMiB(device.memory_mib // 2))
            for device in devices
        )
        for sent in (devices, devices[:1], tuple(reversed(devices)), changed):
            keys = subject.vendor.node_annotations(sent)
            received = by_id(devices_of(subject.vendor, annotated(subject.node, keys)))
            for device in sent:
                back = received.get(device.id)
                assert back == device, f"published {device}, read back {back}"
            assert len(received) == len(sent), f"published {len(sent)}, read back {len(received)}"

    def test_no_device_is_an_answer(self, subject: Subject) -> None:
        """A node without devices is ordinary, whether it says so or says nothing."""
        for keys in ({}, subject.vendor.node_annotations(())):
            found = subject.vendor.node_devices(annotated(subject.node, keys))
            assert not isinstance(found, Malformed), f"a node without devices: {found}"
            assert not found, f"a node without devices carries {[d.id for d in found]}"

    def test_published_annotations_are_valid(self, subject: Subject) -> None:
        """Keys that the API server takes, texts, and not the handshake, which is the agent's."""
        published = subject.vendor.node_annotations(subject.devices)
        assert published, "hami_node_annotations publishes nothing for the node's devices"
        for key, text in published.items():
            problem = annotation_key_problem(key)
            assert not problem, f"hami_node_annotations writes {key!r}: {problem}"
            assert isinstance(text, str), f"hami_node_annotations writes {text!r} under {key}"
        named = subject.profile.node_annotations
        handshake = named.handshake
        assert handshake not in published, f"{handshake} is written by the agent alone"
        for key in published.keys() - {named.register, *named.also_written}:
            raise AssertionError(
                f"hami_node_annotations writes {key}; name it in node_annotations.also_written, or "
                f"the cluster's policy refuses the agent's write"
            )

    def test_garbage_is_malformed(self, subject: Subject) -> None:
        """A register annotation that cannot be read is ``Malformed``: not none, no exception."""
        for text in _GARBAGE:
            found = self._read(subject, text)
            assert isinstance(found, Malformed), (
                f"register annotation {text!r} gave {found}, not Malformed"
            )
            assert found.problem, f"Malformed for {text!r} does not say what is wrong"

    def test_any_text_gets_an_answer(self, subject: Subject) -> None:
        """Whatever stands in the annotation, the answer is legal devices or ``Malformed``."""
        register = subject.profile.node_annotations.register
        written = subject.vendor.node_annotations(subject.devices).get(register, "")
        cut = st.tuples(st.integers(0, len(written)), st.integers(0, len(written)), st.text())
        spoilt = cut.map(lambda c: written[: c[0]] + c[2] + written[c[1] :])

        @LAW
        @given(st.text() | spoilt)
        def law(text: str) -> None:
            found = self._read(subject, text)
            if isinstance(found, Malformed):
                return
            ids = [device.id for device in found]
            assert len(set(ids)) == len(ids), f"register {text!r} gave one id twice: {ids}"

        law()

    def _read(self, subject: Subject, register: str) -> Sequence[Device] | Malformed:
        keys: Mapping[str, str] = subject.vendor.node_annotations(subject.devices)
        spoilt = {**keys, subject.profile.node_annotations.register: register}
        return subject.vendor.node_devices(annotated(subject.node, spoilt))
