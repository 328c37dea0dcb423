"""Which tests each of several processes gets that run side by side (``pytest -n 2``).

Every process has a control plane of its own. One of them has all the tests on a real node, one
after the other, because one machine is one node. These come first, since they take longest.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

from .machine import on_a_real_node

ONE_CLUSTER = ("test_rights.py",)
"""Files whose tests share something that is costly to make."""


class Sharing(LoadScopeScheduling):
    """Hands out the tests on a real node as one piece, the files of ``ONE_CLUSTER`` as one each, and
    the rest one by one.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if on_a_real_node(file):
            return "a real node"
        return file if file.endswith(ONE_CLUSTER) else nodeid
