"""The proxy of the other tests, checked against a server that counts."""

from __future__ import annotations

import http.client
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from .client import Client
from .processes import until
from .proxy import Proxy


class Counting(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/watch":
            self.go_on_for_ever()
        else:
            self.echo()

    def echo(self):
        self.server.got.append(self.path)
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def go_on_for_ever(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while not self.server.ended:
                self.wfile.write(b"1\r\nx\r\n")
                time.sleep(0.02)
        except OSError:
            self.server.got.append("left")
        self.close_connection = True

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.echo()

    def log_message(self, *_):
        pass


@pytest.fixture
def upstream():
    with ThreadingHTTPServer(("127.0.0.1", 0), Counting) as server:
        server.got, server.ended = [], False
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        yield server
        server.ended = True
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(upstream):
    with Proxy(f"http://127.0.0.1:{upstream.server_port}") as proxy:
        yield proxy


@pytest.fixture
def client(proxy):
    client = Client(proxy.url)
    yield client
    client.close()


def test_passes_on_what_no_rule_catches(proxy, client, upstream):
    assert client.send("GET", "/a?b=c") == (200, b"/a?b=c")
    assert client.send("POST", "/d", {"x": 1}) == (200, b"/d")
    assert upstream.got == ["/a?b=c", "/d"]
    assert [call.status for call in proxy.calls] == [200, 200]


@pytest.mark.parametrize("forward", [True, False])
def test_answers_in_upstreams_place(proxy, client, upstream, forward):
    proxy.answer("^POST /a", 500, forward=forward)
    assert client.send("POST", "/a", {})[0] == 500
    assert upstream.got == (["/a"] if forward else [])
    assert client.send("POST", "/a", {})[0] == 200, "once only"


@pytest.mark.parametrize("forward", [True, False])
def test_drops_the_connection(proxy, client, upstream, forward):
    proxy.drop("^GET /a", forward=forward, times=2)
    with pytest.raises((http.client.HTTPException, OSError)):
        client.send("GET", "/a")  # the client opens its connection again once: two requests
    assert upstream.got == (["/a", "/a"] if forward else [])
    assert client.send("GET", "/a")[0] == 200


def test_holds_until_released(proxy, client, upstream):
    rule = proxy.hold("^GET /a")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.send, "GET", "/a")
        rule.wait()
        assert upstream.got == []
        assert not answer.done()
        rule.release()
        assert answer.result(timeout=10) == (200, b"/a")


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "the proxy ends"])
def test_a_watch_streams_until_it_is_broken(upstream, cut):
    with Proxy(f"http://127.0.0.1:{upstream.server_port}") as proxy:
        watching = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=10)
        watching.request("GET", "/watch")
        answer = watching.getresponse()
        assert answer.read(3) == b"xxx"
        if cut:
            proxy.cut("^GET /watch")
            with pytest.raises((OSError, http.client.HTTPException)):
                answer.read()
    watching.close()
    until("upstream's connection ends too", lambda: upstream.got == ["left"])


def test_says_what_it_waited_for(proxy):
    with pytest.raises(TimeoutError, match=r"1 requests like '\^GET'"):
        proxy.hold("^GET").wait(seconds=0.1)


def test_a_late_request_arrives_without_its_sender(proxy, client, upstream):
    rule = proxy.hold("^POST /a", late=True)
    impatient = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=0.2)
    impatient.request("POST", "/a", b"{}")
    with pytest.raises(TimeoutError):
        impatient.getresponse()
    impatient.close()
    rule.wait()
    assert upstream.got == []
    rule.release()
    until("it arrives", lambda: upstream.got == ["/a"])
