"""Nodes and their devices: what each node reports, and where room has grown."""

from __future__ import annotations

from collections.abc import Callable

from hami.domain.kubernetes.objects import Node
from hami.policy.tables.cluster_table import ClusterTable
from hami.scheduler.bookings.device_room import Room, alike, grew, room_on
from hami.scheduler.bookings.lock_book import LockBook
from hami.scheduler.bookings.problems import Problems
from hami.scheduler.events import Event, RoomOnNode


class ClusterInventory:
    """The only writer of ``nodes``, and of what ``table`` and ``locks`` know of nodes.

    What is in use of the devices, :class:`Bookings` writes into the same table.
    """

    def __init__(
        self,
        table: ClusterTable,
        locks: LockBook,
        problems: Problems,
        *,
        reread: Callable[[str], None],
        watched: Callable[[], bool],
        publish: Callable[[Event], None],
    ) -> None:
        """``reread`` is told of a node whose devices were taken afresh.

        ``watched``: somebody waits for room, so it is worth finding out where it has grown.
        """
        self._problems = problems
        self._reread = reread
        self._watched = watched
        self._publish = publish
        self.table = table
        self.locks = locks
        self.nodes: dict[str, Node] = {}

    def use(self, table: ClusterTable) -> None:
        """Another one, of other profiles; empty until every node is reread."""
        self.table = table

    def node_changed(self, node: Node) -> None:
        known = self.nodes.get(node.name)
        self.nodes[node.name] = node
        self.look_at_locks(node.name)
        if known is None or not alike(known, node):
            self.reread(node.name)

    def look_at_locks(self, name: str) -> None:
        """The node shows other locks, or its agents need others than before."""
        node, vendors = self.nodes.get(name), self.table.vendors
        profiles = (vendors[key].profile for key in vendors)
        if node is not None and self.locks.node_seen(node, profiles):
            self._publish(RoomOnNode(name))

    def reread(self, name: str) -> None:
        """Take a node's devices afresh: it changed, or a liveness ran out."""
        node, before = self.nodes[name], self._room_on(name)
        problems = tuple(str(problem) for problem in self.table.set_node(node))
        self._problems.tell(node, ("Node", name), "MalformedDevices", problems)
        self._reread(name)
        if grew(before, self._room_on(name)):
            self._publish(RoomOnNode(name))

    def _room_on(self, name: str) -> Room:
        """None at all where nobody waits for it."""
        if not self._watched() or name not in self.table.node_names:
            return {}
        return room_on(self.table.devices(name), self.table.vendors)

    def node_gone(self, node: Node) -> None:
        self.nodes.pop(node.name, None)
        self._problems.forget(("Node", node.name))
        self.locks.node_gone(node.name)
        self.table.remove_node(node.name)
