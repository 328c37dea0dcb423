"""Which pods could leave their slices, by their spec alone."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.kubernetes.objects import (
    Container,
    Pod,
    PodSpec,
    SecurityContext,
    VolumeDevice,
    VolumeMount,
)
from hami.domain.requests import Invalid, PodRequest
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.slices import SEEN_AT
from hami.kube.resources import PODS
from hami.policy.pods.escapes import covers, escape_of
from hami.policy.pods.pod_request import parse_pod
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.vendors.registry import Vendors

from ..builders import ACME_YAML, a_container, a_pod, the_vendors

PRIVILEGED = SecurityContext(privileged=True)


def a_mount(path: str) -> Container:
    return Container(name="c", volume_mounts=[VolumeMount(name="v", mount_path=path)])


def a_block_device(path: str) -> Container:
    return Container(name="c", volume_devices=[VolumeDevice(device_path=path)])


def refusal(container: Container, vendors: Vendors | None = None) -> str | None:
    return escape_of(Pod(spec=PodSpec(containers=[container])), vendors or the_vendors())


@pytest.mark.parametrize(
    ("path", "covers"),
    [
        pytest.param("/run/hami/nvidia/limits", True, id="the page itself"),
        pytest.param("/var/run/hami/nvidia/limits", True, id="through /var/run, where it is mounted last"),
        pytest.param("/run/hami/nvidia", True, id="the vendor's folder, for a helper that shares it"),
        pytest.param("/run/hami", True, id="the folder of all vendors"),
        pytest.param("/run/hami/", True, id="with a slash behind"),
        pytest.param("//run///hami", True, id="with slashes between"),
        pytest.param("/./run/./hami/.", True, id="with dots"),
        pytest.param("run/hami", True, id="relative: kubelet puts a slash before it"),
        pytest.param("/run", True, id="the folder above, for a helper that renames"),
        pytest.param("/var/run", True, id="the folder above, as a link"),
        pytest.param("/", True, id="everything"),
        pytest.param("/run/hami/other", True, id="a file beside the page"),
        pytest.param("/run/hami2", False, id="a folder that begins alike"),
        pytest.param("/run/secrets", False, id="another folder of /run"),
        pytest.param("/var/run/secrets/kubernetes.io/serviceaccount", False, id="what every pod has"),
        pytest.param("/var", False, id="where no page is"),
        pytest.param("/var/lib/hami", False, id="another folder of /var"),
        pytest.param("/data/run/hami", False, id="the same names elsewhere"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("of", [a_mount, a_block_device])
def test_what_covers_the_limits_page(of, path, covers):
    assert (refusal(of(path)) is not None) is covers


@pytest.mark.parametrize("path", ["/data/../run/hami", "/run/hami/..", "..", "/a/../b"])
def test_nobody_needs_two_dots(path):
    """What they mean depends on links in the image."""
    assert refusal(a_mount(path)) == f"container c mounts a volume at {path}: write it without '..'"


parts = st.sampled_from(["", ".", "run", "hami", "var", "nvidia", "x"])


@given(path=st.lists(parts, max_size=6).map("/".join), end=st.sampled_from(["", "/", "/.", "//"]))
def test_a_path_covers_the_page_however_it_is_written(path, end):
    written = "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
    assert covers(path + end, SEEN_AT) == covers(written, SEEN_AT)
    if (written + "/").startswith((SEEN_AT + "/", f"/var{SEEN_AT}/")):
        assert covers(path + end, SEEN_AT)


GUARDED = "  guarded_paths: [/var/run/acme-devices, /etc/acme.preload, /run/acme, /usr/lib/acme]\n"


@pytest.mark.parametrize(
    ("path", "over"),
    [
        pytest.param("/etc/acme.preload", "/etc/acme.preload", id="the file itself"),
        pytest.param("/etc//./acme.preload/", "/etc/acme.preload", id="however it is written"),
        pytest.param("/etc", "/etc/acme.preload", id="its folder, for a helper that renames"),
        pytest.param("/etc/acme.preload/x", "/etc/acme.preload", id="below it"),
        pytest.param("/etc/acme.preload.d", None, id="a name that begins alike"),
        pytest.param("/etc/acme", None, id="another folder of /etc"),
        pytest.param("/etc/ssl/certs", None, id="what many mount"),
        pytest.param("/var/run/acme-devices/all", "/var/run/acme-devices", id="a device by a mount"),
        pytest.param("/run/acme-devices/0", "/var/run/acme-devices", id="through /run"),
        pytest.param("/var/run/acme", "/run/acme", id="through /var/run"),
        pytest.param("/var", None, id="where only the link is"),
        pytest.param("/usr/lib", "/usr/lib/acme", id="above the library"),
        pytest.param("/usr/lib/python3", None, id="beside the library"),
        pytest.param("/data/etc/acme.preload", None, id="the same names elsewhere"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("of", [a_mount, a_block_device])
def test_what_a_vendor_guards_is_covered_by_no_volume(of, path, over):
    vendors = Vendors.of({"acme": ProfileVendor(ACME_YAML + GUARDED)})
    text = (
        f"container c mounts a volume at {path}, over {over}, which is ACME's; mount it elsewhere"
    )
    assert refusal(of(path), vendors) == (text if over else None)
    kept = PODS.decoder.decode(msgspec.json.encode(Pod(spec=PodSpec(containers=[a_mount(path)]))))
    assert (escape_of(kept, vendors) is not None) is (over is not None), "as it is kept in memory"


@pytest.mark.parametrize("kind", ["containers", "init_containers", "ephemeral_containers"])
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param({"security_context": PRIVILEGED}, "container b is privileged", id="privileged"),
        pytest.param({"volume_mounts": [VolumeMount(mount_path="/run/hami")]}, "container b mounts a volume at /run/hami, over the limits of its slice at /run/hami; mount it elsewhere", id="a mount over the page"),
    ],
)  # fmt: skip
def test_every_container_is_looked_at_where_there_are_slices(kind, fields, text):
    for asks, expected in ((True, Invalid(text)), (False, None)):
        pod = a_pod("p", a_container("a", gpu=1) if asks else a_container("a"))
        more = [*(getattr(pod.spec, kind) or ()), Container(name="b", **fields)]
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **{kind: more}))
        found = parse_pod(pod, the_vendors(), SchedulingPolicy())
        assert found == expected or (expected is None and isinstance(found, PodRequest))
