"""Which ephemeral containers may come to a pod with slices, and what they see."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hami.domain.admission import Denied
from hami.domain.kubernetes.objects import (
    Container,
    EnvVar,
    HostPath,
    Pod,
    SecurityContext,
    Volume,
    VolumeDevice,
    VolumeMount,
)
from hami.policy.pods.ephemeral import admit_ephemeral, shows_devices
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.vendors.registry import Vendors

from ..builders import ACME_YAML, BOLT_YAML, a_container, a_pod

HIDING = f"{ACME_YAML}  hidden_env: {{ACME_SHOWN: nothing}}\n  guarded_paths: [/etc/acme]\n"
VENDORS = Vendors.of({"acme": ProfileVendor(HIDING), "bolt": ProfileVendor(BOLT_YAML)})
HIDDEN = [EnvVar(name="ACME_SHOWN", value="nothing")]
PRIVILEGED = Container(name="d", security_context=SecurityContext(privileged=True))


def with_ephemeral(pod: Pod, *containers: Container, **fields: Any) -> Pod:
    spec = msgspec.structs.replace(pod.spec, ephemeral_containers=list(containers), **fields)
    return msgspec.structs.replace(pod, spec=spec)


def after(pod: Pod, *containers: Container, known: tuple[Container, ...] = (), **fields: Any):
    before = with_ephemeral(pod, *known, **fields)
    return admit_ephemeral(with_ephemeral(pod, *known, *containers, **fields), before, VENDORS)


def test_it_is_shown_no_device_whatever_its_image_says():
    kept = EnvVar(name="A", value="b")
    found = after(a_pod(gpu=1), Container(name="d", env=[kept]))
    assert found.spec.ephemeral_containers == [Container(name="d", env=[kept, *HIDDEN])]


def test_admitting_the_result_once_more_changes_nothing():
    found = after(a_pod(gpu=1), Container(name="d"))
    assert admit_ephemeral(found, a_pod(gpu=1), VENDORS) == found


def test_beside_another_vendor_s_slices_it_is_shown_none_either():
    assert after(a_pod(npu=1), Container(name="d")).spec.ephemeral_containers[0].env == HIDDEN


def test_those_that_are_there_stay_as_they_are():
    """They cannot be changed, and must not keep others out."""
    found = after(a_pod(gpu=1), Container(name="e"), known=(PRIVILEGED,))
    assert found.spec.ephemeral_containers == [PRIVILEGED, Container(name="e", env=HIDDEN)]


def test_a_pod_without_devices_may_do_as_it_likes():
    pod = with_ephemeral(a_pod(), PRIVILEGED)
    assert admit_ephemeral(pod, a_pod(), VENDORS) is pod


NODE = [
    Volume(name="dev", host_path=HostPath(path="/dev")),
    Volume(name="shm", host_path=HostPath(path="/dev/shm")),
    Volume(name="empty"),
]


def mounting(volume: str, path: str = "/data") -> Container:
    return Container(name="d", volume_mounts=[VolumeMount(name=volume, mount_path=path)])


@pytest.mark.parametrize(
    ("container", "text"),
    [
        pytest.param(PRIVILEGED, "ephemeral container d is privileged: its pod has slices of devices", id="privileged"),
        pytest.param(mounting("empty", "/etc/acme"), "ephemeral container d mounts a volume at /etc/acme, over /etc/acme, which is ACME's; mount it elsewhere: its pod has slices of devices", id="over what the vendor guards"),
        pytest.param(mounting("empty", "/run/hami/acme"), "ephemeral container d mounts a volume at /run/hami/acme, over the limits of its slice at /run/hami; mount it elsewhere: its pod has slices of devices", id="over the limits"),
        pytest.param(Container(name="d", volume_devices=[VolumeDevice(device_path="/dev/x")]), "ephemeral container d has a device at /dev/x: its pod has slices of devices; leave volumeDevices out", id="a block device"),
        pytest.param(mounting("dev"), "ephemeral container d mounts /dev of the node (volume dev): its pod has slices of devices; leave that volume out", id="the node's device files"),
        pytest.param(Container(name="d", env=[EnvVar(name="ACME_SHOWN", value="all")]), "ephemeral container d sets ACME_SHOWN, which would show it devices without a limit: its pod has slices of them; leave the variable out", id="a variable that shows devices"),
        pytest.param(Container(name="d", env=[EnvVar(name="ACME_SHOWN")]), "ephemeral container d sets ACME_SHOWN, which would show it devices without a limit: its pod has slices of them; leave the variable out", id="a variable from elsewhere"),
        pytest.param(Container(name="d", env=[*HIDDEN, EnvVar(name="ACME_SHOWN", value="all")]), "ephemeral container d sets ACME_SHOWN, which would show it devices without a limit: its pod has slices of them; leave the variable out", id="a variable twice, of which the last counts"),
    ],
)  # fmt: skip
def test_what_would_show_it_devices_is_denied(container, text):
    assert after(a_pod("p", a_container("a", gpu=1)), container, volumes=NODE) == Denied(text)


@pytest.mark.parametrize("container", [mounting("shm"), mounting("empty"), mounting("gone")])
def test_other_volumes_may_be_mounted(container):
    assert isinstance(after(a_pod(gpu=1), container, volumes=NODE), Pod)


@pytest.mark.parametrize(
    ("path", "shows"),
    [
        ("/dev", True), ("/dev/", True), ("//dev", True), ("dev", True), ("/./dev", True),
        ("/", True), ("/dev/acme0", True), ("/dev/shmem", True), ("/proc/../dev", True),
        ("/dev/shm", False), ("/dev/shm/x", False), ("/dev/hugepages", False),
        ("/device", False), ("/data/dev", False),
    ],
)  # fmt: skip
def test_where_the_device_files_of_a_node_are(path, shows):
    assert shows_devices(path) is shows
