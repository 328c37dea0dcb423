"""What the agent must know of its node before it can serve: versions and labels.

They are kept on disk, because the API server may be away when the agent starts, and kubelet, which
may restart at any time, does not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from hami.domain.kubernetes.objects import Lean, Node, NodeStatus
from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.kube.pace import Backoff
from hami.kube.resources import Resource
from hami.slices.files import (
    StoreFailed,
    make_folder,
    opened_folder,
    store_failures,
    write_whole,
)

PATIENCE = 3.0
"""Seconds that kubelet may wait for the API server's answer, where there is another one."""


class NodeInfo(Lean, frozen=True):
    kubelet_version: str = ""
    container_runtime_version: str = ""


class _Status(NodeStatus, frozen=True):
    node_info: NodeInfo = NodeInfo()


class AgentNode(Node, frozen=True):
    status: _Status | None = None


AGENT_NODES = Resource(
    group_version="v1", plural="nodes", kind="Node", type=AgentNode, namespaced=False
)


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """As the node's object says."""

    labels: dict[str, str]
    info: NodeInfo


async def node_facts(
    client: KubeClient, name: str, remembered: Path, on_problem: Callable[[str], None]
) -> NodeFacts:
    """From the API server, else as it was at the last start; waits when it was never known."""
    backoff = Backoff(first=0.2, most=10.0)
    known = await asyncio.to_thread(_read, remembered)
    told = ""
    while True:
        try:
            async with asyncio.timeout(None if known is None else PATIENCE):
                node = await client.get(AGENT_NODES, name)
        except (ApiError, TimeoutError) as error:
            problem = str(error) or f"no answer within {PATIENCE:g} s"
            if known is not None:
                on_problem(f"node {name} is taken as it was at the last start: {problem}")
                return known
            if problem != told:
                on_problem(f"cannot read node {name}: {problem}; trying again until it answers")
                told = problem
            await asyncio.sleep(backoff.delay())
            continue
        info = node.status.node_info if node.status else NodeInfo()
        facts = NodeFacts(labels=dict(node.labels), info=info)
        await asyncio.to_thread(_write, remembered, facts, on_problem)
        return facts


def _read(path: Path) -> NodeFacts | None:
    """None: never written, or not to be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=NodeFacts)
    except (OSError, msgspec.DecodeError):
        return None


def _write(path: Path, facts: NodeFacts, on_problem: Callable[[str], None]) -> None:
    try:
        with store_failures("remember this node", path):
            make_folder(path.parent, 0o711)
            with opened_folder(path.parent) as folder:
                write_whole(folder, path.name, msgspec.json.encode(facts), 0o600)
    except StoreFailed as error:
        on_problem(f"{error}; without it the agent cannot start while the API server is away")
