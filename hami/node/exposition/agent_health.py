"""What an agent still waits for, and what of it hangs."""

from __future__ import annotations

from collections.abc import Iterator

from hami.node.exposition.agent_parts import AgentParts

STUCK = 60.0
"""Seconds in which no thread took work that waits, after which all of them count as stuck: a hook
may take as long."""


def missing(parts: AgentParts) -> Iterator[str]:
    """What has to come before kubelet can start containers with this agent."""
    around = parts.around
    if not parts.recovered():
        yield "the slices on disk are not taken over yet"
    if not around.inventory.known.is_set():
        yield f"no devices are known: the vendor {around.vendor.profile.key} has not named any yet"
    if not around.pods.synced.is_set():
        yield "the pods of this node are not known: the API server has not listed them yet"
    if not parts.advertiser.published.is_set():
        yield "the node does not say yet what devices it has: the API server did not take that"
    for server in parts.resources.servers:
        if why := server.unregistered:
            yield f"{server.resource} is not registered with kubelet: {why}"


def failed(parts: AgentParts) -> Iterator[str]:
    """What a restart may mend. The loop itself shows by answering that it turns.

    Threads for limits pages are not asked: a tenant may keep them waiting.
    """
    for threads in (parts.around.hooks, parts.around.disk):
        if (seconds := threads.stalled()) > STUCK:
            yield (
                f"the {threads.name} threads hang: none took the work that waits for {seconds:.0f} "
                "s; restart the agent, and look at the vendor's driver and the node's disk"
            )
