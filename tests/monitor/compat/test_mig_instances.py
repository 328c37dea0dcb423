"""MIG instances of a container, as its pod's annotation names them."""

from __future__ import annotations

import json

import pytest

from hami.domain.kubernetes.objects import Container, Metadata, Pod, PodSpec
from hami.monitor.compat.mig_instances import with_mig
from hami.wire.mig_entries import MIG_ANNOTATION
from tests.monitor.tables import a_slice

MADE = {"migUUID": "MIG-1", "gpuInstanceID": 7, "computeInstanceID": 0}


def entry(
    container: int = 1, device: int = 0, gpu: str = "GPU-0", **more: object
) -> dict[str, object]:
    return {
        "containerIndex": container,
        "deviceIndex": device,
        "gpuUUID": gpu,
        "profile": "1g.10gb",
        "placement": {"start": 0, "size": 1},
    } | more


def found(text: str, container: str = "main"):
    pod = Pod(
        metadata=Metadata(name="p", annotations={MIG_ANNOTATION: text}),
        spec=PodSpec(
            init_containers=[Container(name="init")],
            containers=[Container(name="main"), Container(name="side")],
        ),
    )
    return with_mig(a_slice("p", container=container), pod).mig


def test_an_instance_is_its_containers():
    text = json.dumps([entry(**MADE), entry(2, **MADE | {"gpuInstanceID": 8})])
    [own] = found(text)
    assert (
        own.index,
        own.device_id,
        own.uuid,
        own.profile,
        own.gpu_instance_id,
        own.compute_instance_id,
    ) == (0, "GPU-0", "MIG-1", "1g.10gb", 7, 0)
    assert [other.gpu_instance_id for other in found(text, "side")] == [8]
    assert found(text, "init") == ()


def test_several_instances_of_one_device():
    text = json.dumps([entry(**MADE), entry(device=1, **MADE | {"gpuInstanceID": 8})])
    assert [(own.index, own.gpu_instance_id) for own in found(text)] == [(0, 7), (1, 8)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="none"),
        pytest.param("[", id="no JSON"),
        pytest.param(json.dumps([entry()]), id="not made yet"),
        pytest.param(
            json.dumps([entry(gpu="GPU-9", **MADE)]), id="a device that the slice has not"
        ),
        pytest.param(json.dumps([entry(9, **MADE)]), id="no such container"),
        pytest.param(json.dumps([entry(-2, **MADE)]), id="a container counted from the end"),
    ],
)
def test_nothing_is_made_up(text):
    assert found(text) == ()
