"""``hami quota``, asking the real API over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hami.cli.app import app
from hami.cli.commands import quota as command
from hami.cli.commands.quota_tables import amount
from hami.domain.errors import ConfigError
from hami.policy.quota.elastic import Claim
from hami.policy.quota.elastic.plans.plan import NoPlan
from hami.scheduler.web.tls import self_signed

from ..builders import Cluster, a_node, a_pod, an_elastic_quota, ended, granted
from .test_api import Api
from .test_api_elastic import MEM, lending, refusing

Answers = Callable[[str, dict[str, str]], tuple[int, bytes]]


@contextmanager
def serving(answers: Answers, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            status, body = answers(parts.path, dict(parse_qsl(parts.query)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def api_of(cluster: Cluster, **more: object) -> Answers:
    api = Api(cluster, **more)

    def answers(path: str, query: dict[str, str]) -> tuple[int, bytes]:
        status, body = asyncio.run(api.answer(path, **query))
        return status, json.dumps(body).encode()

    return answers


def ran(server: str, *arguments: str, columns: int = 100):
    return CliRunner().invoke(
        app, ["quota", *arguments], env={"HAMI_SERVER": server, "COLUMNS": str(columns)}
    )


def shown(cluster: Cluster, *arguments: str, **more: object) -> str:
    with serving(api_of(cluster, **more)) as server:
        result = ran(server, *arguments)
    assert result.exit_code == 0, result.output
    return "\n".join(line.rstrip() for line in result.stdout.splitlines()).strip()


# All quotas.


TABLE = """\
acme.com/mem

 Quota          Min        Max       Held   Borrowed       Lent       Left
 ─────────────────────────────────────────────────────────────────────────
 a/quota   4000 MiB          -   1000 MiB              1000 MiB   2000 MiB
 b/quota   2000 MiB   3500 MiB   3000 MiB   1000 MiB               500 MiB

b/quota borrows 1000 MiB, a/quota lends 1000 MiB
all quotas together hold 4000 MiB, 2000 MiB left"""


def test_the_table_says_who_holds_borrows_and_lends_and_what_is_left():
    assert shown(lending()) == TABLE


def test_one_namespace_and_its_pods():
    text = shown(lending(), "--namespace", "b", "--pods")
    assert "a/quota" not in text
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if " n1 " in line]
    assert [row[:3] for row in rows] == [["b/b-1", "n1", "in"], ["b/b-2", "n1", "over, priority 7"]]
    assert "acme.com/mem 1000 MiB" in rows[1][3]


def test_a_victim_says_for_whom():
    cluster = lending()
    claimant = a_pod("a-9", mem=1000, namespace="a")
    cluster.sees(claimant)
    victim = cluster.state.pods["uid-b-b-2"]
    cluster.state.holds.begin(claimant, [victim])
    assert "evicted for a/a-9" in shown(cluster, "--pods")
    cluster.sees(ended(victim))
    assert "kept for a/a-9" in shown(cluster, "--pods")


def test_without_quotas_it_says_so():
    assert shown(Cluster()) == "there are no elastic quotas"
    for option in ((), ("--pods",)):
        text = shown(lending(), "--namespace", "nope", *option)
        assert text == "no elastic quota counts the pods of namespace nope"


def test_the_namespaces_of_a_composite_are_said_once_and_never_cut():
    cluster, long = Cluster(a_node()), "speech-recognition-research-group"
    cluster.limits(an_elastic_quota("z", 4000, None, "vision", long, name="both"))
    cluster.limits(an_elastic_quota("y", 10, None, "text", name="cpus", resource="cpu"))
    with serving(api_of(cluster)) as server:
        text = ran(server, columns=80).stdout
    assert text.count(long) == 1
    assert f"z/both counts the namespaces vision, {long}" in text
    assert "y/cpus counts the namespaces text" in text


def test_quotas_that_hold_more_than_they_may_are_told_by_how_much():
    cluster = lending()
    cluster.limits(an_elastic_quota("a", 500), an_elastic_quota("b", 2000))
    assert "all quotas together hold 4000 MiB, 1500 MiB more than they may" in shown(cluster)


def test_the_json_object_is_the_apis():
    found = json.loads(shown(lending(), "--json"))
    assert found.keys() == {"items", "pool"}
    assert found["items"][1]["resources"][MEM]["guaranteedOverQuota"] == 1000
    assert found["pool"][MEM] == {"unit": "MiB", "used": 4000, "free": 2000}


def test_all_pages_are_read(monkeypatch):
    cluster = Cluster()
    cluster.limits(*(an_elastic_quota(f"n{i}", 10) for i in range(7)))
    monkeypatch.setattr(command, "_PAGE", "3")
    items = json.loads(shown(cluster, "--json"))["items"]
    assert [item["namespace"] for item in items] == [f"n{i}" for i in range(7)]


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (None, "GB", "-"), (40, "GB", "40 GB"), (3, "", "3"), (1500, "milli", "1.5"),
        (2000, "milli", "2"), (0, "bytes", "0 bytes"), (1023, "bytes", "1023 bytes"),
        (1 << 30, "bytes", "1 GiB"), (3 << 29, "bytes", "1.5 GiB"), (-(1 << 20), "bytes", "-1 MiB"),
        (5000 << 40, "bytes", "4.9 PiB"), (5000 << 60, "bytes", "5000 EiB"),
    ],
)  # fmt: skip
def test_amounts_are_written_for_people(number, unit, text):
    assert amount(number, unit) == text


def test_control_characters_are_written_out():
    cluster = Cluster(a_node())
    cluster.limits(an_elastic_quota("a", 10, name="q\x1b[31m"))
    assert "a/q\\x1b[31m" in shown(cluster)


# One pod.


def test_a_waiting_pod_says_what_it_asks_what_refuses_it_and_why_nobody_is_evicted():
    cluster = lending()
    refusing(cluster, a_pod("b-3", mem=600, namespace="b"))
    claim = Claim(uid="uid-b-b-3", namespace="b", name="b-3", vector={})
    plan = NoPlan(claim=claim, why={"fair": "it has its share"})
    answers = api_of(cluster, unplanned=lambda: {"uid-b-b-3": plan})
    with serving(answers) as server:
        result = ran(server, "b/b-3")
        assert (ran(server, "b-3", "-n", "b").stdout, result.exit_code) == (result.stdout, 1)
        as_json = json.loads(ran(server, "b/b-3", "--json").stdout)
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0].startswith("b/b-3: waiting: 0/1 nodes fit")
    assert "ElasticQuota b/quota counts it" in lines
    assert "acme.com/mem 600 MiB 500 MiB" in lines
    at = lines.index("quota refuses it now:")
    assert lines[at + 1].startswith("ElasticQuota b/quota: max: acme.com/mem: used 3000 MiB")
    assert lines[-2:] == ["nobody is evicted for it:", "fair: it has its share"]
    assert as_json["elastic"]["notEvicted"] == {"fair": "it has its share"}


def test_a_claimant_names_its_victims():
    cluster, claimant = lending(), a_pod("a-9", mem=3000, namespace="a")
    refusing(cluster, claimant)
    cluster.state.holds.begin(claimant, [cluster.state.pods["uid-b-b-2"]])
    with serving(api_of(cluster)) as server:
        said = ran(server, "a/a-9").stdout
    assert "it waits for pods that are evicted for it:\n  b/b-2 on n1: still there" in said


def test_pods_that_run_say_where_they_stand():
    cluster = lending()
    assert "counts it: over quota, its place may be taken back" in shown(cluster, "b/b-2")
    assert "counts it: in quota" in shown(cluster, "b/b-1")
    cluster.sees(granted(a_pod("free", mem=10), "n1", "n1-d0:10"))
    assert "no elastic quota counts it" in shown(cluster, "default/free")


def test_when_it_was_refused_is_said_and_whether_it_is_to_be_tried_again():
    """What refused it then and what quota says now may be two things."""
    cluster = lending()
    refusing(cluster, pod := a_pod("b-3", mem=600, namespace="b"))
    said = "so it was refused at 2023-11-14T22:13:20+00:00"
    with serving(api_of(cluster)) as server:
        assert said in ran(server, "b/b-3").stdout.splitlines()
        cluster.limits(an_elastic_quota("b", 9000))
        waiting = cluster.state.pending
        waiting.woken(waiting.pods[pod.uid], 0.0)
        now = ran(server, "b/b-3").stdout
    assert f"{said}; it has been woken since, to be tried again" in now.splitlines()
    assert "quota refuses nothing of this now" in now


def test_a_pod_that_nobody_looked_at_yet_says_so():
    cluster = lending()
    refusing(cluster, a_pod("b-3", mem=600, namespace="b"))
    with serving(api_of(cluster)) as server:
        assert "the leading replica does that" in ran(server, "b/b-3").stdout


# What goes wrong.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["b/nobody"], "the scheduler knows no pod b/nobody"),
        (["nobody"], "nobody: is no pod; write NAMESPACE/NAME"),
        (["a/b/c"], "a/b/c: is no pod"),
        (["/x"], "/x: is no pod"),
        (["a/b", "-n", "c"], "--namespace c contradicts a/b"),
        (["a/b", "--pods"], "--pods lists the pods of quotas"),
        (["--server", "ftp://x"], "--server or HAMI_SERVER is 'ftp://x', which is no address"),
        (["--server", "127.0.0.1:9395"], "is no address; write http://HOST:PORT"),
        (["--server", ""], "--server or HAMI_SERVER is '', which is no address"),
        (["--server", "http://"], "is no address"),
        (["--server", "http://x:port"], "is no address"),
        (["--server", "http://a host:80"], "is no address"),
        (["--server", "http://x:80?y=1"], "is no address"),
        (["--server", "http://me:secret@x:80"], "--server or HAMI_SERVER names a user; write"),
        (["--server", "http://127.0.0.1:1"], "http://127.0.0.1:1 does not answer: Connection"),
    ],
)
def test_what_must_be_changed_is_said_in_one_line(arguments, said):
    with serving(api_of(lending())) as server:
        result = ran(server, *arguments)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr
    assert "secret" not in result.stderr
    if "does not answer" in said:
        assert "port-forward" in result.stderr


def test_a_certificate_that_nobody_trusts_and_https_where_there_is_none_are_told(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = self_signed(["127.0.0.1"]).write(tmp_path)
    context.load_cert_chain(files.cert, files.key)
    untrusted = "its certificate is not trusted ("
    for tls, said in ((None, "it does not speak HTTPS"), (context, untrusted)):
        with serving(api_of(lending()), tls) as server:
            result = ran(server.replace("http:", "https:"))
        assert result.exit_code == 2
        assert f"does not answer: {said}" in result.stderr


@pytest.mark.parametrize(
    "answer",
    [(404, b"page not found"), (404, b'{"detail": "Not Found"}'), (500, b""), (200, b"<html>"),
     (200, b'{"items": 3}'), (403, b"no"), (404, b"[]")],
)  # fmt: skip
@pytest.mark.parametrize("arguments", [[], ["a/b"]])
def test_another_server_is_recognised(answer, arguments):
    with serving(lambda _path, _query: answer) as server:
        result = ran(server, *arguments)
    assert result.exit_code == 2
    assert "does not answer as a hami scheduler of this version" in result.stderr


# Watching.


def test_watching_ends_with_ctrl_c_and_survives_a_scheduler_that_is_away(capsys):
    with serving(api_of(lending())) as server:
        api = command.Api(server)
        looks = iter([None, ConfigError("it is away"), None])

        def look():
            if (error := next(looks)) is not None:
                raise error
            return command.ask(api, command.QuotaQuestion())

        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 3:
                raise KeyboardInterrupt

        command.watch(look, None, sleep)
    out, err = capsys.readouterr()
    assert slept == [2.0] * 3
    assert [json.loads(line)["pool"][MEM]["free"] for line in out.splitlines()] == [2000] * 3
    assert err == "hami: warning: it is away; what is shown is old\n"


def test_watching_nobody_fails_at_once():
    with serving(api_of(lending())) as server:
        pass
    result = ran(server, "--watch")
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_terminal_is_redrawn():
    with serving(api_of(lending())) as server:
        found = command.ask(command.Api(server), command.QuotaQuestion())
    console = Console(width=100, force_terminal=True, record=True)

    def once(_: float) -> None:
        raise KeyboardInterrupt

    with console.capture() as captured:
        command.watch(lambda: found, console, once)
    assert captured.get().startswith("\x1b[2J\x1b[H")
    assert "Ctrl-C ends it" in captured.get()
