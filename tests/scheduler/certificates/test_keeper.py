"""The Secret and what replicas serve of it: who writes, who follows, and real TLS while it rotates."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hami.domain.kubernetes.objects import Metadata
from hami.kube.errors import NOT_FOUND
from hami.kube.pace import Backoff
from hami.kube.resources import Secret
from hami.scheduler.certificates.certificate_set import CertificateTimes, read_set
from hami.scheduler.certificates.keeper import CertificateKeeper, KeeperSettings
from hami.scheduler.certificates.served_certificate import ServedCertificate
from hami.scheduler.web.tls import LiveTls, TlsServed

from ..writes import refused

TIMES = CertificateTimes(
    serving=timedelta(days=30), authority=timedelta(days=1080), drain=timedelta(hours=1)
)
SETTINGS = KeeperSettings(
    namespace="hami", name="tls", names=("localhost",), times=TIMES, overlap=0, every=0.002
)


class Secrets:
    """An API server with at most one Secret; ``refuses`` is the status of every write."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None
        self.version = 0
        self.refuses = 0

    def _secret(self) -> Secret:
        return Secret(metadata=Metadata(resource_version=str(self.version)), data=self.data)

    async def get(self, resource, name, *, namespace=""):
        assert (name, namespace) == ("tls", "hami")
        if self.data is None:
            raise refused(NOT_FOUND)
        return self._secret()

    async def create(self, resource, body, *, namespace=""):
        return self._write(body["data"], expected=self.data is None)

    async def patch(self, resource, name, patch, *, namespace=""):
        version = patch["metadata"]["resourceVersion"]
        return self._write(patch["data"], expected=version == str(self.version))

    def _write(self, data, *, expected: bool) -> Secret:
        if self.refuses or not expected:
            raise refused(self.refuses or 409)
        self.data, self.version = data, self.version + 1
        return self._secret()


class Webhooks:
    """Trusts what it was told last; ``heard`` are all of that."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def keep(self, bundle: bytes) -> bool:
        if self.heard[-1:] != [bundle]:
            self.heard.append(bundle)
        return True


class Replica:
    def __init__(self, secrets: Secrets, webhooks: Any = None, *, leading: bool = True) -> None:
        self.problems: list[str] = []
        self.leading = leading
        self.now = datetime.now(UTC)
        self.served = ServedCertificate()
        self.keeper = CertificateKeeper(
            secrets, SETTINGS, self.served, webhooks or Webhooks(),
            leading=lambda: self.leading, on_problem=self.problems.append, now=lambda: self.now,
            backoff=Backoff(first=0.001, most=0.002),
        )  # fmt: skip


@asynccontextmanager
async def running(*replicas: Replica):
    tasks = [asyncio.create_task(replica.keeper.run()) for replica in replicas]
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(holds):
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.002)


async def test_a_follower_makes_nothing_and_serves_what_the_leader_made():
    secrets = Secrets()
    leader, follower = Replica(secrets), Replica(secrets, leading=False)
    async with running(follower):
        await asyncio.sleep(0.02)
        assert secrets.data is None
        async with running(leader):
            await until(lambda: follower.served.known)
    assert follower.served.now.data() == leader.served.now.data()


async def test_of_two_that_take_themselves_for_leaders_one_makes_it():
    secrets = Secrets()
    one, other = Replica(secrets), Replica(secrets)
    async with running(one, other):
        await until(lambda: one.served.known and other.served.known)
    assert one.served.now.data() == other.served.now.data()
    assert secrets.version == 1
    assert one.problems + other.problems == []


async def test_what_somebody_broke_is_served_on_and_mended_by_the_leader():
    secrets = Secrets()
    leader, follower = Replica(secrets), Replica(secrets, leading=False)
    async with running(leader, follower):
        await until(lambda: follower.served.known)
        before = follower.served.now
        secrets.data, secrets.version = {"ca.crt": "%", "tls.crt": "%"}, secrets.version + 1
        await until(lambda: read_set(secrets.data).serving)
        assert follower.served.now.serving is not None
    assert before.trusted[0] in read_set(secrets.data).trusted


async def test_a_missing_right_is_told_once_with_its_remedy():
    secrets = Secrets()
    secrets.refuses = 403
    leader = Replica(secrets)
    async with running(leader):
        await until(lambda: leader.problems)
        await asyncio.sleep(0.02)
    assert len(leader.problems) == 1
    assert "allow get, create and patch of it" in leader.problems[0]


@pytest.fixture
def quick(monkeypatch):
    """Listeners look for another certificate often."""
    run = LiveTls.run
    monkeypatch.setattr(LiveTls, "run", lambda self: run(self, 0.002))


@pytest.mark.usefixtures("quick")
async def test_no_handshake_fails_while_ca_and_certificate_rotate():
    """A client that trusts what webhooks trust at that moment, again and again."""
    secrets, webhooks = Secrets(), Webhooks()
    leader = Replica(secrets, webhooks)
    live = LiveTls(TlsServed(certificate=leader.served))
    served: set[bytes] = set()

    async def ask(port: int) -> None:
        context = ssl.create_default_context(cadata=webhooks.heard[-1].decode())
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
        served.add(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        writer.close()

    server = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", 0, ssl=live.context)
    port = server.sockets[0].getsockname()[1]
    watch = asyncio.create_task(live.run())
    async with server, running(leader):
        await until(lambda: leader.served.known and webhooks.heard)
        await asyncio.sleep(0.05)
        for _ in range(3):
            secrets.data, secrets.version = {**secrets.data, "ca.key": ""}, secrets.version + 1
            before = len(served)
            async with asyncio.timeout(20):
                while len(served) == before or not served:
                    await ask(port)
    watch.cancel()
    assert len(served) >= 3
