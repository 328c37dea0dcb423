"""pytest fixtures: a whole cluster with the real scheduler service, for anybody's tests.

pytest finds it by its entry point. Its fixtures are asynchronous and need pytest-asyncio.
Little is imported here, because pytest loads this in every run where hami-lab is installed.

    async def test_two_pods_share_a_device(hami_cluster):
        await hami_cluster.add_node("n1", "t4x1")
        await hami_cluster.apply(MANIFESTS)
        await hami_cluster.bound("one", "two")

A test that fails shows the service's last lines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hami_lab.cluster import ClusterSettings, EmbeddedCluster


@pytest.fixture
def hami_cluster_settings() -> ClusterSettings:
    """How ``hami_cluster`` is made; override it in a conftest or a test module."""
    from hami_lab.cluster import ClusterSettings  # noqa: PLC0415 -- a server and its libraries

    return ClusterSettings()


async def _running(hami_cluster_settings: ClusterSettings) -> AsyncIterator[EmbeddedCluster]:
    """An embedded cluster without nodes: API server, kube-scheduler, kubelets, the service."""
    from hami_lab.cluster import EmbeddedCluster  # noqa: PLC0415 -- as above

    async with EmbeddedCluster(hami_cluster_settings) as cluster:
        yield cluster


def _missing() -> None:
    """What ``hami_cluster`` is without pytest-asyncio."""
    pytest.fail("hami_cluster is asynchronous; run pip install pytest-asyncio", pytrace=False)


def _hami_cluster() -> Any:
    try:
        from pytest_asyncio import fixture  # noqa: PLC0415 -- not everybody has it
    except ImportError:
        return pytest.fixture(_missing, name="hami_cluster")
    return fixture(_running, name="hami_cluster")


hami_cluster = _hami_cluster()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    cluster: Any = getattr(item, "funcargs", {}).get("hami_cluster")
    if call.when == "call" and report.failed and cluster is not None:
        report.sections.append(("hami_cluster", cluster.logs()))
    return report
