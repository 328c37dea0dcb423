"""What the other tests stand on: nodes without machines are usable, the audit log tells users apart."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from . import binaries as building
from .client import Refused, pods_path
from .objects import a_pod


def test_kube_scheduler_binds_to_nodes_without_machines(cluster):
    cluster.add_nodes("n1", "n2")
    cluster.plane.kube_scheduler()
    cluster.add_pods(*(a_pod(f"p{number}", scheduler="default-scheduler") for number in range(4)))
    pods = cluster.bound("p0", "p1", "p2", "p3")
    assert {pod["spec"]["nodeName"] for pod in pods} <= {"n1", "n2"}


def test_the_audit_log_tells_who_wrote_what(cluster):
    cluster.add_nodes("n1")
    cluster.plane.kube_scheduler()
    cluster.add_pod(a_pod("p", scheduler="default-scheduler"))
    cluster.bound("p")
    assert cluster.writes("admin", name="p") == ["create pods 201"]
    assert cluster.writes("kube-scheduler", "pods", "p") == ["create pods/binding 201"]
    assert cluster.writes("hami") == []


def test_the_user_hami_may_do_what_the_documentation_says_and_no_more(cluster):
    client = cluster.plane.client("hami")
    assert client.list(pods_path(cluster.namespace)) == []
    with pytest.raises(Refused, match='User "hami" cannot create resource "pods"') as refused:
        client.create(pods_path(cluster.namespace), a_pod("p"))
    client.close()
    assert refused.value.status == 403


def a_folder_with(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_text("")
        (folder / name).chmod(stat.S_IRWXU)
    return folder


class TestBinaries:
    def test_a_given_folder_is_taken_as_it_is(self, tmp_path, monkeypatch):
        folder = a_folder_with(tmp_path, *building.PARTS["control-plane"])
        monkeypatch.setenv("HAMI_KUBERNETES_BIN", str(folder))
        assert building.binaries() == folder

    def test_a_given_folder_that_lacks_some_is_an_error(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HAMI_KUBERNETES_BIN", str(a_folder_with(tmp_path, "etcd", "kubectl")))
        with pytest.raises(building.Missing, match=r"has no kube-apiserver, kube-controller"):
            building.binaries()

    def test_two_who_need_them_build_them_once(self, tmp_path):
        go = tmp_path / "go"
        go.write_text(
            f"#!/bin/sh\nif [ $1 = version ]; then echo go version go1.26.1 linux; exit; fi\n"
            f"sleep 0.5; echo built >> {tmp_path}/count\n"
        )
        go.chmod(stat.S_IRWXU)
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path)}
        both = [
            subprocess.Popen(
                [sys.executable, building.__file__], stdout=subprocess.PIPE, env=env, text=True
            )
            for _ in range(2)
        ]
        said = {process.communicate(timeout=30)[0].strip() for process in both}
        assert [process.returncode for process in both] == [0, 0]
        assert (tmp_path / "count").read_text() == "built\n"
        assert len(said) == 1
        assert Path(said.pop()).is_dir()

    def test_a_failed_build_leaves_nothing(self, tmp_path, monkeypatch):
        go = tmp_path / "go"
        go.write_text("#!/bin/sh\ntest $1 = version && echo go version go1.27.0 linux\n")
        go.chmod(stat.S_IRWXU)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.delenv("HAMI_KUBERNETES_BIN", raising=False)
        assert building.main([]) == 1
        assert [path for path in (tmp_path / "hami").iterdir() if path.is_dir()] == []

    @pytest.mark.parametrize(
        ("version", "said"),
        [
            pytest.param(None, "no go is on PATH", id="no Go"),
            pytest.param("go version go1.25.7 linux/amd64", "go1.25.7", id="too old"),
        ],
    )
    def test_without_go_it_says_so(self, tmp_path, monkeypatch, capsys, version, said):
        if version:
            go = tmp_path / "go"
            go.write_text(f"#!/bin/sh\necho {version}\n")
            go.chmod(stat.S_IRWXU)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.delenv("HAMI_KUBERNETES_BIN", raising=False)
        assert building.main([]) == building.NO_GO
        error = capsys.readouterr().err
        assert "Go 1.26 or newer" in error
        assert said in error


def test_changed_sources_are_built_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "HERE", tmp_path)
    (tmp_path / "build.sh").write_text("version=1.2.3\n")
    module = tmp_path / "controlplane"
    module.mkdir()
    (module / "go.mod").write_text("one")
    before = building.cached("control-plane")
    (module / "go.mod").write_text("two")
    after = building.cached("control-plane")
    assert before != after
    assert after.name.startswith("kubernetes-1.2.3-")
    assert after != building.cached("node")
