"""What a container is given: kubelet's answers and CDI specs, put together as a runtime does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hami_lab.kubelet.runtime.cdi import Edits, Unresolvable, resolve
from hami_lab.kubelet.runtime.runtime import NotCreated, Runtime
from hami_lab.kubelet.runtime.traces import Traces

from hami.domain.kubernetes.objects import Pod
from hami.node.kubelet.api import v1beta1_pb2 as api

KIND = "acme.hami.io/slice"


def a_spec(folder: Path, file: str, *devices: dict[str, Any], kind: str = KIND, **spec: Any):
    folder.mkdir(exist_ok=True)
    content = {"cdiVersion": "0.6.0", "kind": kind, "devices": list(devices), **spec}
    (folder / file).write_text(json.dumps(content))


def a_device(name: str, *env: str, **edits: Any) -> dict[str, Any]:
    return {"name": name, "containerEdits": {"env": list(env), **edits}}


def a_pod(**container: Any) -> Pod:
    body = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c"}]}}
    body["spec"]["containers"][0] |= container
    return msgspec.convert(body, Pod)


def an_answer(*names: str, **more: Any) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        cdi_devices=[api.CDIDevice(name=name) for name in names], **more
    )


def a_runtime(*folders: Path, traces: Traces | None = None) -> Runtime:
    return Runtime(folders, traces=traces, clock=lambda: 5.0)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        pytest.param("s1", True, id="a device of a spec"),
        pytest.param("s2", False, id="a device that its spec does not have"),
        pytest.param("unfinished", False, id="a file that is being written"),
        pytest.param("broken", False, id="a file that is no spec"),
        pytest.param("wrong", False, id="a spec with a mistake"),
        pytest.param("twice", False, id="two specs of one folder that contradict each other"),
    ],
)
def test_which_names_are_known(tmp_path, name, known):
    a_spec(tmp_path, "s1.json", a_device("s1"))
    a_spec(tmp_path, "x.json.tmp", a_device("unfinished"))
    (tmp_path / "broken.json").write_text("{")
    a_spec(tmp_path, "wrong.json", a_device("wrong", mounts=[{"hostPath": "/only"}]))
    for file in ("a.json", "b.yaml"):
        a_spec(tmp_path, file, a_device("twice"))
    found = resolve([f"{KIND}={name}"], [tmp_path, tmp_path / "absent"])
    assert isinstance(found, Edits if known else Unresolvable)


def test_every_name_that_is_not_known_is_told(tmp_path):
    assert str(resolve(["a/b=c", "a/b=d"], [tmp_path])) == (
        "CDI device injection failed: unresolvable CDI devices a/b=c, a/b=d"
    )


def test_a_later_folder_precedes_an_earlier_one(tmp_path):
    a_spec(tmp_path / "etc", "a.json", a_device("s", "FROM=etc"))
    a_spec(tmp_path / "run", "a.json", a_device("s", "FROM=run"))
    assert resolve([f"{KIND}=s"], [tmp_path / "etc", tmp_path / "run"]).env == {"FROM": "run"}


def test_the_edits_of_a_whole_spec_come_once_and_first(tmp_path):
    hook = {"hookName": "createContainer", "path": "/bin/true"}
    whole = {"env": ["WHO=spec", "SPEC=1"], "hooks": [hook]}
    devices = [a_device("s1", "WHO=s1"), a_device("s2", "LAST=s2=x")]
    a_spec(tmp_path, "a.json", *devices, containerEdits=whole)
    found = resolve([f"{KIND}=s1", f"{KIND}=s2"], [tmp_path])
    assert found.env == {"WHO": "s1", "SPEC": "1", "LAST": "s2=x"}
    assert found.hooks == [hook]


def test_cdi_overrides_the_pod_and_the_pod_overrides_the_plugin(tmp_path):
    a_spec(tmp_path, "a.json", a_device("s", "A=cdi"))
    pod = a_pod(env=[{"name": name, "value": "pod"} for name in "AB"])
    answer = an_answer(f"{KIND}=s", envs=dict.fromkeys("ABC", "plugin"))
    started = a_runtime(tmp_path).create(pod, pod.spec.containers[0], [answer])
    assert started.env == {"A": "cdi", "B": "pod", "C": "plugin"}


def test_answers_of_several_plugins_are_put_together(tmp_path):
    answers = [
        an_answer(
            mounts=[api.Mount(container_path="/a", host_path="/host/a", read_only=True)],
            annotations={"one": "1"},
        ),
        an_answer(
            devices=[api.DeviceSpec(container_path="/dev/a", host_path="/dev/a", permissions="r")],
            annotations={"two": "2"},
        ),
    ]
    pod = a_pod()
    started = a_runtime(tmp_path).create(pod, pod.spec.containers[0], answers)
    assert [(m.host_path, m.read_only) for m in started.mounts] == [("/host/a", True)]
    assert [(d.host_path, d.permissions) for d in started.device_nodes] == [("/dev/a", "r")]
    assert started.annotations == {"one": "1", "two": "2"}
    assert started.missing == ("/host/a",)


def test_a_container_that_cannot_be_created_is_not_there(tmp_path):
    runtime, pod = a_runtime(tmp_path), a_pod()
    found = runtime.create(pod, pod.spec.containers[0], [an_answer(f"{KIND}=s")])
    assert isinstance(found, NotCreated)
    assert (list(runtime.started), dict(runtime.running)) == ([], {})


def test_a_started_container_has_a_cgroup_until_it_ends(tmp_path):
    runtime, pod = a_runtime(tmp_path, traces=Traces(tmp_path)), a_pod()
    first = runtime.create(pod, pod.spec.containers[0], [])
    again = runtime.create(pod, pod.spec.containers[0], [])
    groups = tmp_path / "cgroup" / "kubepods" / "podu"
    assert [group.name for group in groups.iterdir()] == [again.id]
    assert (first.attempt, again.attempt, first.id != again.id) == (0, 1, True)
    assert (groups / again.id / "cgroup.procs").read_text() == f"{again.pid}\n"
    runtime.keep(pod.uid, ())
    assert (groups.exists(), dict(runtime.running)) == (False, {})
    assert list((tmp_path / "proc").iterdir()) == []
